//! What may go wrong at a host: its clock, a new start, its silence.

use std::time::Duration;

use cloudburst_proto::Reason;

use super::mixed;
use crate::simulation::{
    path::{MILLI, SECOND},
    run::run,
    scenario::Fault,
};

#[test]
fn clock_jump() {
    for host in [0, 1] {
        let mut scenario = mixed(13);
        scenario.faults = vec![
            (
                200 * MILLI,
                Fault::ClockForward {
                    host,
                    ns: 3 * SECOND,
                },
            ),
            (
                900 * MILLI,
                Fault::ClockBack {
                    host,
                    ns: 5 * MILLI,
                },
            ),
            (
                1_300 * MILLI,
                Fault::ClockForward {
                    host,
                    ns: 50 * MILLI,
                },
            ),
        ];
        run(scenario).all_delivered();
    }
}

/// As after a laptop's sleep.
#[test]
fn clock_jump_over_a_lifetime() {
    for host in [0, 1] {
        let ns = 3_600 * SECOND;
        let outcome = run(mixed(14).fault(1_001 * MILLI, Fault::ClockForward { host, ns }));
        let later = outcome
            .records()
            .messages
            .iter()
            .filter(|message| message.accepted > SECOND + MILLI);
        for message in later {
            assert!(message.receipt().is_some(), "{message:?}");
        }
        let mut reasons = outcome.reasons().into_iter();
        assert!(reasons.all(|reason| host == 0 && reason == Reason::TimedOut));
    }
}

#[test]
fn peer_restart() {
    for host in [0, 1] {
        let fault = Fault::Restart {
            host,
            same_seed: false,
        };
        let outcome = run(mixed(16).fault(700 * MILLI, fault));
        let messages = outcome.records().messages.iter();
        let later = messages.filter(|message| message.accepted > 720 * MILLI);
        for message in later {
            assert!(message.receipt().is_some(), "{message:?}");
        }
    }
}

/// The seed must be a new one at each start. Even so no message is ever made
/// up of two.
#[test]
fn peer_restart_with_id_reuse() {
    for host in [0, 1] {
        for seed in 0..20 {
            let fault = Fault::Restart {
                host,
                same_seed: true,
            };
            let scenario = mixed(1_600 + seed).lifetime(Duration::from_secs(2));
            run(scenario.fault((603 + seed) * MILLI, fault));
        }
    }
}

#[test]
fn never_stops() {
    let fault = Fault::Mute {
        host: 1,
        mute: true,
    };
    let scenario = mixed(20).lifetime(Duration::from_secs(2)).fault(0, fault);
    let outcome = run(scenario);
    assert_eq!(outcome.delivered(), 0);
    let known = [Reason::TimedOut, Reason::BudgetSpent];
    assert!(
        outcome
            .reasons()
            .iter()
            .all(|reason| known.contains(reason))
    );
}

#[test]
fn stops_to_answer_and_begins_again() {
    let scenario = mixed(21)
        .fault(
            300 * MILLI,
            Fault::Mute {
                host: 1,
                mute: true,
            },
        )
        .fault(
            1_500 * MILLI,
            Fault::Mute {
                host: 1,
                mute: false,
            },
        );
    run(scenario).all_delivered();
}

#[test]
fn unreachable() {
    let host = 1;
    let unreachable = true;
    let outcome = run(mixed(22).fault(0, Fault::Unreachable { host, unreachable }));
    assert_eq!(outcome.delivered(), 0);
    for message in &outcome.records().messages {
        let reason = message.undelivered().map(|failure| failure.reason);
        assert_eq!(reason, Some(Reason::Unreachable));
        let took = message.ended - message.accepted;
        assert!(took < SECOND, "routers said so at once; it took {took} ns");
    }
}

/// A message that comes while the other end is being restarted.
#[test]
fn unreachable_for_a_moment() {
    let (host, unreachable) = (1, false);
    let scenario = mixed(23)
        .fault(
            300 * MILLI,
            Fault::Unreachable {
                host,
                unreachable: true,
            },
        )
        .fault(310 * MILLI, Fault::Unreachable { host, unreachable });
    let outcome = run(scenario);
    let messages = outcome.records().messages.iter();
    for message in messages.filter(|message| message.accepted > 350 * MILLI) {
        assert!(message.receipt().is_some(), "{message:?}");
    }
}

#[test]
fn a_socket_goes() {
    let scenario = mixed(24)
        .fault(500 * MILLI, Fault::SocketGone { host: 0, socket: 2 })
        .fault(900 * MILLI, Fault::SocketGone { host: 0, socket: 0 });
    run(scenario).all_delivered();
}
