//! Ends that close, with keys and without, and those who pretend that one does.

use core::time::Duration;

use super::{
    super::{packet::PacketKind, *},
    acquainted::{acquainted, is_symbol, kind, of_both_kinds, settled},
    sealed_tests::shared_key,
    tests::{Pair, address},
};

fn is_goodbye(datagram: &[u8]) -> bool {
    kind(datagram) == PacketKind::Goodbye
}

fn gone(events: &[Event]) -> Vec<(PeerId, GoneReason)> {
    let gone = events.iter().filter_map(|event| match event {
        Event::PeerGone { peer, reason } => Some((*peer, *reason)),
        _ => None,
    });
    gone.collect()
}

#[test]
fn an_end_that_closes_is_known_to_be_gone_and_no_path_of_it_dies() {
    for (mut pair, _, first) in of_both_kinds() {
        // Both have just spoken, so that paths are probed.
        let reply = MessageKind::Message;
        let sent = pair.ends[1].send(pair.now, first, reply, &[1; 5_000]);
        sent.unwrap();
        pair.run(Duration::from_millis(20), |_, _| false);
        pair.events(1);
        pair.ends[0].close(pair.now);
        let mut goodbyes = 0;
        // From then on it is silent.
        pair.run(Duration::from_secs(200), |from, datagram| {
            goodbyes += u32::from(is_goodbye(datagram));
            from == 0 && !is_goodbye(datagram)
        });
        assert_eq!(goodbyes, 2, "by two paths");
        let events = pair.events(1);
        assert_eq!(gone(&events), [(first, GoneReason::Closed)], "once");
        let left = pair.ends[1].statistics();
        assert_eq!((left.paths_died, left.peers_now), (0, 0));
    }
}

#[test]
fn what_is_under_way_in_both_directions_ends() {
    for (mut pair, peer, first) in of_both_kinds() {
        pair.send(peer, 50_000);
        let theirs = pair.ends[1]
            .send(pair.now, first, MessageKind::Message, &[2; 50_000])
            .unwrap();
        let mut symbols = 0_u32;
        pair.run(Duration::from_millis(20), |_, datagram| {
            symbols += u32::from(is_symbol(datagram));
            is_symbol(datagram) && !symbols.is_multiple_of(9)
        });
        assert!(pair.ends[1].statistics().incoming_bytes_now > 0);
        pair.ends[0].close(pair.now);
        pair.run(Duration::from_micros(1_500), |_, datagram| {
            !is_goodbye(datagram)
        });
        let left = pair.ends[1].statistics();
        assert_eq!((left.incoming_bytes_now, left.outgoing_now), (0, 0));
        let events = pair.events(1);
        let failure = events.iter().find_map(|event| match event {
            Event::Undelivered { id, failure } if *id == theirs => Some(failure.reason),
            _ => None,
        });
        assert_eq!(failure, Some(Reason::PeerClosed), "{events:?}");
    }
}

/// An end with a message that is sent whole, one that is and may be taken twice, and one that is not
/// sent whole; the end that it had chosen closes before any of them is there. What each comes to is in
/// the events.
fn closed_under_way(config: &TransportConfig) -> (Pair, PeerId, [SendId; 3]) {
    let (mut pair, peer, _) = acquainted(config);
    let twice = SendOptions::new().with_idempotent(true);
    let mut send = |options, bytes| {
        let kind = (MessageKind::Message, options);
        let sent = pair.ends[0].send_with(pair.now, peer, kind, &vec![1; bytes]);
        sent.unwrap()
    };
    let sent = [
        send(SendOptions::new(), 500),
        send(twice, 700),
        send(SendOptions::new(), 400_000),
    ];
    pair.run(Duration::from_micros(300), |_, _| true);
    pair.ends[1].close(pair.now);
    pair.run(Duration::from_millis(5), |from, _| from == 0);
    (pair, peer, sent)
}

fn undelivered(events: &[Event]) -> Vec<(SendId, Reason)> {
    let undelivered = events.iter().filter_map(|event| match event {
        Event::Undelivered { id, failure } => Some((*id, failure.reason)),
        _ => None,
    });
    undelivered.collect()
}

