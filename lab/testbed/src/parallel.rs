//! Compares [schemes](Scheme) on transfers that start together, as `iperf3 -P` starts them.
//!
//! A cell is a pair of rates, a number of transfers, a round trip and a direction. In each
//! repetition every mode runs once, on a testbed built again, and the next repetition starts with
//! another mode. What counts is the sum of all transfers from two seconds on.

mod rig;

use std::{fmt, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use self::rig::Rig;
pub use self::rig::RigError;
use crate::{
    demo::{DEDICATED, ECMP_FLOW, SHARE},
    experiment::Mode,
    scheme::{Scheme, SplitterScheme},
};

/// Transfers run for so long before they count.
const SETTLING: Duration = Duration::from_secs(2);
/// How long they count.
const COUNTING: Duration = Duration::from_secs(3);
/// The same where many cells have to fit into ten minutes.
const QUICK_COUNTING: Duration = Duration::from_secs(2);
/// Packets of a flow that still go into the short tunnel, as in the demonstration.
const THRESHOLD: u32 = 45;

/// Describes which cells to measure, and with what.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program `splitter`.
    pub splitter: PathBuf,
    /// Numbers of transfers.
    pub parallel: Vec<u32>,
    /// Round trips in milliseconds, without queues; 0.2 is that of the namespaces themselves.
    pub round_trips_ms: Vec<f64>,
    /// Only cells whose name contains this.
    pub cell: Option<String>,
    /// Three repetitions instead of ten, of a choice of cells.
    pub quick: bool,
}

/// The direction in which transfers carry data, as the site sees it that opens them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From who connects.
    Up,
    /// To who connects.
    Down,
}

/// One point of the comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Rates of the two tunnels in Mbit/s.
    pub rates_mbit: [u32; 2],
    /// Whether short flows run beside the transfers.
    pub beside_short_flows: bool,
    /// Transfers that start together.
    pub parallel: u32,
    /// The round trip in milliseconds, without queues.
    pub round_trip_ms: f64,
    /// The direction of the data.
    pub direction: Direction,
}

/// The result of one mode in one cell, over all repetitions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The rates, and `mix` where short flows run beside: `20+20`, `100+40-mix`.
    pub case: String,
    /// Transfers that started together.
    pub parallel: u32,
    /// The round trip without queues.
    pub rtt_ms: f64,
    /// The direction of the data.
    pub direction: Direction,
    /// `ecmp_flow`, `dedicated` or `share`.
    pub mode: String,
    /// The mean of the sum of all transfers from two seconds on, their packets' headers included.
    pub sum_mbit: f64,
    /// The least of those sums.
    pub sum_mbit_min: f64,
    /// What both tunnels are shaped to together.
    pub shaped_mbit: f64,
    /// The mean completion time of the short flows beside, if there are any.
    pub short_mean_ms: Option<f64>,
    /// Segments that receivers dropped for an old timestamp, in all repetitions.
    pub paws_estab: u64,
    /// Segments that were sent again, in all repetitions.
    pub retransmits: u64,
}

impl Direction {
    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (parallel, round_trip_ms) = (self.parallel, self.round_trip_ms);
        let direction = self.direction.name();
        write!(
            formatter,
            "{}-p{parallel}-{round_trip_ms}ms-{direction}",
            self.case()
        )
    }
}

impl Cell {
    fn case(&self) -> String {
        let [one, two] = self.rates_mbit;
        let mix = if self.beside_short_flows { "-mix" } else { "" };
        format!("{one}+{two}{mix}")
    }

    /// Whether a quick run has it: what a round trip, a pair of rates and a mix each change, in the
    /// six minutes that nine cells take.
    fn is_quick(&self) -> bool {
        let is_long = self.round_trip_ms > 1.0;
        let is_up = self.direction == Direction::Up;
        match (self.rates_mbit, self.beside_short_flows, self.parallel) {
            ([20, 20], false, 2 | 4 | 8) => is_long && is_up,
            ([20, 20], false, 1) => false,
            ([100, 100], false, 4) => !is_long,
            ([100, 40], false, 2) => is_long && !is_up,
            ([100, 100], true, 4) => !is_long && is_up,
            _ => false,
        }
    }
}

