//! A receiver that is restarted: what becomes of the messages that are under way to it.

use core::time::Duration;
use std::collections::BTreeSet;

use super::{
    super::*,
    sealed_tests::{
        SETTLED, completion, hand, key_pairs, pair_of, received, restarted, shared_key,
    },
    tests::{Pair, address, message},
};

fn both_kinds() -> [[TransportConfig; 2]; 2] {
    [key_pairs(), [shared_key(3), shared_key(3)]]
}

/// How a message ended for its sender.
fn ending(pair: &mut Pair) -> Result<(), Reason> {
    let events = pair.events(0);
    let endings = events.iter().filter_map(|event| match event {
        Event::Delivered { .. } => Some(Ok(())),
        Event::Undelivered { failure, .. } => Some(Err(failure.reason)),
        _ => None,
    });
    let [ending] = endings.collect::<Vec<_>>()[..] else {
        panic!("{events:?}");
    };
    ending
}

/// It has been running for longer than first flights are doubted.
fn settle(pair: &mut Pair) {
    pair.run(SETTLED, |_, _| false);
    pair.now = pair.now + SETTLED;
}

/// A message that has arrived, so that both know each other.
fn get_to_know(pair: &mut Pair, peer: PeerId) {
    pair.send(peer, 5_000);
    pair.run(Duration::from_secs(1), |_, _| false);
    completion(pair);
    assert_eq!(received(pair, 1), 1);
}

fn send(pair: &mut Pair, peer: PeerId, bytes: usize, options: SendOptions) {
    let kind = (MessageKind::Message, options);
    let now = pair.now;
    let sent = pair.ends[0].send_with(now, peer, kind, &message(bytes));
    sent.unwrap();
}

/// All that was sent since its start, and all of which too little was sent before.
#[test]
fn what_was_not_handed_over_before_a_restart_is_delivered_once_after_it() {
    for configs in both_kinds() {
        let (mut pair, peer) = pair_of(&configs);
        get_to_know(&mut pair, peer);
        for restart in 0..10 {
            // It is gone for half a second.
            let is_begun = restart >= 5;
            if is_begun {
                pair.send(peer, 1_000_000);
                pair.run(Duration::from_millis(1), |_, _| true);
            }
            // Whoever waits for an answer sends more, until it was enough.
            pair.now = pair.now + Duration::from_millis(500);
            pair.ends[1] = restarted(&pair, &configs[1], restart);
            pair.now = pair.now + Duration::from_millis(10);
            if !is_begun {
                pair.send(peer, 20_000);
            }
            pair.run(Duration::from_secs(5), |_, _| false);
            assert_eq!(received(&mut pair, 1), 1, "restart {restart}");
            assert_eq!(ending(&mut pair), Ok(()), "restart {restart}");
        }
    }
}

/// How a message ends whose receiver is restarted after so many of its datagrams, which says nothing
/// before: how often it was handed over before and after, and what its sender hears.
fn interrupted(
    configs: &[TransportConfig; 2],
    (is_known, last): (bool, usize),
    options: SendOptions,
) -> (usize, usize, Result<(), Reason>) {
    let (mut pair, peer) = pair_of(configs);
    settle(&mut pair);
    if is_known {
        get_to_know(&mut pair, peer);
    }
    send(&mut pair, peer, 5_000, options);
    let mut number = 0;
    pair.run(Duration::from_millis(10), |from, _| {
        number += usize::from(from == 0);
        from == 1 || number > last
    });
    let before = received(&mut pair, 1);
    pair.ends[1] = restarted(&pair, &configs[1], 7);
    pair.run(Duration::from_secs(5), |_, _| false);
    let after = received(&mut pair, 1);
    (before, after, ending(&mut pair))
}