fn started_again(pair: &Pair, config: &TransportConfig) -> Transport {
    let since = Duration::from_nanos(pair.now.as_nanos() - 1_000_000);
    let mut config = config.clone();
    config.unix_time = config.unix_time.map(|before| before + since);
    Transport::deterministic(config, [99; 32], pair.now).unwrap()
}

/// A service is started again: it says goodbye, and is there half a second later.
#[test]
fn a_server_that_is_started_again_loses_nothing_but_what_it_may_have_taken() {
    let config = shared_key(3);
    let (mut pair, peer, [doubtful, twice, long]) = closed_under_way(&config);
    let events = pair.events(0);
    assert_eq!(gone(&events), [(peer, GoneReason::Closed)]);
    assert_eq!(undelivered(&events), [(doubtful, Reason::PeerClosed)]);
    pair.run(Duration::from_millis(500), |_, _| true);
    pair.ends[1] = started_again(&pair, &config);
    pair.run(Duration::from_secs(4), |_, _| false);
    let events = pair.events(0);
    for id in [twice, long] {
        let is_there =
            |event: &Event| matches!(event, Event::Delivered { id: it, .. } if *it == id);
        assert!(events.iter().any(is_there), "{events:?}");
    }
    assert_eq!((gone(&events), undelivered(&events)), (vec![], vec![]));
}

#[test]
fn a_server_that_is_not_back_within_two_seconds_has_closed() {
    let (mut pair, _, [doubtful, twice, long]) = closed_under_way(&shared_key(3));
    pair.run(Duration::from_millis(1_900), |_, _| true);
    let events = pair.events(0);
    assert_eq!(undelivered(&events), [(doubtful, Reason::PeerClosed)]);
    pair.run(Duration::from_millis(200), |_, _| true);
    let ended = [twice, long].map(|id| (id, Reason::PeerClosed));
    assert_eq!(undelivered(&pair.events(0)), ended);
    assert_eq!(pair.ends[0].statistics().outgoing_now, 0);
}

#[test]
fn what_is_sent_after_a_goodbye_has_its_own_time() {
    let (mut pair, peer, [doubtful, twice, long]) = closed_under_way(&shared_key(3));
    pair.run(Duration::from_millis(1_500), |_, _| true);
    let later = pair.send(peer, 500);
    pair.run(Duration::from_millis(700), |_, _| true);
    let ended = [doubtful, twice, long].map(|id| (id, Reason::PeerClosed));
    let events = undelivered(&pair.events(0));
    assert_eq!(events, ended);
    assert!(events.iter().all(|(id, _)| *id != later));
}

/// Without keys anybody may say what has become of what.
#[test]
fn what_is_under_way_without_keys_ends_at_once() {
    let (mut pair, _, sent) = closed_under_way(&TransportConfig::unprotected());
    let ended = sent.map(|id| (id, Reason::PeerClosed));
    assert_eq!(undelivered(&pair.events(0)), ended);
}

/// The end that was connected to closes, and is there again: under the id that it had.
#[test]
fn a_peer_that_was_chosen_stays_and_is_found_again() {
    for config in [TransportConfig::unprotected(), shared_key(3)] {
        let (mut pair, peer, _) = acquainted(&config);
        pair.ends[1].close(pair.now);
        pair.run(Duration::from_millis(5), |from, _| from == 0);
        assert_eq!(gone(&pair.events(0)), [(peer, GoneReason::Closed)]);
        pair.ends[1] = started_again(&pair, &config);
        // It has been there for a while when something is sent.
        pair.run(Duration::from_millis(50), |_, _| false);
        let sent = pair.send(peer, 2_000);
        pair.run(Duration::from_secs(2), |_, _| false);
        let is_there = |event: &Event| matches!(event, Event::Delivered { id, .. } if *id == sent);
        let events = pair.events(0);
        assert!(events.iter().any(is_there), "{events:?}");
        assert_eq!(gone(&events), []);
    }
}

