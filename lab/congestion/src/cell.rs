//! Cells: a scenario on a bottleneck of some rate, round trip and queue.

use std::fmt;

use clap::ValueEnum;
use serde::Serialize;

/// A queue holds at least so many bytes, however short the round trip.
const LEAST_QUEUE_BYTES: f64 = 30_000.0;
/// What chance begins with where nothing else is said.
pub(crate) const SEED: u64 = 7;
/// What a switch holds.
const SWITCH_BYTES: f64 = 100_000.0;

/// A scenario, of which the page on congestion control has the bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scenario {
    /// One sender alone.
    Alone,
    /// Beside one cubic flow.
    Cubic,
    /// Messages at a fifth of the link beside one cubic flow.
    Messages,
    /// Twenty senders.
    Twenty,
    /// Two paths that share the bottleneck with one cubic flow.
    Shared,
    /// The link falls to a tenth and comes back.
    Drop,
    /// A peer that never answers.
    Silent,
    /// Nine of ten datagrams are lost for ten seconds.
    Loss90,
    /// All datagrams are lost for ten seconds.
    Blackout,
    /// Eight senders to one receiver, through 100 kB of switch buffer.
    Incast,
    /// Short TCP flows beside a backlog of messages.
    Short,
    /// One sender alone, through a queue that marks (CoDel, RFC 8289).
    Marked,
    /// Beside one cubic flow that heeds marks, through such a queue.
    Ecn,
}

impl Scenario {
    pub(crate) fn all() -> &'static [Self] {
        Self::value_variants()
    }

    /// Whether it is measured between namespaces, too: their bottleneck is drop-tail.
    pub(crate) fn has_namespaces(self) -> bool {
        !self.is_marked()
    }

    /// Whether its bottleneck has a queue that marks.
    pub(crate) fn is_marked(self) -> bool {
        matches!(self, Self::Marked | Self::Ecn)
    }

    /// Its name on the command line.
    pub(crate) fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// A scenario on one bottleneck.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cell {
    pub(crate) scenario: Scenario,
    pub(crate) rate_mbit: f64,
    pub(crate) rtt_ms: f64,
    /// Length of the queue, in products of rate and round trip.
    pub(crate) queue_bdp: f64,
    /// What chance begins with.
    pub(crate) seed: u64,
    /// Paths of each of our senders, all through the bottleneck.
    pub(crate) paths: u16,
}

impl fmt::Display for Cell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.scenario.name();
        let Self {
            rate_mbit,
            rtt_ms,
            queue_bdp,
            ..
        } = self;
        write!(formatter, "{name}-{rate_mbit}-{rtt_ms}-{queue_bdp}")
    }
}

impl Cell {
    /// Incast through a switch's buffer, whatever rate and round trip.
    pub(crate) fn incast(rate_mbit: f64, rtt_ms: f64) -> Self {
        Self {
            scenario: Scenario::Incast,
            rate_mbit,
            rtt_ms,
            queue_bdp: SWITCH_BYTES * 8e-3 / (rate_mbit * rtt_ms),
            seed: SEED,
            paths: 1,
        }
    }

    pub(crate) fn bits_per_s(&self) -> f64 {
        self.rate_mbit * 1e6
    }

    pub(crate) fn bdp_bytes(&self) -> f64 {
        self.bits_per_s() / 8.0 * self.rtt_ms / 1e3
    }

    pub(crate) fn queue_bytes(&self) -> usize {
        (self.queue_bdp * self.bdp_bytes()).max(LEAST_QUEUE_BYTES) as usize
    }

    pub(crate) fn rtt_ns(&self) -> u64 {
        (self.rtt_ms * 1e6) as u64
    }

    /// So long a sender may take to find its rate: so many seconds or round trips.
    pub(crate) fn settling(&self, seconds: u64, round_trips: u64) -> u64 {
        (seconds * 1_000_000_000).max(round_trips * self.rtt_ns())
    }
}

/// In a rack, and between sites as namespaces have them.
fn incasts(is_quick: bool) -> impl Iterator<Item = Cell> {
    let between_sites = [10.0, 100.0].map(|rate| [10.0, 50.0].map(|rtt| Cell::incast(rate, rtt)));
    let more = between_sites
        .into_iter()
        .flatten()
        .filter(move |_| !is_quick);
    [Cell::incast(1_000.0, 0.2)].into_iter().chain(more)
}

/// All cells, or those of a run of five minutes.
pub(crate) fn cells(is_quick: bool) -> Vec<Cell> {
    let all: (&[f64], &[f64], &[f64]) = (
        &[1.0, 10.0, 100.0, 1_000.0],
        &[1.0, 10.0, 50.0, 200.0],
        &[0.25, 1.0, 4.0],
    );
    let some: (&[f64], &[f64], &[f64]) = (&[10.0, 100.0], &[10.0, 50.0], &[0.25, 1.0, 4.0]);
    let quick: (&[f64], &[f64], &[f64]) = (&[1.0, 10.0, 100.0], &[1.0, 50.0], &[0.25, 1.0]);
    let few: (&[f64], &[f64], &[f64]) = (&[10.0, 100.0], &[10.0], &[1.0]);
    let mut cells = Vec::new();
    for &scenario in Scenario::all() {
        if scenario == Scenario::Incast {
            cells.extend(incasts(is_quick));
            continue;
        }
        let (rates, rtts, queues) = match (scenario, is_quick) {
            (Scenario::Alone | Scenario::Cubic, false) => all,
            (Scenario::Alone | Scenario::Cubic, true) => quick,
            (Scenario::Silent | Scenario::Loss90 | Scenario::Blackout, _) => {
                (&[10.0, 100.0][..], &[1.0, 50.0][..], &[1.0][..])
            }
            (Scenario::Marked | Scenario::Ecn, false) => (some.0, some.1, &[4.0][..]),
            (_, false) => some,
            (_, true) => few,
        };
        for &rate_mbit in rates {
            for &rtt_ms in rtts {
                let one = queues.iter().map(|&queue_bdp| Cell {
                    scenario,
                    rate_mbit,
                    rtt_ms,
                    queue_bdp,
                    seed: SEED,
                    paths: 1,
                });
                cells.extend(one);
            }
        }
    }
    cells
}
