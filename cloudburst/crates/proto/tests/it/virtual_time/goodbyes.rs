//! Messages that are cancelled and endpoints that say goodbye, where datagrams are lost, overtaken and
//! doubled.
//!
//! Laws that hold in any world are checked as it runs: each message has one end, what is cancelled is
//! reported as cancelled or delivered and never both, nothing is handed over twice, and when all is over
//! nobody keeps memory.

use cloudburst_proto::MessageKind;

use crate::simulation::{
    messages::Fate,
    path::{Impairments, Loss, MILLI, SECOND},
    random::Random,
    run::run,
    scenario::{Fault, Scenario, SendPlan},
};

/// Worlds in each run of the tests.
const SEEDS: std::ops::Range<u64> = 0..200;

fn impairments(random: &mut Random) -> Impairments {
    let losses = [0.0, 0.02, 0.1, 0.3];
    Impairments {
        loss: Loss::Each(random.pick(&losses)),
        duplicate: random.pick(&[0.0, 0.1, 0.5]),
        reorder: random.pick(&[0.0, 0.1, 0.5]),
        reorder_ns: random.pick(&[2, 20, 200]) * MILLI,
        ..Impairments::NONE
    }
}

/// Messages and requests both ways, each of which may be cancelled, and hosts that close among them.
fn scenario(seed: u64) -> Scenario {
    let random = &mut Random::of(seed, 50);
    let mut scenario = Scenario::plain(seed);
    scenario = match random.below(3) {
        0 => scenario,
        1 => scenario.keyed(3),
        _ => scenario.with_key_pairs(),
    };
    scenario = scenario.impaired(impairments(random));
    for _ in 0..random.between(5, 40) {
        let from = random.below(2) as usize;
        let bytes = random.pick(&[1, 900, 5_000, 40_000, 200_000]);
        scenario.sends.push(SendPlan {
            from,
            to: 1 - from,
            back: random.chance(0.5),
            is_request: random.chance(0.3),
            is_idempotent: random.chance(0.3),
            cancel_after: random.chance(0.4).then(|| random.below(40 * MILLI)),
            ..SendPlan::new(random.below(3 * SECOND), bytes)
        });
    }
    scenario.sends.sort_by_key(|send| send.at);
    for _ in 0..random.between(1, 3) {
        let host = random.below(2) as usize;
        // In the middle of messages, if there are any.
        let send = random.below(scenario.sends.len() as u64) as usize;
        let at = scenario.sends[send].at + random.below(30 * MILLI);
        scenario = scenario.fault(at, Fault::Goodbye { host });
    }
    scenario.faults.sort_by_key(|(at, _)| *at);
    scenario
}

#[test]
fn goodbyes_and_cancels_among_faults_leave_one_end_of_everything_and_no_memory() {
    let (mut failed, mut ends) = (Vec::new(), [0_usize; 4]);
    for seed in SEEDS {
        let outcome = std::panic::catch_unwind(|| run(scenario(seed)));
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(panic) => {
                let literal = || panic.downcast_ref::<&str>().copied();
                let text = panic.downcast_ref::<String>().map(String::as_str);
                failed.push(format!("{seed}: {}", text.or_else(literal).unwrap_or("?")));
                assert!(failed.len() < 10, "{}", failed.join("\n"));
                continue;
            }
        };
        for message in &outcome.records().messages {
            ends[match message.fate {
                Some(Fate::Delivered(_)) => 0,
                Some(Fate::Undelivered(_)) if message.cancelled => 1,
                Some(Fate::Undelivered(_)) => 2,
                _ => 3,
            }] += 1;
            let is_reply = matches!(message.kind, MessageKind::Reply { .. });
            assert!(!is_reply || !message.cancelled, "replies are not cancelled");
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    // Delivered, cancelled, abandoned, and gone with their sender.
    assert!(ends.iter().all(|count| *count > 100), "{ends:?}");
}