/// What was sent before the goodbye, and arrives behind it, is not handed over a second time.
#[test]
fn what_is_late_of_an_end_that_has_closed_is_not_taken_again() {
    for config in [TransportConfig::unprotected(), shared_key(3)] {
        let (mut pair, peer) = settled(&config);
        let mut late = Vec::new();
        for bytes in [100, 1_000] {
            pair.send(peer, bytes);
            pair.run(Duration::from_millis(50), |from, datagram| {
                if from == 0 {
                    late.push(datagram.to_vec());
                }
                false
            });
        }
        let received = |events: &[Event]| {
            let is_received = |event: &&Event| matches!(event, Event::Received { .. });
            events.iter().filter(is_received).count()
        };
        assert_eq!(received(&pair.events(1)), 2);
        pair.ends[0].close(pair.now);
        pair.run(Duration::from_millis(5), |_, datagram| {
            late.push(datagram.to_vec());
            false
        });
        assert_eq!(gone(&pair.events(1)).len(), 1);
        for port in [0, 1, 70] {
            let from = FourTuple::new(SocketId(0), address(0, port));
            for datagram in &late {
                let mut datagram = datagram.clone();
                pair.ends[1].handle_datagram(pair.now, from, Ecn::NotCapable, &mut datagram);
            }
        }
        // Nobody answers for the end that is gone.
        pair.run(Duration::from_secs(1), |_, _| true);
        let events = pair.events(1);
        assert_eq!(
            (received(&events), gone(&events).len()),
            (0, 0),
            "{events:?}"
        );
    }
}

#[test]
fn a_goodbye_that_is_lost_leaves_it_to_the_timeouts() {
    for (mut pair, _, first) in of_both_kinds() {
        pair.ends[0].close(pair.now);
        pair.run(Duration::from_secs(200), |from, _| from == 0);
        let events = pair.events(1);
        assert_eq!(gone(&events), [(first, GoneReason::Silent)]);
    }
}

#[test]
fn a_goodbye_from_elsewhere_changes_nothing() {
    let (mut pair, peer, _) = acquainted(&shared_key(3));
    // One that was recorded on another association of the same ends.
    let mut recorded = Vec::new();
    pair.ends[0].close(pair.now);
    pair.run(Duration::from_millis(5), |_, datagram| {
        if is_goodbye(datagram) {
            recorded.push(datagram.to_vec());
        }
        is_goodbye(datagram)
    });
    assert_eq!(recorded.len(), 2);
    let from = FourTuple::new(SocketId(0), address(0, 0));
    for datagram in &recorded {
        let mut variants = vec![datagram.clone(); 4];
        // Of another sequence number; to another index; as if it were plain; thrown back.
        variants[0][23] ^= 1;
        variants[1][8] ^= 1;
        variants[2][1] = 0;
        for mut variant in variants.drain(..3) {
            pair.ends[1].handle_datagram(pair.now, from, Ecn::NotCapable, &mut variant);
        }
        let back = FourTuple::new(SocketId(0), address(1, 0));
        pair.ends[0].handle_datagram(pair.now, back, Ecn::NotCapable, &mut variants[0]);
    }
    assert_eq!(gone(&pair.events(0)), []);
    assert_eq!(gone(&pair.events(1)), []);
    // Another holder of the key speaks for itself alone, also from this address.
    let mut other = Transport::deterministic(shared_key(3), [77; 32], pair.now).unwrap();
    let paths = [FourTuple::new(SocketId(0), address(1, 0))];
    let to = other.connect(pair.now, &paths, None).unwrap();
    other
        .send(pair.now, to, MessageKind::Message, &[1; 500])
        .unwrap();
    other.close(pair.now);
    let mut out = vec![0; 65_536];
    while let Some(transmit) = other.poll_transmit(pair.now, &mut out) {
        for datagram in out[..transmit.bytes].chunks_mut(transmit.segment_bytes) {
            pair.ends[1].handle_datagram(pair.now, from, Ecn::NotCapable, datagram);
        }
    }
    pair.send(peer, 1_000);
    pair.run(Duration::from_secs(1), |_, _| false);
    let events = pair.events(0);
    let is_delivered = |event: &Event| matches!(event, Event::Delivered { .. });
    assert!(events.iter().any(is_delivered), "{events:?}");
    assert_eq!(gone(&pair.events(1)), []);
}

