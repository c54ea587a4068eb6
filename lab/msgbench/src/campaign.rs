//! All measurements, schemes in rotation; those made before are taken over.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, bail};
use flow_testbed::finished::{FinishedCells, turns};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::{
    cell::Cell,
    measurement::{Measurement, Run},
    rig::{Rig, RigOptions},
    scheme::Scheme,
    summary::{self, KeptRow, Row},
    workload::Workload,
};

/// Setting up a run and taking it away takes this long, about.
const OVERHEAD: Duration = Duration::from_millis(900);
/// And this much more where transfers run beside, which get going first.
const BESIDE_OVERHEAD: Duration = Duration::from_millis(1_100);
/// And this much more with splitters at both borders.
const BORDERS_OVERHEAD: Duration = Duration::from_millis(2_500);

/// A campaign: all that is to be measured.
pub struct Campaign {
    /// Cells, those of one round-trip time together: building paths takes a while.
    pub cells: Vec<Cell>,
    /// Schemes that are compared.
    pub schemes: Vec<Arc<dyn Scheme>>,
    /// Seeds; with each, every scheme gets the same messages.
    pub seeds: Vec<u64>,
    /// Workload of messages to send.
    pub workload: Workload,
    /// Rate of each path.
    pub rate_mbit: u32,
    /// The program `splitter`, for cells with splitters at the borders.
    pub splitter: PathBuf,
    /// Directory for a file of each cell.
    pub out: PathBuf,
    /// True to take over what lies there of a campaign before.
    pub resume: bool,
}

/// A measurement and what it is of.
#[derive(Clone, Debug)]
pub struct Round {
    /// Conditions under which it was made.
    pub cell: Cell,
    /// Name of the scheme.
    pub scheme: &'static str,
    /// Seed of the arrivals.
    pub seed: u64,
    /// Result of the measurement.
    pub measurement: Measurement,
}

/// What the runs of a cell that are taken over must have in common with those to come.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Conditions {
    seconds: f64,
    per_second: f64,
    sizes: Vec<u32>,
    rate_mbit: u32,
}

/// Who wants to know how far it is.
pub trait Observer {
    /// This is measured next.
    fn begins(&mut self, what: &str);
    /// It has been measured.
    fn ends(&mut self);
    /// So many runs of a cell need not be measured, for they were before.
    fn takes_over(&mut self, cell: &Cell, runs: usize);
    /// It could not be measured, and the others go on.
    fn fails(&mut self, error: &anyhow::Error);
}

impl Campaign {
    /// How many measurements there are.
    pub fn count(&self) -> usize {
        self.cells.iter().map(|cell| self.turns(cell).len()).sum()
    }

    /// How long all of it takes, about, if nothing is taken over and nothing waits for its limit.
    pub fn length(&self) -> Duration {
        let of_cell = |cell: &Cell| {
            let mut run = self.workload.length + OVERHEAD;
            if cell.scenario.bulk().is_some() || cell.scenario.has_load() {
                run += BESIDE_OVERHEAD;
            }
            let runs = self.turns(cell);
            let mut all = run * runs.len() as u32;
            for (_, scheme) in runs {
                if cell.scenario.borders(scheme.as_ref()).is_some() {
                    all += BORDERS_OVERHEAD;
                }
            }
            all
        };
        self.cells.iter().map(of_cell).sum()
    }

    /// Returns the schemes that are measured in a cell.
    pub fn schemes_of(&self, cell: &Cell) -> Vec<Arc<dyn Scheme>> {
        let schemes = self.schemes.iter().cloned();
        schemes
            .filter(|it| cell.scenario.carries(it.as_ref()))
            .collect()
    }

    /// Which scheme is measured when.
    fn turns(&self, cell: &Cell) -> Vec<(u64, Arc<dyn Scheme>)> {
        turns(&self.schemes_of(cell), self.seeds.iter().copied())
    }

    /// Measures everything. The schemes of a seed follow each other, so that what else the machine
    /// does hits all alike; each seed starts with another one. Every run is kept as soon as it is
    /// there.
    ///
    /// # Errors
    /// When a rig cannot be built or does not what it should, when rows cannot be kept, when nothing
    /// could be measured, or after `cancel`.
    pub fn run(&self, observer: &mut dyn Observer, cancel: &CancellationToken) -> Result<Vec<Row>> {
        let finished = FinishedCells::open(&self.out, self.resume)?;
        let mut built = None;
        let mut rows = Vec::new();
        for cell in &self.cells {
            let taken = self.taken_over(&finished, cell);
            let lacking = self.lacking(cell, &taken);
            let known = self.turns(cell).len() - lacking.len();
            if known > 0 {
                observer.takes_over(cell, known);
            }
            let of_cell = CellRun {
                campaign: self,
                cell,
                finished: &finished,
                others: self.not_asked_for(&finished, cell),
                cancel,
            };
            rows.extend(of_cell.run(taken, &lacking, &mut built, observer)?);
        }
        if rows.is_empty() {
            bail!("nothing could be measured");
        }
        Ok(rows)
    }

