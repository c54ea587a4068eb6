//! Offers that come again: each is read once, from one address, and judged by what holds now.

use core::{net::SocketAddr, time::Duration};
use std::collections::BTreeSet;

use super::{
    super::*,
    sealed_tests::{
        SETTLED, hand, key_pairs, pair_of, received, settled, shared_key, unlisted_and_listing,
    },
    tests::{Pair, address, message},
};
use crate::packet::{
    Clear, Credentials, Form, Gate, Header, Initiator, Offer, PacketKind, Pattern, Ping, Sealer,
    Stamp, TOKEN_BYTES, write_hello,
};

/// Offers that are remembered, at most.
const MOST_REMEMBERED: usize = 1_024;

/// What the first end sends at once, of which nothing arrives.
fn flight(pair: &mut Pair) -> Vec<Vec<u8>> {
    let mut flight = Vec::new();
    pair.run(Duration::from_micros(500), |from, datagram| {
        if from == 0 {
            flight.push(datagram.to_vec());
        }
        true
    });
    let is_offer = |datagram: &Vec<u8>| Header::parse(datagram).unwrap().form == Form::Offer;
    assert!(flight.len() > 5 && flight.iter().all(is_offer));
    flight
}

/// A pair whose second end asks for tokens, as it has just started, and a first flight to it.
fn doubted() -> impl Iterator<Item = (Pair, Vec<Vec<u8>>)> {
    let all = [key_pairs(), [shared_key(3), shared_key(3)]];
    all.into_iter().map(|configs| {
        let (mut pair, peer) = pair_of(&configs);
        pair.send(peer, 100_000);
        let flight = flight(&mut pair);
        (pair, flight)
    })
}

/// Offers that the second end has read, and known again.
fn counts(pair: &Pair) -> (u64, usize) {
    let statistics = pair.ends[1].statistics();
    (statistics.offers_read, statistics.offers_repeated as usize)
}

/// Answers of the second end.
fn answers(pair: &mut Pair) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut out = vec![0; 65_536];
    let mut answers = Vec::new();
    while let Some(transmit) = pair.ends[1].poll_transmit(pair.now, &mut out) {
        for datagram in out[..transmit.bytes].chunks(transmit.segment_bytes) {
            answers.push((transmit.four_tuple.remote, datagram.to_vec()));
        }
    }
    answers
}

/// A first flight is ten datagrams and more, and each was as dear as the offer alone.
#[test]
fn an_offer_is_read_once_however_often_it_comes() {
    for (mut pair, flight) in doubted() {
        for port in 0..10 {
            hand(&mut pair, 1, address(0, port), &flight);
        }
        let came = 10 * flight.len();
        assert_eq!(counts(&pair), (1, came - 1));
        let refused = pair.ends[1].statistics().refused;
        assert_eq!(refused.not_validated as usize, came, "each as the first");
        let answers = answers(&mut pair);
        assert!(!answers.is_empty() && answers.len() <= came);
        let shortest = flight.iter().map(Vec::len).min().unwrap();
        for (_, answer) in answers {
            let header = Header::parse(&answer).unwrap();
            assert!(header.form == Form::Retry && answer.len() < shortest);
        }
    }
}

#[test]
fn what_is_known_of_an_offer_counts_for_the_address_that_it_came_from() {
    for (mut pair, flight) in doubted() {
        hand(&mut pair, 1, address(0, 0), &flight);
        hand(&mut pair, 1, address(7, 0), &flight);
        assert_eq!(counts(&pair), (2, 2 * flight.len() - 2));
        let mut mirrored = flight[0].clone();
        // An offer is another with another index.
        mirrored[8] ^= 1;
        hand(&mut pair, 1, address(0, 0), &[mirrored]);
        assert_eq!(counts(&pair).1, 2 * flight.len() - 2);
        for (to, answer) in answers(&mut pair) {
            assert!([address(0, 0), address(7, 0)].contains(&to));
            assert!(Header::parse(&answer).unwrap().form == Form::Retry);
        }
    }
}