/// An endpoint with so many peers that it has heard of.
fn with_peers(count: u16) -> (Pair, Vec<PeerId>) {
    let mut config = TransportConfig::unprotected();
    config.quotas.unvalidated_peers = count.into();
    let (mut pair, first) = Pair::new(&config, 1);
    let mut peers = vec![first];
    for number in 1..count {
        let path = FourTuple::new(SocketId(0), address(1, number));
        peers.push(pair.ends[0].connect(pair.now, &[path], None).unwrap());
    }
    for peer in &peers {
        pair.send(*peer, 100);
    }
    pair.run(Duration::from_secs(1), |_, _| false);
    let is_there = |event: &&Event| matches!(event, Event::Delivered { .. });
    let delivered = pair.events(0).iter().filter(is_there).count();
    assert_eq!(delivered, peers.len());
    (pair, peers)
}

#[test]
fn goodbyes_to_a_thousand_peers_leave_in_bounded_bursts() {
    const PEERS: u16 = 1_000;
    let (mut pair, peers) = with_peers(PEERS);
    let end = &mut pair.ends[0];
    end.close(pair.now);
    let (begin, mut now, mut out) = (pair.now, pair.now, vec![0; 65_536]);
    let mut told = std::collections::BTreeSet::new();
    while let Some(at) = end.next_goodbye() {
        let due = end.next_deadline().expect("a goodbye waits");
        assert!(due <= at.max(now), "{due:?} is later than {at:?}");
        now = now.max(at);
        let mut burst = 0;
        while let Some(transmit) = end.poll_transmit(now, &mut out) {
            assert!(is_goodbye(&out[..transmit.bytes]));
            burst += transmit.bytes;
            told.insert(transmit.four_tuple.remote);
        }
        assert!((1..14_600).contains(&burst), "{burst} bytes at once");
    }
    assert_eq!(told.len(), peers.len());
    let took = now.since(begin);
    assert!(took < Duration::from_secs(1), "{took:?}");
}

/// It is said by two paths, between which an application may send something: that is for who is there
/// next.
#[test]
fn a_goodbye_by_a_second_path_is_the_same_one() {
    let config = shared_key(3);
    let (mut pair, peer) = Pair::new(&config, 2);
    pair.now = pair.now + Duration::from_secs(11);
    pair.send(peer, 1_000);
    pair.run(Duration::from_secs(1), |_, _| false);
    pair.events(0);
    pair.ends[1].close(pair.now);
    let (mut out, mut goodbyes) = (vec![0; 65_536], Vec::new());
    while let Some(transmit) = pair.ends[1].poll_transmit(pair.now, &mut out) {
        let from = FourTuple::new(transmit.four_tuple.socket, address(1, 0));
        goodbyes.push((from, out[..transmit.bytes].to_vec()));
    }
    assert_eq!(goodbyes.len(), 2);
    let mut gone_so_far = Vec::new();
    for (from, mut datagram) in goodbyes {
        pair.ends[0].handle_datagram(pair.now, from, Ecn::NotCapable, &mut datagram);
        gone_so_far.extend(gone(&pair.events(0)));
        let options = SendOptions::new().with_idempotent(true);
        let kind = (MessageKind::Request, options);
        pair.ends[0]
            .send_with(pair.now, peer, kind, &[1; 500])
            .unwrap();
    }
    assert_eq!(gone_so_far, [(peer, GoneReason::Closed)]);
    pair.run(Duration::from_millis(500), |_, _| true);
    pair.ends[1] = started_again(&pair, &config);
    pair.run(Duration::from_secs(4), |_, _| false);
    let events = pair.events(0);
    let is_there = |event: &&Event| matches!(event, Event::Delivered { .. });
    assert_eq!(events.iter().filter(is_there).count(), 2, "{events:?}");
}