    fn conditions(&self) -> Conditions {
        Conditions {
            seconds: self.workload.length.as_secs_f64(),
            per_second: self.workload.per_second,
            sizes: self.workload.sizes.clone(),
            rate_mbit: self.rate_mbit,
        }
    }

    /// The rows of a campaign before that belong to this one.
    fn taken_over(&self, finished: &FinishedCells, cell: &Cell) -> Vec<Row> {
        let mut rows = self.finished_before(finished, cell);
        rows.retain(|it| self.asks_for(cell, it));
        rows
    }

    /// Those that do not: they stay in the cell's file, for a campaign that asks for them.
    fn not_asked_for(&self, finished: &FinishedCells, cell: &Cell) -> Vec<Row> {
        let mut rows = self.finished_before(finished, cell);
        rows.retain(|it| !self.asks_for(cell, it));
        rows
    }

    fn finished_before(&self, finished: &FinishedCells, cell: &Cell) -> Vec<Row> {
        let kept: Vec<KeptRow> = finished.take_over(&cell.to_string(), &self.conditions());
        kept.into_iter().map(Row::from).collect()
    }

    fn asks_for(&self, cell: &Cell, row: &Row) -> bool {
        let schemes = self.schemes_of(cell);
        let is_compared = schemes.iter().any(|it| it.name() == row.scheme);
        is_compared && self.seeds.contains(&row.seed)
    }

    /// The runs of which `taken` has no rows.
    fn lacking(&self, cell: &Cell, taken: &[Row]) -> Vec<(u64, Arc<dyn Scheme>)> {
        let mut lacking = self.turns(cell);
        lacking.retain(|(seed, scheme)| {
            let mut rows = taken.iter();
            !rows.any(|it| it.seed == *seed && it.scheme == scheme.name())
        });
        lacking
    }
}

/// The runs of a cell.
struct CellRun<'a> {
    campaign: &'a Campaign,
    cell: &'a Cell,
    finished: &'a FinishedCells,
    /// Rows of the cell's file that this campaign did not ask for.
    others: Vec<Row>,
    cancel: &'a CancellationToken,
}

