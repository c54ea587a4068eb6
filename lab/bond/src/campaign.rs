//! All runs of some cells: schemes take turns, and cells that were finished before are taken over.

use std::{
    fmt,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use flow_testbed::finished::{FinishedCells, turns};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::{
    cell::{Case, Cell},
    measurement::{self, Timing},
    row::Row,
    scheme::Scheme,
};

/// Building the testbed, applying a scheme and taking both away takes this long, about.
const OVERHEAD: Duration = Duration::from_millis(1_500);

/// Describes what is measured.
#[derive(Clone, Debug)]
pub(crate) struct Campaign {
    pub(crate) cells: Vec<Cell>,
    pub(crate) schemes: Vec<Scheme>,
    pub(crate) seeds: u64,
    pub(crate) timing: Timing,
    /// The program `splitter`.
    pub(crate) splitter: PathBuf,
    /// Directory for a file of each finished cell.
    pub(crate) out: PathBuf,
    /// Whether cells finished before are taken over.
    pub(crate) resume: bool,
}

/// What all runs of a cell that is taken over must have in common.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Conditions {
    counting_ms: u64,
}

/// A scheme that was not measured with some tunnels, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Skip {
    pub(crate) case: &'static str,
    pub(crate) scheme: &'static str,
    pub(crate) reason: String,
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

impl Skip {
    pub(crate) fn is_of(&self, cell: &Cell, scheme: &str) -> bool {
        self.case == cell.case.name && self.scheme == scheme
    }
}

impl Campaign {
    /// How long all of it takes, if nothing is taken over.
    pub(crate) fn length(&self) -> Duration {
        let runs = self.cells.len() as u64 * self.schemes.len() as u64 * self.seeds;
        (self.timing.whole() + Duration::from_secs(1) + OVERHEAD) * runs as u32
    }