/// An offer by a shared key, as anybody makes it who has that: of no time, so that a token is wanted.
fn offer(number: u64) -> Vec<u8> {
    const SECRET: [u8; 32] = [3; 32];
    let clear = Clear {
        pattern: Pattern::SharedKey,
        key_id: 1,
        index: number,
        token: [0; TOKEN_BYTES],
    };
    let offer = Offer {
        early_secret: [1; 32],
        unix_us: 0,
        conversation: number,
        oldest_us: 0,
    };
    let mut ephemeral = [9; 32];
    ephemeral[..8].copy_from_slice(&number.to_be_bytes());
    let mut message = [0; Pattern::SharedKey.offer_bytes()];
    let credentials = Credentials::SharedKey(&SECRET);
    Initiator::offer(credentials, &clear, &offer, ephemeral, &mut message).unwrap();
    let hello = write_hello(&clear, &Gate::of_secret(&SECRET), &message);
    let sealer = Sealer::sealed(number, &offer.early_key()).with_prefix(Form::Offer, hello);
    let mut datagram = vec![0; 1_000];
    let stamp = Stamp {
        path: 1,
        sent_us: 0,
        sequence: 0,
    };
    let written = sealer.write(stamp, &mut datagram, |body| Ping { nonce: 1 }.write(body));
    datagram.truncate(written.unwrap());
    datagram
}

/// As many as the budget lets through, of which each is another.
#[test]
fn a_flood_of_offers_is_remembered_within_bounds() {
    let offers = 4 * MOST_REMEMBERED as u64;
    let (mut pair, _) = pair_of(&[shared_key(3), shared_key(3)]);
    let (mut first, mut last) = (Vec::new(), Vec::new());
    for number in 0..offers {
        last = vec![offer(number)];
        if number == 0 {
            first.clone_from(&last);
        }
        hand(&mut pair, 1, address(0, 0), &last);
        pair.now = pair.now + Duration::from_millis(2);
        let held = pair.ends[1].router.handshake.offers_remembered();
        assert!(held <= MOST_REMEMBERED, "{held} after {number}");
        answers(&mut pair);
    }
    assert_eq!(counts(&pair), (offers, 0));
    hand(&mut pair, 1, address(0, 0), &last);
    assert_eq!(counts(&pair), (offers, 1), "the newest is known");
    hand(&mut pair, 1, address(0, 0), &first);
    assert_eq!(counts(&pair), (offers + 1, 1), "the oldest is not");
}

/// A third end's first flight, made now.
fn flight_of_another(pair: &Pair, seed: u8) -> Vec<Vec<u8>> {
    let mut config = shared_key(3);
    let since = Duration::from_nanos(pair.now.as_nanos() - 1_000_000);
    config.unix_time = config.unix_time.map(|at| at + since);
    let mut other = Transport::deterministic(config, [seed; 32], pair.now).unwrap();
    let path = FourTuple::new(SocketId(0), address(1, 0));
    let peer = other.connect(pair.now, &[path], None).unwrap();
    other
        .send(pair.now, peer, MessageKind::Message, &message(5_000))
        .unwrap();
    let mut out = vec![0; 65_536];
    let mut flight = Vec::new();
    while let Some(transmit) = other.poll_transmit(pair.now, &mut out) {
        let segments = out[..transmit.bytes].chunks(transmit.segment_bytes);
        flight.extend(segments.map(<[u8]>::to_vec));
    }
    flight
}

