//! Ways that were dead are found again, and cost little until then.

use std::time::Duration;

use crate::simulation::{
    path::{Impairments, MILLI, Path, SECOND},
    scenario::{Scenario, SendPlan},
    world::World,
};

/// The one path that works, if not from the beginning.
const GOOD: usize = 2;

/// Until then it does not, either.
fn works(seed: u64) -> u64 {
    10 * MILLI + seed % 7 * 30 * MILLI
}

/// Messages by four ports over four paths, three of which deliver nothing. The first are so short
/// that not all ways are tried at once.
fn one_of_four(seed: u64) -> Scenario {
    let mut scenario = Scenario::plain(seed);
    scenario.hosts[1].sockets = 1;
    for number in 0..60 {
        let bytes = if number < 5 { 1_500 } else { 20_000 };
        let gap = (8 + seed % 5 * 8) * MILLI;
        scenario.sends.push(SendPlan::new(number * gap, bytes));
    }
    for (number, path) in scenario.paths.iter_mut().enumerate() {
        let until = if number == GOOD {
            works(seed)
        } else {
            900 * SECOND
        };
        path.spell(0, until, Impairments::DEAD);
    }
    scenario
        .configured(|config| config.rotate_ports = false)
        .lifetime(Duration::from_secs(10))
}

/// By then nobody at the other end knows who asks: it answers pings, and keeps no count of what
/// arrives.
#[test]
fn the_way_that_works_is_found_by_its_answers_alone() {
    let mut tried = 0;
    for seed in 0..200 {
        let mut world = World::new(one_of_four(seed));
        let to = world.address(1, 0);
        let mut sockets = 0..world.hosts[0].plan.sockets;
        if !sockets.any(|it| world.network.choose(world.address(0, it), to) == GOOD) {
            continue;
        }
        tried += 1;
        world.run_until(2_500 * MILLI);
        let outcome = world.finish();
        outcome.all_delivered();
        for message in &outcome.records().messages {
            let took = message.ended - message.accepted.max(works(seed));
            let most = if message.accepted > works(seed) + 2 * SECOND {
                50 * MILLI
            } else {
                2 * SECOND
            };
            assert!(took < most, "seed {seed}: {took} ns: {message:?}");
        }
    }
    assert!(tried > 50, "{tried}: other seeds are needed");
}

/// When the path is dead that stays so, the messages to compare are sent, and all is over.
const DEAD_AT: u64 = 10 * SECOND;
const EARLY: core::ops::Range<u64> = 30 * SECOND..130 * SECOND;
const LATE: core::ops::Range<u64> = 1_700 * SECOND..1_800 * SECOND;

/// Messages for half an hour by four ports, one of which at least is of no use for most of it: how long they took
/// on average soon after that, and at the end.
fn beside_a_dead_path(seed: u64) -> Option<[f64; 2]> {
    let mut scenario = Scenario::plain(seed).with_key_pairs();
    scenario = scenario.messages(LATE.end / SECOND * 2, 100_000, SECOND / 2);
    scenario.hosts[1].sockets = 1;
    scenario.paths = vec![Path::new(10_000_000, 30_000, 10 * MILLI); 4];
    scenario.paths[0].spell(DEAD_AT, LATE.end, Impairments::DEAD);
    let mut world = World::new(scenario.configured(|config| config.rotate_ports = false));
    let to = world.address(1, 0);
    let sockets = 0..world.hosts[0].plan.sockets;
    let (dead, good): (Vec<u16>, Vec<u16>) =
        sockets.partition(|it| world.network.choose(world.address(0, *it), to) == 0);
    if dead.is_empty() || good.is_empty() {
        return None;
    }
    world.run_until(LATE.end);
    let outcome = world.finish();
    let messages = &outcome.all_delivered().records().messages;
    Some([EARLY, LATE].map(|when| {
        let took = messages.iter().filter(|it| when.contains(&it.accepted));
        let took: Vec<u64> = took.map(|it| it.ended - it.accepted).collect();
        took.iter().sum::<u64>() as f64 / took.len() as f64 / MILLI as f64
    }))
}

/// Its probes, one each second, go on for as long as it is dead, and nobody tells of them.
#[test]
fn probes_of_a_path_that_stays_dead_take_nothing_of_the_window() {
    let took: Vec<[f64; 2]> = (0..6).filter_map(beside_a_dead_path).collect();
    assert!(took.len() > 2, "{took:?}: other seeds are needed");
    for [early, late] in &took {
        assert!(*late < 1.2 * early, "mean completion in ms: {took:?}");
    }
}
