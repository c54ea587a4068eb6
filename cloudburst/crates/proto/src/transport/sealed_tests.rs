//! Two endpoints with keys, and what others can do to them.

use core::time::Duration;
use std::collections::BTreeSet;

use super::{
    super::{
        packet::{Form, Header, Key, PacketKind, PublicKey, SecretKey},
        *,
    },
    tests::{Pair, address, message},
};

const CALENDAR: Duration = Duration::from_secs(1_700_000_000);
/// There and back, and what the pacer makes of the first datagrams.
const ROUND_TRIP: Duration = Duration::from_micros(2_500);
/// Longer than first flights are doubted after a start.
const SETTLED: Duration = Duration::from_secs(11);

fn secret(number: u8) -> SecretKey {
    SecretKey::new([number; 32])
}

/// At a rate that is stated, so that nothing but the handshake takes time.
fn config(security: Security) -> TransportConfig {
    let mut config = TransportConfig::new(security);
    config.congestion = CongestionControl::reserved(1_000_000_000);
    config.unix_time = Some(CALENDAR);
    config
}

/// With a key pair each; the second takes messages of the first.
fn key_pairs() -> [TransportConfig; 2] {
    let listed = Security::with_allowed(secret(2), [secret(1).public()]);
    [config(Security::key_pair(secret(1))), config(listed)]
}

fn shared_key(number: u8) -> TransportConfig {
    config(Security::shared_key(Key::new(
        core::num::NonZeroU8::MIN,
        [number; 32],
    )))
}

fn pair_of(configs: &[TransportConfig; 2]) -> (Pair, PeerId) {
    Pair::of([&configs[0], &configs[1]], 4)
}

/// Both kinds of keys, 11 s after the start.
fn settled() -> impl Iterator<Item = (Pair, PeerId)> {
    let all = [key_pairs(), [shared_key(3), shared_key(3)]];
    all.into_iter().map(|configs| {
        let (mut pair, peer) = pair_of(&configs);
        pair.run(SETTLED, |_, _| false);
        pair.now = pair.now + SETTLED;
        (pair, peer)
    })
}

fn received(pair: &mut Pair, end: usize) -> usize {
    let events = pair.events(end);
    let is_message = |event: &&Event| matches!(event, Event::Received { .. });
    events.iter().filter(is_message).count()
}

fn completion(pair: &mut Pair) -> Duration {
    let events = pair.events(0);
    let receipts = events.iter().find_map(|event| match event {
        Event::Delivered { receipt, .. } => Some(receipt.completion),
        _ => None,
    });
    receipts.unwrap_or_else(|| panic!("{events:?}"))
}

/// Runs and keeps what each end sends.
fn recorded(pair: &mut Pair, limit: Duration) -> [Vec<Vec<u8>>; 2] {
    let mut all = [Vec::new(), Vec::new()];
    pair.run(limit, |from, datagram| {
        all[from].push(datagram.to_vec());
        false
    });
    all
}

/// An endpoint that begins now with this configuration, by the calendar of those that were there
/// before.
fn restarted(pair: &Pair, config: &TransportConfig, seed: u8) -> Transport {
    let since = Duration::from_nanos(pair.now.as_nanos() - 1_000_000);
    let mut config = config.clone();
    config.unix_time = Some(CALENDAR + since);
    Transport::deterministic(config, [seed; 32], pair.now).unwrap()
}

fn hand(pair: &mut Pair, end: usize, from: core::net::SocketAddr, datagrams: &[Vec<u8>]) {
    let four_tuple = FourTuple::new(SocketId(0), from);
    for datagram in datagrams {
        let mut datagram = datagram.clone();
        pair.ends[end].handle_datagram(pair.now, four_tuple, Ecn::NotCapable, &mut datagram);
    }
}

#[test]
fn the_first_flight_carries_the_message() {
    for (mut pair, peer) in settled() {
        pair.send(peer, 20_000);
        pair.run(Duration::from_micros(1_500), |_, _| false);
        assert_eq!(received(&mut pair, 1), 1, "it is there after one way");
        pair.run(Duration::from_secs(1), |_, _| false);
        assert!(completion(&mut pair) < ROUND_TRIP);
        assert_eq!(received(&mut pair, 1), 0);
    }
}

/// What may have been recorded before the start is not taken; a token costs the round trip.
#[test]
fn after_a_start_the_first_flight_takes_one_round_trip_more() {
    for configs in [key_pairs(), [shared_key(3), shared_key(3)]] {
        let (mut pair, peer) = pair_of(&configs);
        pair.send(peer, 20_000);
        pair.run(Duration::from_secs(1), |_, _| false);
        assert_eq!(received(&mut pair, 1), 1);
        let took = completion(&mut pair);
        assert!((4..=6).contains(&took.as_millis()), "{took:?}");
    }
}