impl CellRun<'_> {
    /// Measures what is lacking; the rows of all.
    fn run(
        &self,
        mut rows: Vec<Row>,
        lacking: &[(u64, Arc<dyn Scheme>)],
        built: &mut Option<(Duration, Rig)>,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Row>> {
        let mut steered = None;
        for (seed, scheme) in lacking {
            let rig = self.rig(built, observer)?;
            if steered.replace(*seed) != Some(*seed) {
                // Which path a port leads to must not be the same luck every time.
                rig.steer(*seed as u32)?;
                rig.check_paths()?;
            }
            observer.begins(&format!("{}, {}", scheme.name(), self.cell));
            match self.measure(rig, *seed, scheme) {
                Ok(measured) => rows.extend(measured),
                Err(error) if self.cancel.is_cancelled() => return Err(error),
                Err(error) => {
                    // It may have left something on the paths.
                    (*built, steered) = (None, None);
                    observer.fails(&error);
                }
            }
            let kept = rows.iter().chain(&self.others).cloned();
            let kept: Vec<KeptRow> = kept.map(KeptRow::from).collect();
            let conditions = self.campaign.conditions();
            self.finished
                .keep(&self.cell.to_string(), &conditions, &kept)?;
            observer.ends();
        }
        Ok(rows)
    }

    /// The paths of this cell's round-trip time, built when the cell before had another one.
    fn rig<'b>(
        &self,
        built: &'b mut Option<(Duration, Rig)>,
        observer: &mut dyn Observer,
    ) -> Result<&'b Rig> {
        let rtt = self.cell.rtt;
        if built
            .as_ref()
            .is_none_or(|(built_for, _)| *built_for != rtt)
        {
            observer.begins(&format!(
                "building the paths, RTT {} ms",
                self.cell.rtt_ms()
            ));
            // The old one goes first: its addresses are the same.
            built.take();
            let options = RigOptions {
                rate_mbit: self.campaign.rate_mbit,
                rtt,
            };
            let rig = Rig::build(options).context("cannot build the paths")?;
            *built = Some((rtt, rig));
        }
        let (_, rig) = built.as_ref().context("the paths have just been built")?;
        Ok(rig)
    }

    fn measure(&self, rig: &Rig, seed: u64, scheme: &Arc<dyn Scheme>) -> Result<Vec<Row>> {
        let workload = &self.campaign.workload;
        let run = Run {
            rig,
            cell: *self.cell,
            scheme,
            arrivals: &workload.arrivals(self.cell.scenario, seed),
            length: workload.length,
            seed,
            splitter: &self.campaign.splitter,
        };
        let measurement = run.measure(self.cancel)?;
        let round = Round {
            cell: *self.cell,
            scheme: scheme.name(),
            seed,
            measurement,
        };
        Ok(summary::rows(&round, &workload.sizes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{scenario::Scenario, scheme, summary::tests::round};

    fn campaign(out: PathBuf, names: &[&str]) -> Campaign {
        let mut schemes = scheme::all();
        schemes.retain(|it| names.contains(&it.name()));
        Campaign {
            cells: vec![Cell {
                rtt: Duration::from_millis(10),
                scenario: Scenario::Loss1,
                load_percent: None,
            }],
            schemes,
            seeds: vec![1, 2],
            workload: Workload {
                per_second: 1.0,
                sizes: vec![5_000, 93_000],
                length: Duration::from_secs(1),
            },
            rate_mbit: 50,
            splitter: PathBuf::new(),
            out,
            resume: true,
        }
    }

    #[test]
    fn runs_of_a_campaign_before_are_taken_over_one_by_one() -> Result<()> {
        let directory = tempfile::tempdir()?;
        let campaign = campaign(directory.path().to_owned(), &["quic", "tcp_cubic"]);
        let cell = campaign.cells[0];
        let finished = FinishedCells::open(&campaign.out, true)?;
        assert_eq!(
            campaign
                .lacking(&cell, &campaign.taken_over(&finished, &cell))
                .len(),
            4
        );

        let of = |scheme, seed| {
            let mut round = round(seed, &[Some(1), None], None);
            round.scheme = scheme;
            summary::rows(&round, &campaign.workload.sizes)
        };
        // A scheme that is not asked for now, and a seed.
        let rows = [of("quic", 1), of("tcp_bbr", 1), of("quic", 3)].concat();
        let kept: Vec<KeptRow> = rows.into_iter().map(KeptRow::from).collect();
        finished.keep(&cell.to_string(), &campaign.conditions(), &kept)?;

        let taken = campaign.taken_over(&finished, &cell);
        assert_eq!(taken.len(), 2);
        assert_eq!(taken[0], of("quic", 1)[0]);
        assert!(taken[1].p99_us.is_nan(), "none of 93 kB");
        let lacking: Vec<_> = campaign
            .lacking(&cell, &taken)
            .into_iter()
            .map(|(seed, scheme)| (seed, scheme.name()))
            .collect();
        assert_eq!(lacking, [(1, "tcp_cubic"), (2, "quic"), (2, "tcp_cubic")]);
        Ok(())
    }

    #[test]
    fn whole_has_each_scheme_where_it_belongs() {
        let mut campaign = campaign(PathBuf::new(), &["quic", "cloudburst"]);
        let loads = crate::cell::cells(&[Duration::ZERO], &Scenario::ALL[9..], &[40]);
        campaign.cells = loads;
        let names = campaign.cells.iter().map(|cell| {
            let schemes = campaign.schemes_of(cell);
            schemes.iter().map(|it| it.name()).collect::<Vec<_>>()
        });
        let expected = [["quic"], ["quic"], ["cloudburst"], ["cloudburst"]];
        assert_eq!(names.collect::<Vec<_>>(), expected);
        assert_eq!(campaign.count(), 4 * 2);
        let plain = Duration::from_secs(1) + OVERHEAD + BESIDE_OVERHEAD;
        assert_eq!(campaign.length(), plain * 8 + BORDERS_OVERHEAD * 4);
    }

    #[test]
    fn nothing_of_another_workload_is_taken_over() -> Result<()> {
        let directory = tempfile::tempdir()?;
        let mut campaign = campaign(directory.path().to_owned(), &["quic"]);
        let cell = campaign.cells[0];
        let finished = FinishedCells::open(&campaign.out, true)?;
        let mut round = round(1, &[Some(1)], None);
        round.scheme = "quic";
        let kept = summary::rows(&round, &[5_000]).into_iter();
        let kept: Vec<KeptRow> = kept.map(KeptRow::from).collect();
        finished.keep(&cell.to_string(), &campaign.conditions(), &kept)?;
        assert_eq!(campaign.taken_over(&finished, &cell).len(), 1);
        campaign.workload.per_second = 2.0;
        assert_eq!(campaign.taken_over(&finished, &cell).len(), 0);
        Ok(())
    }
}
