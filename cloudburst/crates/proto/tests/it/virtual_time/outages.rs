//! What ends within a message's lifetime loses nothing: cuts of all paths, hosts that are held, address
//! translators that forget.

use cloudburst_proto::{CongestionControl, Reason};

use crate::simulation::{
    path::{Impairments, MILLI, SECOND},
    run::{Outcome, run},
    scenario::{Fault, Scenario, SendPlan},
};

const SEEDS: u64 = 12;

/// Messages of all lengths for 5 s, requests among them, tried for 10 s as is the default.
fn traffic(seed: u64) -> Scenario {
    let lengths = [1, 900, 5_000, 20_000, 93_000, 300_000];
    let mut scenario = Scenario::plain(seed).with_key_pairs();
    for number in 0..100 {
        let jitter = mixed(seed ^ number) % (20 * MILLI);
        let bytes = lengths[number as usize % lengths.len()];
        scenario.sends.push(SendPlan {
            is_request: number % 3 == 0,
            ..SendPlan::new(number * 50 * MILLI + jitter, bytes)
        });
    }
    // One that any outage is in the middle of.
    scenario.sends.push(SendPlan::new(900 * MILLI, 8_000_000));
    scenario.sends.sort_by_key(|send| send.at);
    if seed % 3 == 2 {
        let reserved = CongestionControl::reserved(200_000_000);
        scenario = scenario.configured(|config| config.congestion = reserved);
    }
    scenario
}

fn mixed(seed: u64) -> u64 {
    (seed ^ seed >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
}

fn lost(outcome: &Outcome) -> Vec<String> {
    let messages = outcome.records().messages.iter();
    let lost = messages.filter(|message| message.receipt().is_none());
    lost.map(|message| {
        let sent_at = message.accepted / MILLI;
        let ended = message.ended / MILLI;
        let bytes = message.bytes;
        format!(
            "{bytes} bytes of {sent_at} ms, ended at {ended} ms: {:?}",
            message.undelivered()
        )
    })
    .collect()
}

/// Runs it for all seeds, with an outage that begins one to two seconds after the start.
fn nothing_is_lost(with_outage: impl Fn(Scenario, u64) -> Scenario) {
    let mut failures = Vec::new();
    for seed in 0..SEEDS {
        let begin = SECOND + mixed(seed) % SECOND;
        let outcome = run(with_outage(traffic(seed), begin));
        let lost = lost(&outcome);
        if !lost.is_empty() {
            failures.push(format!("seed {seed}, from {} ms: {lost:#?}", begin / MILLI));
        }
    }
    let failed = failures.len();
    assert!(
        failed == 0,
        "{failed} of {SEEDS} seeds: {}",
        failures.join("\n")
    );
}

#[test]
fn a_cut_of_all_paths_for_three_seconds_loses_nothing() {
    nothing_is_lost(|mut scenario, begin| {
        for path in &mut scenario.paths {
            path.spell(begin, begin + 3 * SECOND, Impairments::DEAD);
        }
        scenario
    });
}

#[test]
fn a_receiver_that_is_held_for_four_seconds_loses_nothing() {
    nothing_is_lost(|scenario, begin| held(scenario, 1, begin));
}

#[test]
fn a_sender_that_is_held_for_four_seconds_loses_nothing() {
    nothing_is_lost(|mut scenario, begin| {
        // Its applications are held with it.
        for send in &mut scenario.sends {
            if (begin..begin + 4 * SECOND).contains(&send.at) {
                send.at = begin + 4 * SECOND + MILLI;
            }
        }
        scenario.sends.sort_by_key(|send| send.at);
        held(scenario, 0, begin)
    });
}

fn held(scenario: Scenario, host: usize, begin: u64) -> Scenario {
    let hold = |held| Fault::Held { host, held };
    scenario
        .fault(begin, hold(true))
        .fault(begin + 4 * SECOND, hold(false))
}

#[test]
fn another_port_of_an_address_translator_in_the_middle_of_transfers_loses_nothing() {
    nothing_is_lost(|scenario, begin| {
        scenario
            .fault(begin, Fault::Rebind { host: 0 })
            .fault(begin + SECOND, Fault::Rebind { host: 0 })
    });
}

/// Its port is closed meanwhile, which the network says. Nothing is abandoned because nobody was there
/// for a moment: of what may have been taken before the sender hears so, and all else is delivered.
#[test]
fn a_peer_that_is_started_again_within_half_a_second_was_not_unreachable() {
    for seed in 0..SEEDS {
        let begin = SECOND + mixed(seed) % SECOND;
        let unreachable = |unreachable| Fault::Unreachable {
            host: 1,
            unreachable,
        };
        let restart = Fault::Restart {
            host: 1,
            same_seed: false,
        };
        let mut scenario = traffic(seed)
            .fault(begin, unreachable(true))
            .fault(begin + 499 * MILLI, restart)
            .fault(begin + 500 * MILLI, unreachable(false));
        for send in scenario.sends.iter_mut().step_by(2) {
            send.is_idempotent = true;
        }
        let outcome = run(scenario);
        for message in &outcome.records().messages {
            let reason = message.undelivered().map(|failure| failure.reason);
            let is_doubtful = reason == Some(Reason::Unknown) && !message.is_idempotent;
            let is_reply = message.from == 1;
            assert!(
                message.receipt().is_some() || is_doubtful || is_reply,
                "seed {seed}: {message:?}"
            );
        }
    }
}
