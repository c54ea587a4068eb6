//! All runs of some cells: schemes take turns, and cells that were finished before are taken over.
//!
//! A cell is a point of a comparison, such as a topology with a load. In each, every scheme runs once with each
//! seed, and each seed begins with another scheme, so that what drifts on the machine falls on all alike.

use std::{
    fmt,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use flow_cli::Signals;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio_util::sync::CancellationToken;

use crate::finished::{FinishedCells, turns};

/// Says what is measured in each cell, and how.
pub trait Measurement {
    /// A point of the comparison; it is shown as its name, which is that of its file, too.
    type Cell: fmt::Display;
    /// One of the ways that are compared.
    type Scheme: Copy + PartialEq;
    /// A result, of which a run has one or several.
    type Row: Clone + Serialize + DeserializeOwned;

    /// The name of a scheme in results.
    fn name(scheme: Self::Scheme) -> &'static str;

    /// The part of a cell that decides which schemes are available.
    fn case(cell: &Self::Cell) -> String;

    /// The name of the scheme and the seed of the run that a row is of.
    fn run_of(row: &Self::Row) -> (&str, u64);

    /// Says how runs are made, in one line: finished cells are taken over if this is the same.
    fn settings(&self) -> String;

    /// About how long one run takes, the building and removing of its testbed included.
    fn run_length(&self) -> Duration;

    /// Why a scheme cannot be measured in a cell, if it cannot.
    ///
    /// # Errors
    /// When that cannot be found out.
    fn obstacle(&self, cell: &Self::Cell, scheme: Self::Scheme) -> Result<Option<String>>;

    /// Runs a scheme once; its rows, and in a few words what it came to.
    ///
    /// # Errors
    /// The first failure, soon after `cancel` too.
    fn run(
        &self,
        cell: &Self::Cell,
        scheme: Self::Scheme,
        seed: u64,
        cancel: &CancellationToken,
    ) -> Result<(Vec<Self::Row>, String)>;
}

/// Describes what is measured.
#[derive(Clone, Debug)]
pub struct Campaign<M: Measurement> {
    /// How each run is made.
    pub measurement: M,
    /// The cells, in the order in which they are measured.
    pub cells: Vec<M::Cell>,
    /// The schemes that are compared.
    pub schemes: Vec<M::Scheme>,
    /// How many seeds, from 1 on.
    pub seeds: u64,
    /// Directory for a file of each finished cell.
    pub out: PathBuf,
    /// Whether cells finished before are taken over.
    pub resume: bool,
}

/// Records a scheme that was not measured in cells of a case, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// The part of the cells that decides it.
    pub case: String,
    /// The scheme.
    pub scheme: &'static str,
    /// What is in the way.
    pub reason: String,
}

/// What all runs of a cell that is taken over must have in common.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Conditions {
    settings: String,
}

/// Written as a line of its own.
impl fmt::Display for Skip {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            case,
            scheme,
            reason,
        } = self;
        write!(formatter, "{scheme} with {case}: {reason}")
    }
}

impl<M: Measurement> Campaign<M> {
    /// How long all of it takes, if nothing is taken over.
    pub fn length(&self) -> Duration {
        let runs = self.cells.len() as u64 * self.schemes.len() as u64 * self.seeds;
        self.measurement.run_length() * runs as u32
    }

    /// Measures all cells on a thread of its own, so that a signal ends them; says on standard error what there
    /// is to do, and how far it is.
    ///
    /// # Errors
    /// The first failure, or that a signal came.
    pub async fn run_until_signal(self) -> Result<(Vec<M::Row>, Vec<Skip>)>
    where
        M: Send + 'static,
        M::Cell: Send,
        M::Scheme: Send,
        M::Row: Send,
    {
        eprintln!(
            "cells: {}, schemes: {}, seeds: {}; about {} minutes",
            self.cells.len(),
            self.schemes.len(),
            self.seeds,
            self.length().as_secs().div_ceil(60)
        );
        let cancel = CancellationToken::new();
        let cancelled = cancel.clone();
        let mut signals = Signals::listen()?;
        let measuring = tokio::task::spawn_blocking(move || self.run(&cancelled));
        let mut measuring = std::pin::pin!(measuring);
        loop {
            tokio::select! {
                measured = &mut measuring => break measured.context("the measurement panicked")?,
                _ = signals.next() => cancel.cancel(),
            }
        }
    }

