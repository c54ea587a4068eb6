//! What is compared: tunnels, numbers of flows, directions, loss and jitter.

use std::{fmt, time::Duration};

use flow_testbed::parallel::Direction;

/// A tunnel between the two sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tunnel {
    /// What it is shaped to, IP headers included.
    pub(crate) rate_mbit: u32,
    /// The time that a packet takes, one way, without queues.
    pub(crate) delay: Duration,
}

/// The tunnels of a site, the best one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) tunnels: &'static [Tunnel],
}

/// One point of the comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cell {
    pub(crate) case: Case,
    /// Bulk transfers at the same time.
    pub(crate) flows: u32,
    pub(crate) direction: Direction,
    /// The part of the packets that each tunnel loses, in both directions, in percent.
    pub(crate) loss_percent: f64,
    /// How far a packet's delay may lie from that of its tunnel.
    pub(crate) jitter_ms: u32,
    /// The tunnel that carries nothing any more from the middle of the transfer on, by its number.
    pub(crate) cut: Option<u8>,
}

const fn tunnel(rate_mbit: u32, delay_ms: u64) -> Tunnel {
    Tunnel {
        rate_mbit,
        delay: Duration::from_millis(delay_ms),
    }
}

const CASES: [Case; 3] = [
    Case {
        name: "30+8",
        tunnels: &[tunnel(30, 10), tunnel(8, 30)],
    },
    Case {
        name: "20+20",
        tunnels: &[tunnel(20, 10), tunnel(20, 10)],
    },
    Case {
        name: "50+50+20",
        tunnels: &[tunnel(50, 10), tunnel(50, 10), tunnel(20, 10)],
    },
];
/// The first case at about a tenth of its rates: a packet takes ten times as long, and timers are as late as before.
const SLOW: Case = Case {
    name: "3+1",
    tunnels: &[tunnel(3, 10), tunnel(1, 30)],
};
const FLOWS: [u32; 3] = [1, 4, 40];
const LOSSES_PERCENT: [f64; 2] = [0.0, 0.5];
const JITTERS_MS: [u32; 3] = [0, 1, 5];
/// What a quick run measures: the question itself, the same with jitter, and another shape the other way.
const QUICK: [&str; 3] = [
    "30+8-f1-up-loss0-jitter0",
    "30+8-f1-up-loss0-jitter1",
    "20+20-f4-down-loss0-jitter0",
];

impl Case {
    pub(crate) fn sum_mbit(&self) -> u32 {
        self.tunnels.iter().map(|it| it.rate_mbit).sum()
    }
}

impl Cell {
    /// The loss as a fraction, from 0 to 1.
    pub(crate) fn loss(&self) -> f64 {
        self.loss_percent / 100.0
    }
}

/// Named like `30+8-f1-up-loss0.5-jitter1`, and `30+8-f1-up-cut0` where a tunnel is cut.
impl fmt::Display for Cell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (case, direction) = (self.case.name, self.direction.name());
        write!(formatter, "{case}-f{}-{direction}", self.flows)?;
        match self.cut {
            Some(tunnel) => write!(formatter, "-cut{tunnel}"),
            None => write!(
                formatter,
                "-loss{}-jitter{}",
                self.loss_percent, self.jitter_ms
            ),
        }
    }
}

/// Every cell, in the order in which they are measured: what the goals are about first.
pub(crate) fn all() -> Vec<Cell> {
    let mut cells = Vec::new();
    for loss_percent in LOSSES_PERCENT {
        for jitter_ms in JITTERS_MS {
            for case in CASES {
                for flows in FLOWS {
                    for direction in [Direction::Up, Direction::Down] {
                        cells.push(Cell {
                            case,
                            flows,
                            direction,
                            loss_percent,
                            jitter_ms,
                            cut: None,
                        });
                    }
                }
            }
        }
    }
    cells.push(Cell {
        case: SLOW,
        flows: 1,
        direction: Direction::Up,
        loss_percent: 0.0,
        jitter_ms: 0,
        cut: None,
    });
    for case in &CASES[..2] {
        for cut in [Some(0), Some(1)] {
            cells.push(Cell {
                case: *case,
                flows: 1,
                direction: Direction::Up,
                loss_percent: 0.0,
                jitter_ms: 0,
                cut,
            });
        }
    }
    cells
}

/// The cells to measure: those whose name contains `name`, or else all, or few for a quick run.
pub(crate) fn chosen(name: Option<&str>, quick: bool) -> Vec<Cell> {
    let mut cells = all();
    cells.retain(|cell| {
        let own = cell.to_string();
        match name {
            Some(name) => own.contains(name),
            None => !quick || QUICK.contains(&own.as_str()),
        }
    });
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_has_a_name_of_its_own_by_which_it_is_found() {
        let cells = all();
        assert_eq!(cells.len(), 3 * 3 * 2 * 2 * 3 + 1 + 4);
        for cell in cells {
            assert_eq!(chosen(Some(&cell.to_string()), false), [cell]);
        }
    }

    #[test]
    fn quick_run_has_the_cells_that_it_names() {
        let names: Vec<_> = chosen(None, true).iter().map(Cell::to_string).collect();
        assert_eq!(names, [QUICK[0], QUICK[2], QUICK[1]]);
        assert_eq!(chosen(Some("20+20-f1-up-cut1"), true)[0].cut, Some(1));
        // Who names a cell gets that one, quick or not.
        assert_eq!(
            chosen(Some("50+50+20-f40-down-loss0.5-jitter5"), true).len(),
            1
        );
    }

    #[test]
    fn best_tunnel_comes_first() {
        for case in CASES {
            let first = case.tunnels[0];
            for other in case.tunnels {
                assert!(first.rate_mbit >= other.rate_mbit && first.delay <= other.delay);
            }
        }
        assert_eq!(CASES[2].sum_mbit(), 120);
        assert_eq!(all()[54].loss(), 0.005);
    }
}