/// It is not handed over twice, whichever datagram of the first process was the last to arrive; also
/// where nothing was ever heard of that.
#[test]
fn what_a_receiver_may_have_handed_over_before_its_restart_is_unknown() {
    let mut endings = BTreeSet::new();
    for course in [false, true].map(|known| (0..12).map(move |last| (known, last))) {
        for (course, configs) in course.flat_map(|it| both_kinds().map(|configs| (it, configs))) {
            let (before, after, ending) = interrupted(&configs, course, SendOptions::new());
            assert!(before + after <= 1, "handed over twice: {course:?}");
            match ending {
                Ok(()) => assert_eq!(after, 1, "{course:?}"),
                Err(reason) => assert_eq!((reason, after), (Reason::Unknown, 0), "{course:?}"),
            }
            endings.insert((before, ending.is_ok()));
        }
    }
    assert!(endings.contains(&(1, false)) && !endings.contains(&(1, true)));
}

#[test]
fn an_idempotent_message_is_sent_again_after_a_restart() {
    let mut twice = 0;
    for course in [false, true].map(|known| (0..12).map(move |last| (known, last))) {
        for (course, configs) in course.flat_map(|it| both_kinds().map(|configs| (it, configs))) {
            let options = SendOptions::new().with_idempotent(true);
            let (before, after, ending) = interrupted(&configs, course, options);
            assert_eq!((after, ending), (1, Ok(())), "{course:?}");
            twice += before;
        }
    }
    assert!(twice > 0);
}

/// Who holds an offer back makes it no proof that its message is new: the token in it says since when
/// the receiver has been running.
#[test]
fn an_offer_that_is_held_back_brings_nothing_that_was_taken_before() {
    for configs in both_kinds() {
        for held_ms in [0, 1, 10, 100, 1_000, 4_000] {
            let (mut pair, peer) = pair_of(&configs);
            settle(&mut pair);
            pair.send(peer, 900);
            // It is handed over, and nothing comes back.
            pair.run(Duration::from_millis(2), |from, _| from == 1);
            assert_eq!(received(&mut pair, 1), 1);
            pair.ends[1] = restarted(&pair, &configs[1], 7);
            // What goes after the retry: offers with its token.
            let (mut is_asked, mut held) = (false, Vec::new());
            pair.run(Duration::from_millis(400), |from, datagram| {
                is_asked |= from == 1;
                if is_asked && from == 0 {
                    held.push(datagram.to_vec());
                }
                is_asked && from == 0
            });
            pair.now = pair.now + Duration::from_millis(held_ms);
            hand(&mut pair, 1, address(0, 0), &held);
            pair.run(Duration::from_secs(12), |_, _| false);
            assert_eq!(received(&mut pair, 1), 0, "held back for {held_ms} ms");
            assert_eq!(ending(&mut pair), Err(Reason::Unknown), "{held_ms} ms");
        }
    }
}

/// A server that has just been installed: for 10 s after its start a first contact takes a round trip
/// more, and ends as any other.
#[test]
fn a_first_flight_to_who_has_just_started_is_delivered() {
    for configs in both_kinds() {
        let completions = [2, 20, 200, 2_000, 9_000, 9_900, 10_100, 60_000].map(|age_ms| {
            let (mut pair, peer) = pair_of(&configs);
            pair.now = Time::from_nanos(1_000_000) + Duration::from_millis(age_ms);
            pair.send(peer, 900);
            pair.run(Duration::from_secs(1), |_, _| false);
            assert_eq!(received(&mut pair, 1), 1, "after {age_ms} ms");
            (age_ms, completion(&mut pair).as_millis())
        });
        let first = completions.map(|(age_ms, took)| (age_ms, took > 3));
        let expected = completions.map(|(age_ms, _)| (age_ms, age_ms < 10_000));
        assert_eq!(first, expected, "{completions:?}");
    }
}

/// Where nobody can have run before, nobody can have taken a message before.
#[test]
fn what_was_sent_before_the_start_arrives_where_nobody_ran_before() {
    for [initiator, mut responder] in both_kinds() {
        responder.quiet_before = Duration::from_millis(310);
        let configs = [initiator, responder];
        let (mut pair, peer) = pair_of(&configs);
        pair.send(peer, 900);
        pair.run(Duration::from_millis(300), |_, _| true);
        pair.ends[1] = restarted(&pair, &configs[1], 7);
        pair.run(Duration::from_secs(5), |_, _| false);
        assert_eq!(received(&mut pair, 1), 1);
        assert_eq!(ending(&mut pair), Ok(()));
    }
}
