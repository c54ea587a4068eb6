//! What somebody costs who may not be there.

use std::time::Duration;

use cloudburst_proto::Reason;

use crate::simulation::{
    path::{Impairments, Loss, MILLI, SECOND},
    run::{Outcome, run},
    scenario::{Fault, Scenario, SendPlan},
};

/// Datagrams that somebody of whom nothing is known is sent (RFC 6928), and some attempts more.
const FIRST: u32 = 10 + 4;

/// 12 messages of 79 datagrams or so, one each second.
fn long(seed: u64) -> Scenario {
    let scenario = Scenario::plain(seed).messages(12, 93_000, SECOND);
    scenario.lifetime(Duration::from_millis(800))
}

/// Symbols sent for each message that was abandoned.
fn sent(outcome: &Outcome) -> Vec<u32> {
    let messages = outcome.records().messages.iter();
    let failures = messages.filter_map(|message| message.undelivered());
    failures.map(|failure| failure.sent).collect()
}

#[test]
fn who_is_silent_is_sent_an_initial_window_only() {
    let fault = Fault::Mute {
        host: 1,
        mute: true,
    };
    let sent = sent(&run(long(1).fault(0, fault)));
    assert_eq!(sent.len(), 12);
    assert!(
        (10..=FIRST).contains(&sent[0]),
        "nothing is known of it yet: {sent:?}"
    );
    assert!(sent[1..].iter().all(|&it| it <= 2), "{sent:?}");
}

#[test]
fn who_is_said_not_to_be_there_is_sent_little() {
    let fault = Fault::Unreachable {
        host: 1,
        unreachable: true,
    };
    let outcome = run(long(2).fault(0, fault));
    let sent = sent(&outcome);
    assert_eq!(outcome.reasons(), [Reason::Unreachable; 12]);
    assert!(sent[1..].iter().all(|&it| it <= 2), "{sent:?}");
}

/// A port that nobody listens at, of a host that says so: as soon with 64 ports as with one, with keys
/// and without.
#[test]
fn a_closed_port_is_told_in_100_ms_at_any_number_of_ports() {
    let fault = Fault::Unreachable {
        host: 1,
        unreachable: true,
    };
    for (ports, has_key_pairs) in [1, 4, 16, 64]
        .into_iter()
        .flat_map(|it| [(it, false), (it, true)])
    {
        let mut scenario = Scenario::plain(3).messages(1, 300_000, 0);
        scenario = scenario.fault(0, fault.clone());
        scenario.has_key_pairs = has_key_pairs;
        (scenario.hosts[0].sockets, scenario.four_tuples) = (ports, ports.into());
        scenario.hosts[1].sockets = 1;
        let outcome = run(scenario);
        let message = &outcome.records().messages[0];
        assert_eq!(outcome.reasons(), [Reason::Unreachable], "{ports} ports");
        let took = message.ended - message.accepted;
        assert!(took <= 100 * MILLI, "{ports} ports: {took} ns");
    }
}

/// Messages of a minute, the first of which has not ended.
#[test]
fn a_second_of_silence_is_enough() {
    let fault = Fault::Mute {
        host: 1,
        mute: true,
    };
    let scenario = Scenario::plain(3).messages(12, 93_000, 200 * MILLI);
    let scenario = scenario.lifetime(Duration::from_secs(10)).fault(0, fault);
    let sent = sent(&run(scenario));
    assert!(sent.iter().sum::<u32>() <= FIRST + 12, "{sent:?}");
}

#[test]
fn all_goes_on_with_the_first_word() {
    for lifetime in [800, 10_000] {
        let mute = |mute| Fault::Mute { host: 1, mute };
        let scenario = Scenario::plain(4)
            .messages(30, 93_000, 300 * MILLI)
            .lifetime(Duration::from_millis(lifetime))
            .fault(0, mute(true))
            .fault(5 * SECOND, mute(false));
        let outcome = run(scenario);
        let later = outcome.records().messages.iter();
        let later = later.filter(|it| it.accepted > 5 * SECOND - lifetime / 2 * MILLI);
        for message in later {
            let receipt = message.receipt();
            assert!(receipt.is_some(), "{message:?}");
            if message.accepted > 6 * SECOND {
                let took = message.ended - message.accepted;
                assert!(took < 100 * MILLI, "{took} ns: {message:?}");
            }
        }
    }
}

/// It answers by another session, and has forgotten ours.
#[test]
fn who_has_begun_anew_is_found_again() {
    for key in [None, Some(2)] {
        let restart = Fault::Restart {
            host: 1,
            same_seed: false,
        };
        let mute = |mute| Fault::Mute { host: 1, mute };
        let mut scenario = long(5)
            .fault(2_500 * MILLI, mute(true))
            .fault(6_400 * MILLI, restart)
            .fault(6_500 * MILLI, mute(false));
        scenario.hosts.iter_mut().for_each(|host| host.key = key);
        let outcome = run(scenario);
        for (number, message) in outcome.records().messages.iter().enumerate() {
            let is_lost = (3..=6).contains(&number);
            assert_eq!(
                message.receipt().is_none(),
                is_lost,
                "{number}: {message:?}"
            );
        }
    }
}

/// Long pauses, losses at the end of each conversation, and cancelled messages, which are not answered.
#[test]
fn who_answers_now_and_then_gets_everything() {
    for pause in [50, 20_000] {
        let mut scenario = Scenario::plain(6).impaired(Impairments::losing(Loss::Each(0.2)));
        for number in 0..60 {
            let at = number * pause * MILLI;
            scenario.sends.push(SendPlan::new(at, 20_000));
            let cancelled = SendPlan {
                cancel_after: Some(MILLI / 2),
                ..SendPlan::new(at + 40 * MILLI, 93_000)
            };
            scenario.sends.push(cancelled);
        }
        scenario.sends.sort_by_key(|send| send.at);
        let outcome = run(scenario);
        let mut messages = outcome.records().messages.iter();
        let late = messages.find(|it| it.bytes == 20_000 && it.arrived.is_none());
        assert!(late.is_none(), "{late:?}");
    }
}

/// Both have asked the other something. The first takes the peer for gone at 2 s, hears one of its pings at
/// 8 s, and gets another address at 20 s; replies come at 50 s and later.
#[test]
fn who_waits_for_a_reply_and_hears_the_peer_again_can_be_replied_to() {
    let mute = |mute| Fault::Mute { host: 1, mute };
    let mut scenario = Scenario::plain(6)
        .keyed(1)
        .lifetime(Duration::from_millis(800))
        .fault(SECOND, mute(true))
        .fault(5 * SECOND, mute(false))
        .fault(20 * SECOND, Fault::Rebind { host: 0 });
    scenario.hosts[1].think_ns = 50 * SECOND;
    scenario.hosts[0].think_ns = 52 * SECOND;
    let request = |from, at| SendPlan {
        from,
        to: 1 - from,
        is_request: true,
        back: from == 1,
        ..SendPlan::new(at, 1_000)
    };
    let lost = SendPlan::new(1_100 * MILLI, 1_000);
    scenario.sends = vec![request(0, 0), request(1, 500 * MILLI), lost];
    let outcome = run(scenario);
    let ends = outcome.records().messages.iter();
    let ends: Vec<_> = ends.map(|it| (it.from, it.receipt().is_some())).collect();
    let both_ways = [(0, true), (1, true)];
    assert_eq!(ends[..2], both_ways, "requests");
    assert_eq!(ends[2], (0, false), "a message to who is silent");
    assert_eq!(ends[3..], [(1, true), (0, true)], "replies");
}
