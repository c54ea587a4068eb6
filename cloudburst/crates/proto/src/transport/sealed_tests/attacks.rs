//! What others can do to two endpoints with keys, who see, throw back, carry, record and forge.

use super::*;

/// Finding 2: a symbol thrown back was handed over, and a stop thrown back said `Delivered`.
#[test]
fn what_is_thrown_back_counts_for_nothing() {
    for (mut pair, peer) in settled() {
        pair.send(peer, 20_000);
        let mut sent = Vec::new();
        // The receiver gets nothing.
        pair.run(Duration::from_millis(3), |from, datagram| {
            if from == 0 {
                sent.push(datagram.to_vec());
            }
            from == 0
        });
        hand(&mut pair, 0, address(1, 0), &sent);
        assert!(
            pair.events(0).is_empty(),
            "nothing is handed over or delivered"
        );
        pair.run(Duration::from_secs(2), |_, _| false);
        assert_eq!(received(&mut pair, 1), 1);
        let _ = pair.events(0);
        // Established: both directions.
        pair.send(peer, 20_000);
        let [sent, answered] = recorded(&mut pair, Duration::from_secs(1));
        assert_eq!(received(&mut pair, 1), 1);
        let _ = pair.events(0);
        hand(&mut pair, 0, address(1, 0), &sent);
        hand(&mut pair, 1, address(0, 0), &answered);
        assert!(pair.events(0).is_empty() && pair.events(1).is_empty());
    }
}

/// Finding 2: datagrams for one key holder were handed over by another.
#[test]
fn what_is_carried_to_another_key_holder_is_refused() {
    let configs = key_pairs();
    let (mut pair, peer) = pair_of(&configs);
    pair.run(SETTLED, |_, _| false);
    pair.now = pair.now + SETTLED;
    // It knows the first, too, and would take messages of it.
    let elsewhere = Security::with_allowed(secret(7), [secret(1).public()]);
    let (now, config) = (Time::from_nanos(1_000_000), config(elsewhere));
    let mut other = Transport::deterministic(config, [9; 32], now).unwrap();
    pair.send(peer, 20_000);
    let [sent, _] = recorded(&mut pair, Duration::from_secs(1));
    let four_tuple = FourTuple::new(SocketId(0), address(0, 0));
    for mut datagram in sent.clone() {
        other.handle_datagram(pair.now, four_tuple, Ecn::NotCapable, &mut datagram);
    }
    assert!(other.poll_event().is_none());
    let mut out = vec![0; 65_536];
    let (mut came, mut answered) = (sent.iter(), 0);
    while let Some(transmit) = other.poll_transmit(pair.now, &mut out) {
        let header = Header::parse(&out).unwrap();
        assert_eq!(header.form, Form::Retry, "it has no such keys");
        assert!(came.next().is_some_and(|it| it.len() >= transmit.bytes));
        answered += transmit.bytes;
        hand(
            &mut pair,
            0,
            address(7, 0),
            &[out[..transmit.bytes].to_vec()],
        );
    }
    assert!(answered > 0 && pair.events(0).len() == 1);
    let refused = other.statistics().refused;
    let counted = refused.not_authentic + refused.unknown_association;
    assert_eq!(counted, sent.len() as u64);
}

#[test]
fn who_is_not_on_the_list_is_not_heard() {
    let mut configs = key_pairs();
    configs[0].security = Security::key_pair(secret(9));
    configs[0].budget.lifetime = Duration::from_millis(500);
    let (mut pair, peer) = pair_of(&configs);
    pair.send(peer, 5_000);
    pair.run(Duration::from_secs(2), |_, _| false);
    assert_eq!(received(&mut pair, 1), 0);
    assert!(pair.ends[1].statistics().refused.not_allowed > 0);
    assert_eq!(pair.ends[1].statistics().peers_now, 0);
}

/// Reported with where it is and why, once for all its datagrams.
#[test]
fn who_has_other_keys_is_reported_once() {
    let [own, server] = key_pairs();
    let listed = KeyMismatch::NotListed(secret(9).public());
    let unlisted = config(Security::key_pair(secret(9)));
    let renewed = config(Security::with_allowed(secret(9), [secret(1).public()]));
    for (mut client, server, later, expected) in [
        (unlisted, &server, None, listed),
        // Its new key is not known to the client yet.
        (own, &server, Some(&renewed), KeyMismatch::OtherKey),
        (shared_key(3), &shared_key(4), None, KeyMismatch::OtherKey),
        (shared_key(3), &server, None, KeyMismatch::Kind),
        (
            TransportConfig::unprotected(),
            &server,
            None,
            KeyMismatch::Kind,
        ),
    ] {
        client.budget.lifetime = Duration::from_millis(500);
        let (mut pair, peer) = Pair::of([&client, server], 4);
        if let Some(later) = later {
            pair.ends[1] = restarted(&pair, later, 9);
        }
        pair.send(peer, 5_000);
        pair.run(Duration::from_secs(2), |_, _| false);
        let refused = pair.ends[1].statistics().refused;
        let counted = refused.not_allowed + refused.not_authentic + refused.unknown_key;
        let reports: Vec<_> = pair
            .events(1)
            .into_iter()
            .filter_map(|event| match event {
                Event::KeysRefused(it) => Some((it.remote.ip(), it.mismatch, it.datagrams)),
                _ => None,
            })
            .collect();
        assert_eq!(reports, [(address(0, 0).ip(), expected, counted)]);
        assert!(counted > 1, "{expected:?}");
    }
}