    /// Measures all cells; says on standard error how far it is.
    pub(crate) fn run(&self, cancel: &CancellationToken) -> Result<(Vec<Row>, Vec<Skip>)> {
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
            finished.keep(&cell.to_string(), &self.conditions(), &rows)?;
            all.extend(rows);
        }
        Ok((all, skips))
    }

    fn skips(&self) -> Result<Vec<Skip>> {
        let mut cases: Vec<Case> = Vec::new();
        for cell in &self.cells {
            if !cases.contains(&cell.case) {
                cases.push(cell.case);
            }
        }
        let mut skips = Vec::new();
        for case in cases {
            for scheme in &self.schemes {
                if let Some(reason) = scheme.obstacle(case, &self.splitter)? {
                    skips.push(Skip {
                        case: case.name,
                        scheme: scheme.name(),
                        reason,
                    });
                }
            }
        }
        Ok(skips)
    }

    fn schemes_of(&self, cell: &Cell, skips: &[Skip]) -> Vec<Scheme> {
        let is_skipped = |scheme: &Scheme| skips.iter().any(|it| it.is_of(cell, scheme.name()));
        let schemes = self.schemes.iter().copied();
        schemes.filter(|it| !is_skipped(it)).collect()
    }

    fn measure(
        &self,
        number: usize,
        cell: &Cell,
        schemes: &[Scheme],
        cancel: &CancellationToken,
    ) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for (seed, scheme) in turns(schemes, 1..=self.seeds) {
            if cancel.is_cancelled() {
                bail!("cancelled");
            }
            let began = Instant::now();
            let (timing, splitter) = (self.timing, self.splitter.as_path());
            let outcome = measurement::run(cell, scheme, seed, timing, splitter, cancel);
            let outcome = outcome.with_context(|| format!("{} in {cell}", scheme.name()))?;
            let row = Row::new(cell, scheme, seed, &outcome);
            eprintln!(
                "cell {number} of {}: {cell}, seed {seed} of {}: {} has {:.3} of the sum ({:.1} s)",
                self.cells.len(),
                self.seeds,
                row.scheme,
                row.share_of_sum,
                began.elapsed().as_secs_f64()
            );
            rows.push(row);
        }
        Ok(rows)
    }

    fn conditions(&self) -> Conditions {
        Conditions {
            counting_ms: self.timing.counting.as_millis() as u64,
        }
    }

    /// The rows of a cell that was finished before in the same way, if they are to be taken over.
    fn known(&self, finished: &FinishedCells, cell: &Cell, schemes: &[Scheme]) -> Option<Vec<Row>> {
        let rows: Vec<Row> = finished.take_over(&cell.to_string(), &self.conditions());
        let has = |(seed, scheme): (u64, Scheme)| {
            let mut rows = rows.iter();
            rows.any(|it| it.seed == seed && it.scheme == scheme.name())
        };
        let wanted = turns(schemes, 1..=self.seeds);
        let is_whole = wanted.len() == rows.len() && wanted.into_iter().all(has);
        is_whole.then_some(rows)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{cell, row::tests::row};

    const CELL: &str = "30+8-f1-up-loss0-jitter0";

    fn campaign(out: &Path) -> Campaign {
        let second = Duration::from_secs(1);
        Campaign {
            cells: cell::chosen(Some(CELL), false),
            schemes: vec![Scheme::BestSingle, Scheme::EcmpFlow],
            seeds: 2,
            timing: Timing {
                settling: second,
                counting: second,
                beside: second,
            },
            splitter: PathBuf::new(),
            out: out.to_owned(),
            resume: true,
        }
    }

    #[test]
    fn quick_run_takes_ten_minutes_at_the_most() {
        let quick = Campaign {
            cells: cell::chosen(None, true),
            schemes: Scheme::ALL.to_vec(),
            seeds: 3,
            timing: Timing::QUICK,
            ..campaign(Path::new("/x"))
        };
        assert!(
            quick.length() <= Duration::from_secs(600),
            "{:?}",
            quick.length()
        );
    }

    #[test]
    fn finished_cell_is_taken_over_if_it_is_whole_and_alike() -> Result<()> {
        let directory = tempfile::tempdir()?;
        let finished = FinishedCells::open(directory.path(), true)?;
        let campaign = campaign(directory.path());
        let (cell, schemes) = (campaign.cells[0], campaign.schemes.clone());
        assert_eq!(campaign.known(&finished, &cell, &schemes), None);
        let rows: Vec<_> = turns(&schemes, 1..=2)
            .into_iter()
            .map(|(seed, scheme)| row(CELL, scheme, seed, 20.0))
            .collect();
        finished.keep(CELL, &campaign.conditions(), &rows)?;
        assert_eq!(
            campaign.known(&finished, &cell, &schemes),
            Some(rows.clone())
        );

        let [mut more, mut longer] = [(); 2].map(|()| campaign.clone());
        more.seeds = 3;
        assert_eq!(more.known(&finished, &cell, &schemes), None);
        longer.timing.counting *= 2;
        assert_eq!(longer.known(&finished, &cell, &schemes), None);
        // A scheme that can be measured by now.
        let with_mptcp = [Scheme::BestSingle, Scheme::EcmpFlow, Scheme::Mptcp];
        assert_eq!(campaign.known(&finished, &cell, &with_mptcp), None);

        // The run before ended in the midst of it.
        finished.keep(CELL, &campaign.conditions(), &rows[1..])?;
        assert_eq!(campaign.known(&finished, &cell, &schemes), None);
        Ok(())
    }

    #[test]
    fn skipped_schemes_are_those_of_the_case() {
        let campaign = campaign(Path::new("/x"));
        let cell = &campaign.cells[0];
        let skip = |case| Skip {
            case,
            scheme: "ecmp_flow",
            reason: String::new(),
        };
        assert_eq!(campaign.schemes_of(cell, &[skip("20+20")]).len(), 2);
        assert_eq!(
            campaign.schemes_of(cell, &[skip("30+8")]),
            [Scheme::BestSingle]
        );
    }
}
