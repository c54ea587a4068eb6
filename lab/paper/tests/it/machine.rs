//! Algorithm 1, ids that rest, stops that are lost.

use core::time::Duration;
use std::collections::BTreeMap;

use cloudburst_proto::*;
use paper_machine::{Paper, PaperError};

use crate::pair::{Pair, message};
use cloudburst_code::{
    PaperDegree, Schedule,
    wire::{HEADER_BYTES, Header, Row},
};

fn schedules() -> [Schedule; 4] {
    [
        Schedule::Default,
        Schedule::Mds,
        Schedule::Paper(PaperDegree::Fixed),
        Schedule::Paper(PaperDegree::Uniform),
    ]
}

fn received(events: &[Event]) -> Vec<&[u8]> {
    let messages = events.iter().filter_map(|event| match event {
        Event::Received { message, .. } => Some(&message[..]),
        _ => None,
    });
    messages.collect()
}

fn delivered(events: &[Event]) -> usize {
    let all = events.iter();
    all.filter(|event| matches!(event, Event::Delivered { .. }))
        .count()
}

fn is_stop(datagram: &[u8]) -> bool {
    datagram.len() == HEADER_BYTES
}

#[test]
fn message_arrives_in_a_round_trip_and_is_sent_until_the_stop() {
    for schedule in schedules() {
        for bytes in [1, 100, 5_000, 93_440] {
            let mut config = paper_machine::config();
            config.schedule = schedule;
            let (mut pair, peer) = Pair::new(&config, 4);
            let sent = message(bytes);
            pair.ends[0]
                .send(pair.now, peer, MessageKind::Message, &sent)
                .unwrap();
            pair.run(Duration::from_millis(100), |_, _| false);
            assert!(received(&pair.events(1)) == [&sent[..]], "{schedule:?}");
            let events = pair.events(0);
            let [Event::Delivered { receipt, .. }] = &events[..] else {
                panic!("{bytes}: {events:?}");
            };
            assert_eq!(receipt.symbols, bytes.div_ceil(1_460) as u32);
            assert_eq!(receipt.paths, 4);
            assert!(receipt.completion < Duration::from_millis(6), "{receipt:?}");
        }
    }
}

/// Every datagram is a header that this crate's decoder takes, and a symbol.
#[test]
fn datagrams_are_the_bare_header_and_the_symbol() {
    let (mut pair, peer) = Pair::new(&paper_machine::config(), 2);
    pair.send(peer, 5_000);
    let mut stops = 0;
    pair.run(Duration::from_millis(100), |from, datagram| {
        let (header, symbol) = Header::parse(datagram).unwrap();
        assert_eq!((header.block_symbols, header.message_bytes), (4, 5_000));
        assert_eq!(symbol.len(), if from == 0 { 1_250 } else { 0 });
        assert_eq!(header.row == Row::Bits(0), from == 1);
        stops += u32::from(from == 1);
        false
    });
    assert!(stops > 1, "each later symbol is answered");
    let statistics = pair.ends[1].statistics();
    assert_eq!(statistics.stops_sent, u64::from(stops));
    assert_eq!(statistics.refused, Refusals::default());
    assert_eq!(pair.ends[0].statistics().refused, Refusals::default());
}

/// A round takes (1/r) x paths x packet / link (A-C6).
#[test]
fn rounds_keep_the_rate() {
    let mut config = paper_machine::config();
    let reservation = Reservation::new(100_000_000).with_share(0.5);
    config.congestion = CongestionControl::Reserved(reservation);
    let (mut pair, peer) = Pair::new(&config, 5);
    pair.send(peer, 93_440);
    let mut bytes = 0;
    pair.run(Duration::from_millis(40), |_, datagram| {
        bytes += datagram.len();
        true
    });
    // 50 Mbit/s for 40 ms are 250 kB.
    assert!((240_000..280_000).contains(&bytes), "{bytes}");
    let paths: Vec<_> = pair.ends[0].paths(pair.now, peer);
    let sent: Vec<_> = paths.iter().map(|path| path.sent).collect();
    let (least, most) = (sent.iter().min().unwrap(), sent.iter().max().unwrap());
    assert!(most - least <= 1, "{sent:?}");
}