/// Finding 5, and what `require_validation` alone could do before: recorded first flights and all
/// that followed, from anywhere, at any time, and after a restart of the receiver.
#[test]
fn nothing_recorded_is_handed_over_again() {
    for configs in [key_pairs(), [shared_key(3), shared_key(3)]] {
        let (mut pair, peer) = pair_of(&configs);
        pair.run(SETTLED, |_, _| false);
        pair.now = pair.now + SETTLED;
        pair.send(peer, 20_000);
        let [sent, _] = recorded(&mut pair, Duration::from_secs(1));
        assert_eq!(received(&mut pair, 1), 1);
        let play = |pair: &mut Pair, what: &str| {
            for from in [address(0, 0), address(0, 1), address(5, 5)] {
                hand(pair, 1, from, &sent);
                pair.run(Duration::from_millis(5), |from, _| from == 1);
                assert_eq!(received(pair, 1), 0, "{what}");
            }
        };
        play(&mut pair, "at once");
        let id = pair.ends[1].peers().next().unwrap();
        let now = pair.now;
        pair.ends[1].forget(now, id);
        let _ = pair.events(1);
        play(&mut pair, "to who has forgotten the peer");
        for pause in [0, 1, 5, 9, 11, 30, 250u8] {
            pair.ends[1] = restarted(&pair, &configs[1], pause);
            pair.now = pair.now + Duration::from_secs(pause.into());
            play(&mut pair, "after a restart");
        }
    }
}

/// Anybody on the way can claim that the peer has forgotten us: nothing is dropped for that.
#[test]
fn a_forged_notice_that_keys_are_gone_costs_one_handshake_at_a_time() {
    for (mut pair, peer) in settled() {
        pair.send(peer, 20_000);
        let [sent, _] = recorded(&mut pair, Duration::from_secs(1));
        completion(&mut pair);
        let _ = pair.events(1);
        let other = Transport::deterministic(shared_key(9), [9; 32], pair.now).unwrap();
        let mut before = core::mem::replace(&mut pair.ends[1], other);
        pair.send(peer, 20_000);
        let retries = recorded(&mut pair, Duration::from_millis(3))[1].clone();
        assert!(!sent.is_empty() && !retries.is_empty());
        core::mem::swap(&mut pair.ends[1], &mut before);
        let mut offers = 0;
        for _ in 0..100 {
            hand(&mut pair, 0, address(1, 0), &retries);
            pair.run(Duration::from_millis(1), |from, datagram| {
                let header = Header::parse(datagram).unwrap();
                offers += usize::from(header.form == Form::Offer);
                assert!(
                    from == 1 || header.form != Form::Offer || header.kind != PacketKind::Symbol
                );
                false
            });
        }
        pair.run(Duration::from_secs(3), |_, _| false);
        completion(&mut pair);
        assert_eq!(received(&mut pair, 1), 1);
        assert!(offers <= 8, "{offers}");
    }
}

/// Finding 4: a peer that names itself from an address of somebody else makes us send no more than
/// three times what came from there.
#[test]
fn a_peer_validates_no_address_of_others() {
    for (mut pair, peer) in settled() {
        pair.send(peer, 5_000);
        pair.run(Duration::from_secs(1), |_, _| false);
        completion(&mut pair);
        let back = pair.ends[1].peers().next().unwrap();
        let _ = pair.events(1);
        // The peer's own datagrams, all right but for where they come from.
        pair.send(peer, 5_000);
        let mut spoofed = Vec::new();
        pair.run(Duration::from_millis(2), |from, datagram| {
            if from == 0 {
                spoofed.push(datagram.to_vec());
            }
            from == 0
        });
        let victim = core::net::SocketAddr::from(([203, 0, 113, 7], 53));
        let came: usize = spoofed.iter().map(Vec::len).sum();
        hand(&mut pair, 1, victim, &spoofed);
        let (now, reply) = (pair.now, message(1_000_000));
        pair.ends[1]
            .send(now, back, MessageKind::Message, &reply)
            .unwrap();
        let mut out = vec![0; 65_536];
        let mut sent = 0;
        for _ in 0..2_000 {
            pair.now = pair.now + Duration::from_millis(1);
            let now = pair.now;
            pair.ends[1].handle_timeout(now);
            while let Some(transmit) = pair.ends[1].poll_transmit(now, &mut out) {
                if transmit.four_tuple.remote == victim {
                    sent += transmit.bytes;
                }
            }
        }
        assert!(sent <= 3 * came, "{sent} bytes for {came}");
    }
}

/// Without the keys nothing is changed by what is forged, whatever form it has.
#[test]
fn forgeries_of_every_form_change_nothing() {
    for (mut pair, peer) in settled() {
        let mut number = 0u8;
        for _ in 0..10 {
            pair.send(peer, 5_000);
            let mut forged = [Vec::new(), Vec::new()];
            pair.run(Duration::from_millis(900), |from, datagram| {
                let mut copy = datagram.to_vec();
                number = number.wrapping_add(101);
                let at = usize::from(number) * copy.len() / 256;
                copy[at] ^= 1 << (number % 8);
                forged[1 - from].push(copy);
                false
            });
            for end in [0, 1] {
                let forged = core::mem::take(&mut forged[end]);
                hand(&mut pair, end, address(1 - end, 0), &forged);
            }
            pair.run(Duration::from_millis(100), |_, _| false);
            completion(&mut pair);
            assert_eq!(received(&mut pair, 1), 1);
        }
    }
}
