//! Messages that are given up, with keys and without, on networks that lose, repeat and reorder.

use core::time::Duration;

use super::{
    super::{packet::PacketKind, *},
    acquainted::{is_symbol, kind, of_both_kinds, settled},
    sealed_tests::shared_key,
    tests::{Pair, address},
};

fn is_cancel(datagram: &[u8]) -> bool {
    kind(datagram) == PacketKind::Cancel
}

fn is_received(event: &Event) -> bool {
    matches!(event, Event::Received { .. })
}

/// Has a small part of so many messages arrive, and returns them.
fn parts(pair: &mut Pair, peer: PeerId, messages: usize) -> Vec<SendId> {
    let sent: Vec<_> = (0..messages).map(|_| pair.send(peer, 50_000)).collect();
    let mut symbols = 0_u32;
    pair.run(Duration::from_millis(50), |from, datagram| {
        symbols += u32::from(from == 0 && is_symbol(datagram));
        from == 1 || !symbols.is_multiple_of(20)
    });
    let incoming = pair.ends[1].statistics();
    assert_eq!(incoming.incoming_now, messages as u64);
    assert!(incoming.incoming_bytes_now >= 50_000 * messages as u64);
    sent
}

fn cancel_all(pair: &mut Pair, sent: &[SendId]) {
    for &id in sent {
        pair.ends[0].cancel(pair.now, id);
    }
}

#[test]
fn a_receiver_has_nothing_left_one_round_trip_after_messages_are_given_up() {
    for (mut pair, peer, _) in of_both_kinds() {
        let sent = parts(&mut pair, peer, 40);
        cancel_all(&mut pair, &sent);
        pair.run(Duration::from_micros(2_500), |_, _| false);
        let receiver = pair.ends[1].statistics();
        assert_eq!((receiver.incoming_now, receiver.incoming_bytes_now), (0, 0));
        assert_eq!(receiver.messages_cancelled, 40);
        // And it has said so: nothing is asked again.
        pair.run(Duration::from_secs(5), |_, datagram| {
            assert!(!is_cancel(datagram));
            false
        });
        assert!(!pair.events(1).iter().any(is_received));
        assert_eq!(pair.events(0).len(), 40, "each is said to be undelivered");
    }
}

#[test]
fn a_lifetime_that_is_over_frees_the_receivers_memory_as_well() {
    let mut config = shared_key(3);
    config.budget.lifetime = Duration::from_millis(500);
    let (mut pair, peer) = settled(&config);
    pair.send(peer, 50_000);
    let mut symbols = 0_u32;
    pair.run(Duration::from_millis(600), |_, datagram| {
        let is_symbol = is_symbol(datagram);
        symbols += u32::from(is_symbol);
        is_symbol && symbols > 20
    });
    let events = pair.events(0);
    let [Event::Undelivered { failure, .. }] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(failure.reason, Reason::TimedOut);
    assert_eq!(pair.ends[1].statistics().incoming_bytes_now, 0);
}

#[test]
fn a_lost_cancel_is_repeated_and_not_for_ever() {
    for (mut pair, peer, _) in of_both_kinds() {
        let sent = parts(&mut pair, peer, 1);
        cancel_all(&mut pair, &sent);
        let mut asked = 0;
        pair.run(Duration::from_secs(30), |_, datagram| {
            asked += u32::from(is_cancel(datagram));
            is_cancel(datagram) && asked <= 6
        });
        assert_eq!(asked, 8, "the fourth time it arrives, by two paths");
        assert_eq!(pair.ends[1].statistics().incoming_bytes_now, 0);

        let sent = parts(&mut pair, peer, 1);
        cancel_all(&mut pair, &sent);
        let mut asked = 0;
        pair.run(Duration::from_secs(30), |_, datagram| {
            asked += u32::from(is_cancel(datagram));
            is_cancel(datagram)
        });
        assert_eq!(asked, 10, "five times by two paths, and no more");
    }
}

