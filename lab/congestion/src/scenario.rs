//! Scenarios: what is measured in each, and what must hold.

mod beside;
mod bound;
mod changes;
mod crowds;

use std::collections::BTreeMap;

use crate::{
    cell::{Cell, Scenario},
    flow::{Flow, Load},
    link::Link,
    ours::Ours,
    outcome::{Curves, Outcome},
    random::Random,
    series::{Counts, Series},
    stream::Stream,
    world::World,
};

const SECOND: u64 = 1_000_000_000;
/// A message of a backlog.
const MESSAGE_BYTES: usize = 100_000;
/// Messages of an application, §V of the paper.
pub(crate) const MESSAGE_SIZES: [usize; 3] = [5_000, 20_000, 93_000];

/// Figures by name; shares are of 1.
pub(crate) type Figures = BTreeMap<String, f64>;

/// Measures a cell.
pub(crate) fn measure(cell: &Cell, is_quick: bool) -> Outcome {
    match cell.scenario {
        Scenario::Alone => beside::alone(cell, is_quick),
        Scenario::Cubic => beside::cubic(cell, is_quick),
        Scenario::Messages => beside::messages(cell, is_quick),
        Scenario::Shared => beside::shared(cell, is_quick),
        Scenario::Short => crowds::short(cell, is_quick),
        Scenario::Marked => beside::marked(cell, is_quick),
        Scenario::Ecn => beside::ecn(cell, is_quick),
        Scenario::Twenty => crowds::twenty(cell, is_quick),
        Scenario::Incast => crowds::incast(cell, is_quick),
        Scenario::Drop => changes::drop(cell),
        Scenario::Silent => changes::silent(cell),
        Scenario::Loss90 => changes::spell(cell, 0.9),
        Scenario::Blackout => changes::spell(cell, 1.0),
    }
}

/// Runs flows through the bottleneck of a cell for so long.
fn world(cell: &Cell, duration: u64, flows: Vec<Box<dyn Flow>>) -> World {
    let series = Series::new(duration, flows.len());
    let link = Link::new(cell.bits_per_s(), cell.queue_bytes(), series);
    let link = match cell.scenario.is_marked() {
        true => link.with_codel(),
        false => link,
    };
    World::new(link, cell.rtt_ns(), cell.seed, flows)
}

fn run(cell: &Cell, duration: u64, flows: Vec<Box<dyn Flow>>) -> World {
    let mut world = world(cell, duration, flows);
    world.run(duration);
    world
}

/// Always enough to send for queue and path, and never more than goes through within the time
/// that a message is tried for.
fn backlog(cell: &Cell) -> Load {
    let in_flight = 1.5 * (cell.bdp_bytes() + cell.queue_bytes() as f64);
    Load::Backlog {
        message_bytes: MESSAGE_BYTES,
        ahead: 3 * MESSAGE_BYTES + in_flight as usize,
    }
}

/// Messages at a share of the link.
fn messages(cell: &Cell, share: f64, duration: u64) -> Load {
    let mut random = Random::new(3);
    let mean = MESSAGE_SIZES.iter().sum::<usize>() as f64 / MESSAGE_SIZES.len() as f64;
    let gap_ns = mean * 8e9 / (cell.bits_per_s() * share);
    let mut at = 0.0;
    let mut list = Vec::new();
    while (at as u64) < duration {
        at += random.exponential() * gap_ns;
        list.push((at as u64, random.pick(&MESSAGE_SIZES)));
    }
    Load::Messages(list)
}

fn ours(cell: &Cell, flow: usize, load: Load) -> Box<dyn Flow> {
    Box::new(Ours::new(flow, load, cell.paths))
}

/// Cubic as TCP sends: what the window allows leaves at once.
fn tcp(flow: usize, load: Load) -> Box<dyn Flow> {
    Box::new(Stream::new(flow, load, false))
}

/// The same, with marks heeded (ECN).
fn tcp_with_ecn(flow: usize, load: Load) -> Box<dyn Flow> {
    Box::new(Stream::new(flow, load, false).with_ecn())
}

