//! A month of traffic, as it comes: conversations, silence, restarts, other addresses, and clocks
//! that are set.

use crate::simulation::{
    path::{MILLI, SECOND},
    random::Random,
    run::run,
    scenario::{Fault, Scenario, SendPlan},
};

const HOUR: u64 = 3_600 * SECOND;
const DAY: u64 = 24 * HOUR;
const DAYS: u64 = 30;
/// Months in each run of the tests; `CLOUDBURST_MONTHS` says another number.
const SEEDS: u64 = 5;

fn month(seed: u64) -> Scenario {
    let random = &mut Random::of(seed, 98);
    let mut scenario = Scenario::plain(seed);
    // Looking after each path costs the test more time than what goes by it.
    scenario.four_tuples = 4;
    scenario = if seed.is_multiple_of(2) {
        scenario.with_key_pairs()
    } else {
        scenario.keyed(4)
    };
    for day in 0..DAYS {
        let start = day * DAY;
        // An hour or two in which a message is sent every few seconds.
        let busy = start + random.below(20) * HOUR;
        let gap = random.pick(&[5, 13, 40]) * SECOND;
        let count = random.between(20, 80);
        let mut at: Vec<u64> = (0..count).map(|number| busy + number * gap).collect();
        // And some at any time, when all may have been forgotten.
        at.extend((0..random.between(3, 10)).map(|_| start + random.below(DAY)));
        for at in at {
            let mut send = SendPlan::new(at, random.between(1, 5_000) as usize);
            send.is_request = random.chance(0.5);
            scenario.sends.push(send);
        }
        let mut fault = |random: &mut Random, fault| {
            let at = start + random.below(DAY);
            scenario.faults.push((at, fault));
        };
        for host in [0, 1] {
            if random.chance(0.3) {
                let ns = random.pick(&[5, 3_000, 600_000, 7_200_000]) * MILLI;
                fault(random, Fault::ClockForward { host, ns });
            }
            if random.chance(0.3) {
                let ns = random.below(20_000) * MILLI;
                fault(random, Fault::ClockBack { host, ns });
            }
            if random.chance(0.2) {
                let same_seed = false;
                fault(random, Fault::Restart { host, same_seed });
            }
        }
        if random.chance(0.5) {
            fault(random, Fault::Rebind { host: 0 });
        }
    }
    scenario.sends.sort_by_key(|send| send.at);
    scenario.faults.sort_by_key(|(at, _)| *at);
    scenario
}

#[test]
fn traffic_goes_on_for_a_month() {
    let seeds = std::env::var("CLOUDBURST_MONTHS");
    let seeds = seeds.map_or(SEEDS, |number| number.parse().expect("a number"));
    for seed in 0..seeds {
        let scenario = month(seed);
        let faults = scenario.faults.len();
        let outcome = run(scenario);
        let messages = &outcome.records().messages;
        let failed = messages.len() - outcome.delivered();
        // A message under way when an end is restarted, or a clock leaps over its lifetime, may end so.
        assert!(
            failed <= 2 * faults,
            "month {seed}: {failed} of {} messages failed, with {faults} faults",
            messages.len()
        );
    }
}