    /// Measures all cells; says on standard error how far it is.
    fn run(&self, cancel: &CancellationToken) -> Result<(Vec<M::Row>, Vec<Skip>)> {
        let finished = FinishedCells::open(&self.out, self.resume)?;
        let skips = self.skips()?;
        for skip in &skips {
            eprintln!("not available: {skip}");
        }
        let mut all = Vec::new();
        for (number, cell) in (1..).zip(&self.cells) {
            let schemes = self.schemes_of(cell, &skips);
            if let Some(rows) = self.known(&finished, cell, &schemes) {
                eprintln!("cell {number} of {}: {cell} taken over", self.cells.len());
                all.extend(rows);
                continue;
            }
            let rows = self.measure(number, cell, &schemes, cancel)?;
            let others = self.others(&finished, cell, &rows);
            let kept: Vec<_> = rows.iter().chain(&others).collect();
            finished.keep(&cell.to_string(), &self.conditions(), &kept)?;
            all.extend(rows);
        }
        Ok((all, skips))
    }

    fn skips(&self) -> Result<Vec<Skip>> {
        let mut cases = Vec::new();
        let mut skips = Vec::new();
        for cell in &self.cells {
            let case = M::case(cell);
            if cases.contains(&case) {
                continue;
            }
            for scheme in &self.schemes {
                if let Some(reason) = self.measurement.obstacle(cell, *scheme)? {
                    skips.push(Skip {
                        case: case.clone(),
                        scheme: M::name(*scheme),
                        reason,
                    });
                }
            }
            cases.push(case);
        }
        Ok(skips)
    }

    fn schemes_of(&self, cell: &M::Cell, skips: &[Skip]) -> Vec<M::Scheme> {
        let case = M::case(cell);
        let is_skipped = |scheme: &M::Scheme| {
            let mut skips = skips.iter();
            skips.any(|it| it.case == case && it.scheme == M::name(*scheme))
        };
        let schemes = self.schemes.iter().copied();
        schemes.filter(|it| !is_skipped(it)).collect()
    }

    fn measure(
        &self,
        number: usize,
        cell: &M::Cell,
        schemes: &[M::Scheme],
        cancel: &CancellationToken,
    ) -> Result<Vec<M::Row>> {
        let mut all = Vec::new();
        for (seed, scheme) in turns(schemes, 1..=self.seeds) {
            if cancel.is_cancelled() {
                bail!("cancelled");
            }
            let began = Instant::now();
            let run = self.measurement.run(cell, scheme, seed, cancel);
            let (rows, summary) = run.with_context(|| format!("{} in {cell}", M::name(scheme)))?;
            eprintln!(
                "cell {number} of {}: {cell}, seed {seed} of {}: {} has {summary} ({:.1} s)",
                self.cells.len(),
                self.seeds,
                M::name(scheme),
                began.elapsed().as_secs_f64()
            );
            all.extend(rows);
        }
        Ok(all)
    }

    fn conditions(&self) -> Conditions {
        Conditions {
            settings: self.measurement.settings(),
        }
    }

    /// The rows of runs before that this campaign did not make again: they stay for those that ask for them.
    fn others(&self, finished: &FinishedCells, cell: &M::Cell, rows: &[M::Row]) -> Vec<M::Row> {
        let before: Vec<M::Row> = finished.take_over(&cell.to_string(), &self.conditions());
        let is_new = |it: &M::Row| rows.iter().any(|new| M::run_of(new) == M::run_of(it));
        before.into_iter().filter(|it| !is_new(it)).collect()
    }

    /// The rows of a cell that was finished before in the same way, if all that are asked for are there.
    fn known(
        &self,
        finished: &FinishedCells,
        cell: &M::Cell,
        schemes: &[M::Scheme],
    ) -> Option<Vec<M::Row>> {
        let rows: Vec<M::Row> = finished.take_over(&cell.to_string(), &self.conditions());
        let wanted = turns(schemes, 1..=self.seeds);
        let wanted: Vec<_> = wanted
            .iter()
            .map(|(seed, scheme)| (M::name(*scheme), *seed))
            .collect();
        let has = |run: &(&str, u64)| rows.iter().any(|it| M::run_of(it) == *run);
        let is_whole = !rows.is_empty() && wanted.iter().all(has);
        let rows = rows
            .into_iter()
            .filter(|it| wanted.contains(&M::run_of(it)));
        is_whole.then(|| rows.collect())
    }
}

#[cfg(test)]
mod tests;