#[test]
fn losses_are_made_up_for() {
    for schedule in schedules() {
        let mut config = paper_machine::config();
        config.schedule = schedule;
        let (mut pair, peer) = Pair::new(&config, 4);
        let mut count = 0;
        for bytes in [100, 5_000, 93_440] {
            pair.send(peer, bytes);
            pair.run(Duration::from_millis(300), |_, _| {
                count += 1;
                count % 3 == 0
            });
            assert_eq!(delivered(&pair.events(0)), 1, "{schedule:?} {bytes}");
            assert!(
                received(&pair.events(1)) == [message(bytes)],
                "{schedule:?}"
            );
        }
    }
}

/// The receiver says stop again for every later symbol, and hands over once (A-C16).
#[test]
fn lost_stops_are_said_again() {
    let (mut pair, peer) = Pair::new(&paper_machine::config(), 4);
    pair.send(peer, 20_000);
    let mut stops = 0;
    pair.run(Duration::from_millis(300), |_, datagram| {
        stops += u32::from(is_stop(datagram));
        is_stop(datagram) && stops <= 25
    });
    assert_eq!(delivered(&pair.events(0)), 1);
    assert_eq!(received(&pair.events(1)).len(), 1);
    let statistics = pair.ends[1].statistics();
    assert!(statistics.stops_sent > 25);
    assert_eq!(statistics.incoming_now, 0);
}

#[test]
fn the_budget_ends_what_no_stop_ends() {
    let (mut pair, peer) = Pair::new(&paper_machine::config(), 4);
    pair.send(peer, 20_000);
    pair.run(Duration::from_secs(2), |_, datagram| is_stop(datagram));
    let events = pair.events(0);
    let [Event::Undelivered { failure, .. }] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(failure.reason, Reason::BudgetSpent);
    assert_eq!((failure.symbols, failure.sent), (14, 8 * 14 + 64));
    assert_eq!(received(&pair.events(1)).len(), 1, "once, all the same");
}

/// All messages are alike, so that nothing but time tells an id's users apart.
#[test]
fn ids_are_used_again_after_a_rest() {
    let (mut pair, peer) = Pair::new(&paper_machine::config(), 4);
    const MESSAGES: usize = 2_000;
    for _ in 0..MESSAGES {
        pair.send(peer, 3_000);
    }
    let mut last_seen: BTreeMap<u8, Time> = BTreeMap::new();
    let mut users = 0;
    let (mut quiet, mut events) = (Duration::MAX, [Vec::new(), Vec::new()]);
    for _ in 0..3_000 {
        let now = pair.now;
        pair.run(Duration::from_millis(1), |from, datagram| {
            if from == 0 {
                let (header, _) = Header::parse(datagram).unwrap();
                let before = last_seen.insert(header.id, now);
                let pause = before.map_or(Duration::MAX, |before| now.since(before));
                if pause >= Duration::from_millis(10) {
                    users += 1;
                    quiet = quiet.min(pause);
                }
            }
            false
        });
        for (end, events) in events.iter_mut().enumerate() {
            events.extend(pair.events(end));
        }
    }
    assert_eq!(delivered(&events[0]), MESSAGES);
    assert_eq!(received(&events[1]).len(), MESSAGES, "each once");
    assert_eq!(users, MESSAGES);
    assert!(quiet >= Duration::from_millis(19), "{quiet:?}");
    assert_eq!(pair.ends[1].statistics().refused, Refusals::default());
}

#[test]
fn what_has_been_given_up_does_not_get_into_what_comes_after() {
    let (mut pair, peer) = Pair::new(&paper_machine::config(), 1);
    // Half of a message arrives; after it there are 255 others, and then its id's next user.
    let id = pair.send(peer, 40_000);
    let mut count = 0;
    pair.run(Duration::from_millis(2), |_, _| {
        count += 1;
        count > 10
    });
    let now = pair.now;
    pair.ends[0].cancel(now, id);
    for number in 0..256u32 {
        let mut other = message(40_000);
        other[..4].copy_from_slice(&number.to_be_bytes());
        pair.ends[0]
            .send(now, peer, MessageKind::Message, &other)
            .unwrap();
    }
    pair.run(Duration::from_secs(5), |_, _| false);
    assert_eq!(delivered(&pair.events(0)), 256);
    let events = pair.events(1);
    let mut numbers: Vec<_> = received(&events)
        .iter()
        .map(|message| u32::from_be_bytes(*message.first_chunk().unwrap()))
        .collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..256));
    let rest = &message(40_000)[4..];
    assert!(
        received(&events)
            .iter()
            .all(|message| &message[4..] == rest)
    );
    assert_eq!(pair.ends[1].statistics().refused.expired, 1);
}