/// Cubic as QUIC sends: paced.
fn quic(flow: usize, load: Load) -> Box<dyn Flow> {
    Box::new(Stream::new(flow, load, true))
}

/// Bytes of a flow as a share of what the link carries in a span of time.
fn share(cell: &Cell, bytes: u64, from: u64, to: u64) -> f64 {
    bytes as f64 * 8e9 / (cell.bits_per_s() * (to - from) as f64)
}

/// What of a flow went through the bottleneck, as a share of the link.
fn through(cell: &Cell, world: &World, flow: usize, from: u64, to: u64) -> f64 {
    let counts: Counts = world.link.series.total(flow, from..to);
    share(cell, counts.through_bytes, from, to)
}

pub(crate) fn figures<const N: usize>(list: [(&str, f64); N]) -> Figures {
    list.into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// Rates of the flows and the queue over time.
fn curves(world: &World, names: &[&str]) -> Curves {
    let series = &world.link.series;
    let rates = names.iter().enumerate();
    Curves {
        rates: rates
            .map(|(flow, name)| ((*name).to_owned(), series.rate(flow)))
            .collect(),
        queue: series.queue(),
    }
}

/// Jain's index of rates: 1 if all are the same.
pub(crate) fn jain(rates: &[f64]) -> f64 {
    let squares: f64 = rates.iter().map(|it| it * it).sum();
    rates.iter().sum::<f64>().powi(2) / (rates.len() as f64 * squares)
}

pub(crate) fn percentile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    let at = (last as f64 * share).round() as usize;
    values.get(at).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::SEED;

    #[track_caller]
    fn holds(scenario: Scenario, cells: &[(f64, f64, f64)]) {
        for &(rate_mbit, rtt_ms, queue_bdp) in cells {
            let cell = Cell {
                scenario,
                rate_mbit,
                rtt_ms,
                queue_bdp,
                seed: SEED,
                paths: 1,
            };
            let outcome = measure(&cell, true);
            assert!(
                outcome.holds,
                "{cell}: {:?}, {}",
                outcome.ours, outcome.bound
            );
        }
    }

    #[test]
    fn a_sender_alone_loses_little_and_fills_the_link() {
        let cells = [
            (1.0, 1.0, 1.0),
            (1.0, 50.0, 1.0),
            (10.0, 50.0, 0.25),
            (10.0, 50.0, 4.0),
            (100.0, 50.0, 0.25),
        ];
        holds(Scenario::Alone, &cells);
    }

    #[test]
    fn cubic_keeps_its_share_beside_us() {
        holds(Scenario::Cubic, &[(10.0, 50.0, 0.25), (10.0, 50.0, 1.0)]);
        holds(Scenario::Messages, &[(10.0, 10.0, 1.0)]);
        holds(Scenario::Shared, &[(100.0, 10.0, 1.0)]);
    }

    #[test]
    fn a_link_that_changes_is_followed() {
        holds(Scenario::Drop, &[(10.0, 10.0, 1.0)]);
    }

    #[test]
    fn queue_that_marks_stays_short_and_drops_nothing() {
        holds(Scenario::Marked, &[(10.0, 50.0, 4.0)]);
    }

    #[test]
    fn queue_that_marks_is_shared_with_who_heeds_marks() {
        holds(Scenario::Ecn, &[(10.0, 50.0, 4.0)]);
    }

    #[test]
    fn nobody_who_is_silent_is_sent_much() {
        holds(Scenario::Silent, &[(10.0, 50.0, 1.0)]);
        holds(Scenario::Blackout, &[(10.0, 50.0, 1.0)]);
        holds(Scenario::Loss90, &[(10.0, 50.0, 1.0)]);
    }

    #[test]
    fn the_same_cell_comes_out_the_same() {
        let cell = Cell {
            scenario: Scenario::Cubic,
            rate_mbit: 1.0,
            rtt_ms: 50.0,
            queue_bdp: 1.0,
            seed: SEED,
            paths: 1,
        };
        let [one, other] = [0; 2].map(|_| measure(&cell, true));
        assert_eq!((one.ours, one.peer), (other.ours, other.peer));
    }
}