#[test]
fn everything_after_the_first_answer_goes_by_keys_that_nobody_can_compute_later() {
    for (mut pair, peer) in settled() {
        pair.send(peer, 20_000);
        pair.run(Duration::from_secs(1), |_, _| false);
        pair.send(peer, 20_000);
        let [sent, answered] = recorded(&mut pair, Duration::from_secs(1));
        assert_eq!(received(&mut pair, 1), 2);
        for datagram in sent.iter().chain(&answered) {
            assert_eq!(Header::parse(datagram).unwrap().form, Form::Data);
        }
    }
}

#[test]
fn losses_of_any_datagram_of_the_handshake_are_made_up_for() {
    for lost in 0..40 {
        for (mut pair, peer) in settled() {
            pair.send(peer, 5_000);
            let mut number = 0;
            pair.run(Duration::from_secs(3), |_, _| {
                number += 1;
                // One, or three in a row.
                number - 1 == lost || lost % 2 == 1 && (lost..lost + 3).contains(&(number - 1))
            });
            assert_eq!(received(&mut pair, 1), 1, "without datagram {lost}");
            completion(&mut pair);
        }
    }
}

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

#[test]
fn a_peer_is_known_by_its_public_key() {
    let (mut pair, peer) = pair_of(&key_pairs());
    pair.send(peer, 5_000);
    pair.run(Duration::from_secs(2), |_, _| false);
    let key: Vec<PublicKey> = pair.ends[1]
        .peers()
        .filter_map(|peer| pair.ends[1].peer_key(peer))
        .collect();
    assert_eq!(key, [secret(1).public()]);
    assert_eq!(pair.ends[0].peer_key(peer), Some(secret(2).public()));
    let unnamed = pair.ends[0].connect(
        pair.now,
        &[FourTuple::new(SocketId(0), address(1, 9))],
        None,
    );
    assert_eq!(unnamed, Err(ConnectRefused::NoPeerKey));
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

/// Finding 10: no key is used with a nonce twice, whatever happens.
#[test]
fn no_nonce_is_used_twice_with_a_key() {
    for configs in [key_pairs(), [shared_key(3), shared_key(3)]] {
        let (mut pair, peer) = pair_of(&configs);
        let mut seen = BTreeSet::new();
        for minute in 0..12u8 {
            pair.send(peer, 2_000);
            for second in 0..60 {
                pair.run(Duration::from_secs(1), |from, datagram| {
                    let header = Header::parse(datagram).unwrap();
                    // An offer has keys of its own, which its ephemeral key tells apart.
                    let prefix = match header.form {
                        Form::Offer => datagram[84..116].to_vec(),
                        _ => Vec::new(),
                    };
                    if header.form != Form::Retry {
                        let used = (from, header.session, prefix, header.path, header.sequence);
                        assert!(seen.insert(used), "{header:?}");
                    }
                    second % 7 == 3
                });
            }
            if minute % 5 == 4 {
                pair.ends[1] = restarted(&pair, &configs[1], minute);
            }
        }
    }
}

/// Finding 1: traffic went on for an hour and no longer. Keys are replaced meanwhile, and nothing
/// waits for it.
#[test]
fn keys_are_replaced_and_no_message_waits_for_it() {
    for (mut pair, peer) in settled() {
        pair.send(peer, 5_000);
        pair.run(Duration::from_secs(1), |_, _| false);
        completion(&mut pair);
        let mut indices = BTreeSet::new();
        for second in 0..4_000 {
            pair.send(peer, 5_000);
            pair.run(Duration::from_secs(1), |from, datagram| {
                let header = Header::parse(datagram).unwrap();
                if from == 0 && header.form == Form::Data {
                    indices.insert(header.session);
                }
                if header.kind == PacketKind::Symbol {
                    assert_eq!(header.form, Form::Data, "after {second} s");
                }
                false
            });
            let took = completion(&mut pair);
            assert_eq!(took, Duration::from_millis(2), "after {second} s");
        }
        assert!((30..=35).contains(&indices.len()), "{} keys", indices.len());
        let held = pair.ends.each_ref().map(|end| end.statistics().peers_now);
        assert_eq!(held, [1, 1]);
    }
}

/// Finding 1, as it was found: a client asks every 5 s, and is answered after an hour as well.
#[test]
fn replies_go_on_after_an_hour() {
    for (mut pair, peer) in settled() {
        for round in 0..800 {
            pair.send(peer, 5_000);
            pair.run(Duration::from_secs(1), |_, _| false);
            completion(&mut pair);
            let events = pair.events(1);
            let back = events.iter().find_map(|event| match event {
                Event::Received { peer, .. } => Some(*peer),
                _ => None,
            });
            let now = pair.now;
            pair.ends[1]
                .send(now, back.unwrap(), MessageKind::Message, &message(20_000))
                .unwrap();
            pair.run(Duration::from_secs(4), |_, _| false);
            assert_eq!(received(&mut pair, 0), 1, "after {} s", 5 * round);
        }
    }
}

#[test]
fn a_peer_that_was_forgotten_for_its_silence_is_spoken_to_again_at_once() {
    for (mut pair, peer) in settled() {
        for pause in [1, 59, 61, 119, 121, 179, 181, 1_000, 100_000] {
            pair.send(peer, 20_000);
            pair.run(Duration::from_secs(1), |_, _| false);
            assert!(completion(&mut pair) < ROUND_TRIP, "before {pause} s");
            pair.run(Duration::from_secs(pause), |_, _| false);
            let _ = pair.events(1);
        }
    }
}

/// What a restarted receiver had not handed over is handed over once it is back.
#[test]
fn a_restart_of_the_receiver_loses_no_message() {
    for configs in [key_pairs(), [shared_key(3), shared_key(3)]] {
        let (mut pair, peer) = pair_of(&configs);
        pair.send(peer, 20_000);
        pair.run(Duration::from_secs(1), |_, _| false);
        completion(&mut pair);
        for restart in 0..5 {
            pair.send(peer, 20_000);
            // It is gone for half a second, and all that is sent to it then.
            pair.run(Duration::from_millis(500), |_, _| true);
            pair.ends[1] = restarted(&pair, &configs[1], restart);
            pair.run(Duration::from_secs(5), |_, _| false);
            assert_eq!(received(&mut pair, 1), 1, "restart {restart}");
            assert!(completion(&mut pair) < Duration::from_secs(3));
        }
    }
}

/// It is told by the first datagram that comes by keys which it has no more, and the token of that
/// is good for the handshake: one round trip to learn it, one for the handshake with the message.
#[test]
fn a_restarted_receiver_is_found_in_one_round_trip() {
    for configs in [key_pairs(), [shared_key(3), shared_key(3)]] {
        let (mut pair, peer) = pair_of(&configs);
        pair.send(peer, 20_000);
        pair.run(Duration::from_secs(1), |_, _| false);
        completion(&mut pair);
        pair.ends[1] = restarted(&pair, &configs[1], 1);
        pair.send(peer, 20_000);
        let mut offers = Vec::new();
        pair.run(Duration::from_secs(5), |from, datagram| {
            if Header::parse(datagram).unwrap().form == Form::Offer && from == 0 {
                offers.push(datagram.len());
            }
            false
        });
        assert_eq!(received(&mut pair, 1), 1);
        let took = completion(&mut pair);
        assert!(took < 10 * ROUND_TRIP, "{took:?}");
        assert!(offers.len() <= 4, "one handshake: {offers:?}");
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

/// A request from behind a translator of addresses that has chosen other ports is answered there.
#[test]
fn a_rebinding_is_survived_and_the_new_address_validated() {
    for (mut pair, peer) in settled() {
        for round in 0..5 {
            pair.send(peer, 5_000);
            pair.run(Duration::from_secs(1), |_, _| false);
            completion(&mut pair);
            let back = pair.events(1).iter().find_map(|event| match event {
                Event::Received { peer, .. } => Some(*peer),
                _ => None,
            });
            let back = back.unwrap_or_else(|| panic!("round {round}"));
            let reply = message(50_000);
            let now = pair.now;
            pair.ends[1]
                .send(now, back, MessageKind::Message, &reply)
                .unwrap();
            pair.run(Duration::from_secs(2), |_, _| false);
            assert_eq!(received(&mut pair, 0), 1, "round {round}");
            assert_eq!(pair.ends[1].statistics().peers_now, 1);
            pair.rebindings += 1;
        }
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

/// The key of a shared ring that is taken out ends what goes on under it.
#[test]
fn a_key_that_is_taken_out_opens_nothing_more() {
    let mut configs = key_pairs();
    let (mut pair, peer) = pair_of(&configs);
    pair.send(peer, 5_000);
    pair.run(Duration::from_secs(1), |_, _| false);
    completion(&mut pair);
    let _ = pair.events(1);
    configs[1].security = Security::with_allowed(secret(2), []);
    let security = configs[1].security.clone();
    pair.ends[1].set_security(security).unwrap();
    let _ = pair.send(peer, 5_000);
    pair.run(Duration::from_secs(12), |_, _| false);
    assert_eq!(received(&mut pair, 1), 0);
    let unprotected = pair.ends[1].set_security(Security::Unprotected);
    assert_eq!(unprotected, Err(ConfigError::OtherSecurity));
}