impl Options {
    /// The cells, in the order in which they are measured.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for rates_mbit in [[20, 20], [100, 100], [100, 40]] {
            for beside_short_flows in [false, true] {
                for &round_trip_ms in &self.round_trips_ms {
                    for &parallel in &self.parallel {
                        for direction in [Direction::Up, Direction::Down] {
                            cells.push(Cell {
                                rates_mbit,
                                beside_short_flows,
                                parallel,
                                round_trip_ms,
                                direction,
                            });
                        }
                    }
                }
            }
        }
        let name = self.cell.as_deref();
        cells.retain(|it| match name {
            Some(name) => it.to_string().contains(name),
            None => !self.quick || it.is_quick(),
        });
        cells
    }

    fn modes(&self) -> [Mode; 3] {
        let dedicated = SplitterScheme {
            binary: self.splitter.clone(),
            threshold: THRESHOLD,
            attach: "native".to_owned(),
            states_rates: true,
            configuration: toml::Table::new(),
        };
        let share = dedicated.clone().sharing(100);
        [
            (ECMP_FLOW, Scheme::EcmpFlow),
            (DEDICATED, Scheme::Splitter(dedicated)),
            (SHARE, Scheme::Splitter(share)),
        ]
        .map(|(name, scheme)| Mode {
            name: name.to_owned(),
            scheme,
        })
    }

    /// Measures a cell in all modes.
    ///
    /// # Errors
    /// The first failure. Nothing of the testbed remains.
    pub fn measure(&self, cell: &Cell, cancel: &CancellationToken) -> Result<Vec<Row>, RigError> {
        let modes = self.modes();
        let (repetitions, counting) = if self.quick {
            (3, QUICK_COUNTING)
        } else {
            (10, COUNTING)
        };
        let mut runs = vec![Vec::new(); modes.len()];
        for repetition in 0..repetitions {
            for turn in 0..modes.len() {
                let index = (repetition + turn) % modes.len();
                let rig = Rig::build(cell)?;
                let seed = repetition as u64;
                runs[index].push(rig.run(&modes[index].scheme, counting, seed, cancel)?);
            }
        }
        let rows = modes.iter().zip(&runs);
        Ok(rows.map(|(mode, runs)| Row::of(cell, mode, runs)).collect())
    }
}

/// What one run of a mode came to.
#[derive(Clone, Debug, Default)]
struct Run {
    sum_mbit: f64,
    short_ms: Vec<f64>,
    paws_estab: u64,
    retransmits: u64,
}

impl Row {
    fn of(cell: &Cell, mode: &Mode, runs: &[Run]) -> Self {
        let sums = runs.iter().map(|it| it.sum_mbit);
        let short_ms: Vec<f64> = runs.iter().flat_map(|it| it.short_ms.clone()).collect();
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        Self {
            case: cell.case(),
            parallel: cell.parallel,
            rtt_ms: cell.round_trip_ms,
            direction: cell.direction,
            mode: mode.name.clone(),
            sum_mbit: mean(&sums.clone().collect::<Vec<_>>()),
            sum_mbit_min: sums.fold(f64::INFINITY, f64::min),
            shaped_mbit: cell.rates_mbit.iter().copied().map(f64::from).sum(),
            short_mean_ms: (!short_ms.is_empty()).then(|| mean(&short_ms)),
            paws_estab: runs.iter().map(|it| it.paws_estab).sum(),
            retransmits: runs.iter().map(|it| it.retransmits).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(quick: bool, cell: Option<&str>) -> Options {
        Options {
            splitter: PathBuf::new(),
            parallel: vec![1, 2, 4, 8],
            round_trips_ms: vec![0.2, 22.0],
            cell: cell.map(str::to_owned),
            quick,
        }
    }

    #[test]
    fn cells_have_names_of_their_own_and_are_found_by_them() {
        let cells = options(false, None).cells();
        let mut names: Vec<_> = cells.iter().map(Cell::to_string).collect();
        names.dedup();
        assert_eq!(names.len(), 3 * 2 * 2 * 4 * 2);
        let one = options(false, Some("100+40-mix-p2-22ms-down")).cells();
        assert_eq!(one.len(), 1);
        assert!(one[0].beside_short_flows && one[0].parallel == 2);
    }

    #[test]
    fn quick_run_takes_ten_minutes_at_the_most() {
        let cells = options(true, None).cells();
        let a_run = SETTLING + QUICK_COUNTING + Duration::from_secs(3);
        let all = a_run * 3 * 3 * cells.len() as u32;
        assert!(all <= Duration::from_secs(600), "{} cells", cells.len());
        assert!(cells.iter().any(|it| it.direction == Direction::Down));
    }

    #[test]
    fn row_has_the_mean_and_the_least_of_all_repetitions() {
        let cell = &options(false, None).cells()[0];
        let mode = &options(false, None).modes()[2];
        let run = |sum_mbit| Run {
            sum_mbit,
            retransmits: 3,
            ..Run::default()
        };
        let row = Row::of(cell, mode, &[run(40.0), run(20.0)]);
        assert_eq!((row.sum_mbit, row.sum_mbit_min), (30.0, 20.0));
        assert_eq!((row.retransmits, row.short_mean_ms), (6, None));
        assert_eq!((row.mode.as_str(), row.case.as_str()), ("share", "20+20"));
    }
}