#[test]
fn what_the_format_cannot_say_is_refused() {
    let (mut pair, peer) = Pair::new(&paper_machine::config(), 1);
    let now = pair.now;
    let mut send = |kind, bytes| pair.ends[0].send(now, peer, kind, &message(bytes));
    assert_eq!(send(MessageKind::Message, 0), Err(SendRefused::Empty));
    let too_large = SendRefused::TooLarge {
        given: 93_441,
        most: 93_440,
    };
    assert_eq!(send(MessageKind::Message, 93_441), Err(too_large));
    assert_eq!(
        send(MessageKind::Request, 10),
        Err(SendRefused::Unsupported)
    );
    assert_eq!(
        send(MessageKind::Reply { to: 1 }, 10),
        Err(SendRefused::Unsupported)
    );
    assert!(send(MessageKind::Message, 93_440).is_ok());
    let mut config = paper_machine::config();
    config.require_validation = true;
    let refused = Paper::new(config, [1; 32], now).unwrap_err();
    assert_eq!(refused, PaperError::Validation);
}

/// Who has not been connected to gets no more than three times what it sent.
#[test]
fn answers_go_to_who_asked() {
    let (mut pair, peer) = Pair::new(&paper_machine::config(), 2);
    pair.send(peer, 1_000);
    let mut symbols = 0;
    pair.run(Duration::from_millis(20), |_, datagram| {
        symbols += u32::from(!is_stop(datagram));
        !is_stop(datagram) && symbols > 4
    });
    let events = pair.events(1);
    let [Event::Received { peer: back, .. }] = events[..] else {
        panic!("{events:?}");
    };
    let now = pair.now;
    pair.ends[1]
        .send(now, back, MessageKind::Message, &message(3_000))
        .unwrap();
    pair.ends[1]
        .send(now, back, MessageKind::Message, &message(90_000))
        .unwrap();
    pair.run(Duration::from_secs(20), |_, _| false);
    assert!(received(&pair.events(0)) == [message(3_000)]);
    let here = pair.ends[1].statistics();
    assert!(here.bytes_sent <= 3 * here.bytes_received, "{here:?}");
    assert_eq!((here.messages_delivered, here.messages_undelivered), (1, 1));
}

#[test]
fn unreachable_peer_is_reported_at_once() {
    let (mut pair, peer) = Pair::new(&paper_machine::config(), 2);
    let now = pair.now;
    pair.send(peer, 2_000);
    let four_tuples: Vec<_> = pair.ends[0]
        .paths(now, peer)
        .into_iter()
        .map(|path| path.four_tuple)
        .collect();
    pair.ends[0].handle_unreachable(now, four_tuples[0]);
    assert!(pair.events(0).is_empty());
    pair.ends[0].handle_unreachable(now, four_tuples[1]);
    let events = pair.events(0);
    let [Event::Undelivered { failure, .. }] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(failure.reason, Reason::Unreachable);
}

/// One speaks the paper's format and the other does not: both refuse and count.
#[test]
fn the_modes_refuse_each_other() {
    for schedule in schedules() {
        let mut paper = paper_machine::config();
        paper.schedule = schedule;
        paper.budget.lifetime = Duration::from_millis(500);
        let mut native = TransportConfig::unprotected();
        native.budget.lifetime = Duration::from_millis(500);
        let (paper, native) = ((true, &paper), (false, &native));
        for configs in [[paper, native], [native, paper]] {
            let (mut pair, peer) = Pair::of(configs, 4);
            for bytes in [1, 5_000, 70_000] {
                pair.send(peer, bytes);
            }
            pair.run(Duration::from_secs(100), |_, _| false);
            let events = pair.events(0);
            let is_undelivered = |event: &Event| matches!(event, Event::Undelivered { .. });
            assert!(events.iter().all(is_undelivered), "{events:?}");
            assert_eq!(received(&pair.events(1)).len(), 0);
            let there = pair.ends[1].statistics();
            let refused: u64 = there.refused.iter().map(|(_, count)| count).sum();
            assert!(refused > 0 && there.incoming_now == 0, "{there:?}");
        }
    }
}
