//! Ways that were dead are found again.

use std::time::Duration;

use crate::simulation::{
    path::{Impairments, MILLI, SECOND},
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