/// Every datagram of a first flight to a server that is full cost two handshakes' work.
#[test]
fn who_is_turned_away_is_so_for_each_repeat_by_keys_of_the_first_answer() {
    let mut server = shared_key(3);
    server.quotas.peers = 1;
    let (mut pair, peer) = pair_of(&[shared_key(3), server]);
    pair.run(SETTLED, |_, _| false);
    pair.now = pair.now + SETTLED;
    pair.send(peer, 5_000);
    pair.run(Duration::from_secs(1), |_, _| false);
    assert_eq!(received(&mut pair, 1), 1);
    let (read, _) = counts(&pair);
    let flight = flight_of_another(&pair, 9);
    for _ in 0..3 {
        hand(&mut pair, 1, address(2, 0), &flight);
    }
    assert_eq!(counts(&pair), (read + 1, 3 * flight.len() - 1));
    let answers = answers(&mut pair);
    let longest = flight.iter().map(Vec::len).max().unwrap();
    let mut nonces = BTreeSet::new();
    for (to, answer) in &answers {
        let header = Header::parse(answer).unwrap();
        let (form, kind) = (header.form, header.kind);
        assert_eq!((form, kind), (Form::Acceptance, PacketKind::Busy));
        assert!(*to == address(2, 0) && answer.len() <= longest);
        assert!(nonces.insert((header.path, header.sequence)));
    }
    let symbols = flight
        .iter()
        .filter(|it| Header::parse(it).unwrap().kind == PacketKind::Symbol);
    assert_eq!(answers.len(), 3 * symbols.count());
    // What holds now counts, and not what was answered.
    pair.ends[0].close(pair.now);
    pair.run(Duration::from_millis(10), |_, _| false);
    assert_eq!(pair.ends[1].statistics().peers_now, 0);
    hand(&mut pair, 1, address(2, 0), &flight);
    assert_eq!(received(&mut pair, 1), 1);
    let again = counts(&pair);
    assert_eq!(again.0, read + 2, "once to read it, and once to accept it");
    assert_eq!(pair.ends[1].router.handshake.offers_remembered(), 0);
}

#[test]
fn who_is_put_on_the_list_is_heard_at_once() {
    let [client, server, listing] = unlisted_and_listing();
    let (mut pair, peer) = pair_of(&[client, server]);
    pair.run(SETTLED, |_, _| false);
    pair.now = pair.now + SETTLED;
    pair.send(peer, 20_000);
    let flight = flight(&mut pair);
    hand(&mut pair, 1, address(0, 0), &flight);
    assert_eq!(counts(&pair), (1, flight.len() - 1));
    let refused = pair.ends[1].statistics().refused;
    assert_eq!(refused.not_allowed as usize, flight.len());
    pair.ends[1].set_security(listing.security).unwrap();
    hand(&mut pair, 1, address(0, 0), &flight);
    let messages = pair.events(1);
    let is_message = |it: &Event| matches!(it, Event::Received { .. });
    assert_eq!(messages.iter().filter(|it| is_message(it)).count(), 1);
    assert_eq!(counts(&pair).0, 2);
}

/// Whose peer is gone, and what we have offered ourselves.
#[test]
fn an_offer_that_was_taken_is_not_read_again() {
    for (mut pair, peer) in settled() {
        pair.send(peer, 20_000);
        let mut flight = Vec::new();
        pair.run(Duration::from_secs(1), |from, datagram| {
            let is_offer = Header::parse(datagram).unwrap().form == Form::Offer;
            flight.extend((from == 0 && is_offer).then(|| datagram.to_vec()));
            false
        });
        assert_eq!(received(&mut pair, 1), 1);
        let before = counts(&pair);
        assert_eq!(before, (1, 0), "the rest goes by the keys of the first");
        pair.ends[0].close(pair.now);
        pair.run(Duration::from_millis(10), |_, _| false);
        hand(&mut pair, 1, address(0, 0), &flight);
        assert_eq!(counts(&pair), before);
        let refused = pair.ends[1].statistics().refused;
        assert_eq!(refused.replayed as usize, flight.len());
        hand(&mut pair, 0, address(1, 0), &flight);
        assert_eq!(pair.ends[0].statistics().offers_read, 0);
    }
}

/// Whoever damages the first datagram of an offer holds off none that come after it.
#[test]
fn a_datagram_that_was_damaged_leaves_its_offer_to_the_next() {
    for (mut pair, peer) in settled() {
        pair.send(peer, 20_000);
        let flight = flight(&mut pair);
        let damaged = flight.iter().map(|datagram| {
            let mut damaged = datagram.clone();
            *damaged.last_mut().unwrap() ^= 1;
            damaged
        });
        let damaged: Vec<_> = damaged.collect();
        hand(&mut pair, 1, address(0, 0), &damaged);
        assert_eq!(counts(&pair), (1, flight.len() - 1));
        hand(&mut pair, 1, address(0, 0), &flight);
        assert_eq!(received(&mut pair, 1), 1);
        assert_eq!(counts(&pair), (2, flight.len()), "once more to accept it");
    }
}