#[test]
fn late_symbols_of_a_cancelled_message_rebuild_nothing() {
    for (mut pair, peer, _) in of_both_kinds() {
        let sent = pair.send(peer, 50_000);
        let mut late = Vec::new();
        pair.run(Duration::from_millis(20), |from, datagram| {
            if from == 0 {
                late.push(datagram.to_vec());
            }
            from == 0
        });
        assert!(late.len() > 20);
        pair.ends[0].cancel(pair.now, sent);
        pair.run(Duration::from_secs(1), |_, _| false);
        // All that was sent overtakes nothing any more: the question was there before.
        let from = FourTuple::new(SocketId(0), address(0, 0));
        for mut datagram in late {
            pair.ends[1].handle_datagram(pair.now, from, Ecn::NotCapable, &mut datagram);
            assert_eq!(pair.ends[1].statistics().incoming_now, 0);
        }
        pair.run(Duration::from_secs(1), |_, _| false);
        assert!(!pair.events(1).iter().any(is_received));
    }
}

#[test]
fn a_request_that_was_delivered_is_cancelled_at_the_host() {
    for (mut pair, peer, _) in of_both_kinds() {
        let sent = pair.ends[0]
            .send(pair.now, peer, MessageKind::Request, b"what?")
            .unwrap();
        pair.run(Duration::from_secs(1), |_, _| false);
        let events = pair.events(1);
        let [Event::Received { peer, id, .. }] = events[..] else {
            panic!("{events:?}");
        };
        pair.ends[0].cancel(pair.now, sent);
        pair.run(Duration::from_secs(1), |_, _| false);
        let cancelled = pair.events(1);
        assert!(!cancelled.is_empty() && cancelled.len() <= 2, "one a path");
        for event in cancelled {
            let is_it =
                matches!(event, Event::Cancelled { peer: by, id: it } if (by, it) == (peer, id));
            assert!(is_it, "{event:?}");
        }
        let is_delivered = |event: &Event| matches!(event, Event::Delivered { .. });
        assert!(pair.events(0).iter().all(is_delivered));
    }
}

/// Recorded with its keys, or made up without: what is not from the peer ends nothing.
#[test]
fn a_cancel_from_elsewhere_ends_nothing() {
    let config = shared_key(3);
    let (mut pair, peer) = settled(&config);
    let given_up = parts(&mut pair, peer, 1);
    cancel_all(&mut pair, &given_up);
    let mut recorded = Vec::new();
    pair.run(Duration::from_secs(1), |_, datagram| {
        if is_cancel(datagram) {
            recorded.push(datagram.to_vec());
        }
        false
    });
    let cancelled = pair.ends[1].statistics().messages_cancelled;
    let under_way = parts(&mut pair, peer, 1);
    let before = pair.ends[1].statistics();
    let from = FourTuple::new(SocketId(0), address(0, 0));
    for datagram in &recorded {
        // Once more; to somebody else's index; of another message; as if it were plain.
        let mut variants = vec![datagram.clone(); 4];
        variants[1][8] ^= 1;
        variants[2][30] ^= 1;
        variants[3][1] = 0;
        for mut variant in variants {
            pair.ends[1].handle_datagram(pair.now, from, Ecn::NotCapable, &mut variant);
        }
    }
    let after = pair.ends[1].statistics();
    assert_eq!(after.messages_cancelled, cancelled);
    assert_eq!(after.incoming_bytes_now, before.incoming_bytes_now);
    assert!(after.refused.replayed > before.refused.replayed);
    // Somebody else with a key, who counts alike, ends none of this peer's.
    let mut other = Transport::deterministic(shared_key(3), [77; 32], pair.now).unwrap();
    let paths = [FourTuple::new(SocketId(0), address(1, 0))];
    let to = other.connect(pair.now, &paths, None).unwrap();
    let _ = other.send(pair.now, to, MessageKind::Message, &[1; 5_000]);
    for id in &under_way {
        let theirs = SendId::new(to, id.as_u64());
        other.cancel(pair.now, theirs);
    }
    let mut out = vec![0; 65_536];
    let theirs = FourTuple::new(SocketId(0), address(0, 50));
    while let Some(transmit) = other.poll_transmit(pair.now, &mut out) {
        for datagram in out[..transmit.bytes].chunks_mut(transmit.segment_bytes) {
            pair.ends[1].handle_datagram(pair.now, theirs, Ecn::NotCapable, datagram);
        }
    }
    let after = pair.ends[1].statistics();
    assert_eq!(after.messages_cancelled, cancelled);
    assert!(after.incoming_bytes_now >= before.incoming_bytes_now);
}
