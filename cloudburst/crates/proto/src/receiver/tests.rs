//! Messages that arrive, from senders that are made up.

use cloudburst_code::{Encoder, Schedule};

use super::*;
use crate::{
    envelope::{Envelope, EnvelopeKind},
    event::{MessageKind, SocketId},
};

const PEER: PeerId = PeerId::new(0, 0);
const SYMBOL_BYTES: usize = 100;

fn from() -> (PeerId, FourTuple) {
    let remote = ([192, 0, 2, 1], 7).into();
    (PEER, FourTuple::new(SocketId(0), remote))
}

fn receiver(config: &TransportConfig, is_ours: bool) -> Receiver {
    let mut receiver = Receiver::new(config);
    receiver.add_peer(PEER, is_ours);
    receiver
}

/// A message with its envelope, whose last bytes are its check.
fn enveloped(message: &[u8]) -> Vec<u8> {
    let mut bytes = message.to_vec();
    let kind = EnvelopeKind::Message;
    let correlation = 0;
    Envelope { kind, correlation }.append_to(&mut bytes);
    bytes
}

/// The code of a symbol for each datagram that a message takes.
fn symbols(message: &[u8]) -> Vec<Vec<u8>> {
    symbols_of(&enveloped(message))
}

fn symbols_of(bytes: &[u8]) -> Vec<Vec<u8>> {
    let shape = Shape::fitting(bytes.len(), SYMBOL_BYTES).unwrap();
    let encoder = Encoder::new(bytes, shape, Schedule::Mds, 0, 1).unwrap();
    let mut out = vec![0; encoder.datagram_bytes()];
    let write = |sequence: u32| {
        let written = encoder.write(sequence..sequence + 1, &mut out).unwrap();
        out[..written].to_vec()
    };
    (0..shape.symbols() as u32).map(write).collect()
}

/// Hands over all symbols; what the last of them was prepared as, and what came out.
fn receive(
    receiver: &mut Receiver,
    number: u64,
    message: &[u8],
    statistics: &mut TransportStatistics,
) -> (Prepared, Option<(Option<Event>, Answer)>) {
    let mut last = (Prepared::Refused, None);
    for code in symbols(message) {
        let symbol = Symbol {
            message: number,
            code: &code,
        };
        let prepared = receiver.prepare(Time::ZERO, PEER, &symbol, 0, statistics);
        let is_decoded = matches!(prepared, Prepared::Decoder | Prepared::NewDecoder);
        let decode = || receiver.decode(Time::ZERO, from(), &symbol, statistics);
        last = (prepared, is_decoded.then(decode).flatten());
    }
    last
}

#[test]
fn a_message_is_handed_over_once_and_its_later_symbols_are_answered_with_stop() {
    let mut receiver = receiver(&TransportConfig::unprotected(), true);
    let statistics = &mut TransportStatistics::default();
    let message = vec![7; 1_000];
    let (_, received) = receive(&mut receiver, 5, &message, statistics);
    let Some((Some(event), Answer::Stop { needed, .. })) = received else {
        panic!("{received:?}");
    };
    let is_whole = matches!(
        event,
        Event::Received { message: it, kind: MessageKind::Message, .. } if it == message
    );
    assert!(is_whole && needed > 10);
    let stop = Answer::stop(5, Outcome::Delivered);
    let again = receive(&mut receiver, 5, &message, statistics).0;
    assert_eq!(again, Prepared::Answer(stop));
    assert_eq!(receiver.progress(Some(PEER), 5), stop);
    assert_eq!(
        (statistics.incoming_now, receiver.unvalidated_bytes),
        (0, 0)
    );
}

#[test]
fn a_peer_over_its_quota_is_told_to_try_again() {
    let mut config = TransportConfig::unprotected();
    config.quotas.peer_messages = 1;
    let mut receiver = receiver(&config, true);
    let statistics = &mut TransportStatistics::default();
    let codes = symbols(&[7; 1_000]);
    let prepared: Vec<_> = (0..2)
        .map(|message| {
            let code = &codes[0];
            let symbol = Symbol { message, code };
            receiver.prepare(Time::ZERO, PEER, &symbol, 0, statistics)
        })
        .collect();
    let busy = Answer::busy(1, BusyReason::Messages);
    assert_eq!(prepared, [Prepared::NewDecoder, Prepared::Answer(busy)]);
    assert_eq!(statistics.refused.too_many_messages, 1);
}

#[test]
fn a_symbol_without_the_codes_header_and_one_far_behind_are_counted_apart() {
    let mut receiver = receiver(&TransportConfig::unprotected(), true);
    let statistics = &mut TransportStatistics::default();
    let symbol = Symbol {
        message: 1,
        code: &[0; 3],
    };
    let prepared = receiver.prepare(Time::ZERO, PEER, &symbol, 0, statistics);
    assert_eq!(prepared, Prepared::Refused);
    assert_eq!(statistics.refused.bad_symbol, 1);
    receive(&mut receiver, 1 << 40, &[7; 50], statistics);
    let (prepared, _) = receive(&mut receiver, 1, &[7; 50], statistics);
    let stale = Answer::stop(1, Outcome::Stale);
    assert_eq!(prepared, Prepared::Answer(stale));
    assert_eq!(
        (statistics.refused.stale, statistics.refused.bad_symbol),
        (1, 1)
    );
}

#[test]
fn a_message_whose_check_does_not_fit_is_not_handed_over() {
    let mut receiver = receiver(&TransportConfig::unprotected(), true);
    let statistics = &mut TransportStatistics::default();
    let mut bytes = enveloped(&[7; 50]);
    bytes[0] ^= 1;
    let symbols = symbols_of(&bytes);
    let [code] = &symbols[..] else {
        panic!("{symbols:?}");
    };
    let symbol = Symbol { message: 1, code };
    receiver.prepare(Time::ZERO, PEER, &symbol, 0, statistics);
    let received = receiver.decode(Time::ZERO, from(), &symbol, statistics);
    assert!(received.is_none(), "{received:?}");
    assert_eq!(statistics.refused.corrupt_message, 1);
    assert_eq!(statistics.messages_received, 0);
}

#[test]
fn back_pressure_holds_off_strangers_and_no_replies() {
    for (is_ours, is_taken) in [(false, false), (true, true)] {
        let mut receiver = receiver(&TransportConfig::unprotected(), is_ours);
        let capacity = HostCapacity {
            new_messages: 0,
            ..HostCapacity::UNLIMITED
        };
        receiver.set_host_capacity(capacity, core::iter::empty());
        let statistics = &mut TransportStatistics::default();
        let (_, received) = receive(&mut receiver, 1, &[7; 50], statistics);
        assert_eq!(received.is_some(), is_taken);
    }
}

#[test]
fn what_the_host_cannot_take_is_not_delivered_and_is_handed_over_when_it_can() {
    let capacity = |messages, bytes, is_empty| HostCapacity {
        new_messages: 9,
        messages,
        bytes,
        is_empty,
    };
    for too_little in [capacity(0, 5_000, false), capacity(3, 900, false)] {
        let mut receiver = receiver(&TransportConfig::unprotected(), true);
        let statistics = &mut TransportStatistics::default();
        let unseen = core::iter::empty;
        receiver.set_host_capacity(too_little, unseen());
        let message = vec![7; 1_000];
        let busy = Answer::busy(5, BusyReason::Messages);
        for _ in 0..3 {
            let (_, received) = receive(&mut receiver, 5, &message, statistics);
            assert!(
                matches!(&received, Some((None, answer)) if *answer == busy),
                "{received:?}"
            );
            assert_eq!(receiver.progress(Some(PEER), 5), busy);
        }
        assert_eq!(statistics.messages_received, 0);
        // There is capacity for one, but not before an event is seen.
        receiver.set_host_capacity(capacity(1, 1_000, false), [1].into_iter());
        let (_, received) = receive(&mut receiver, 5, &message, statistics);
        assert!(matches!(received, Some((None, _))), "{received:?}");
        receiver.set_host_capacity(capacity(1, 1_000, false), unseen());
        let code = &symbols(&message)[0];
        let symbol = Symbol { message: 5, code };
        let received = receiver.decode(Time::ZERO, from(), &symbol, statistics);
        assert!(matches!(
            received,
            Some((Some(Event::Received { .. }), Answer::Stop { .. }))
        ));
        // An empty host takes one, however long.
        receiver.set_host_capacity(capacity(9, 10, true), unseen());
        let (_, received) = receive(&mut receiver, 6, &message, statistics);
        assert!(matches!(received, Some((Some(_), _))), "{received:?}");
        let (_, received) = receive(&mut receiver, 7, &message, statistics);
        assert!(matches!(received, Some((None, _))), "{received:?}");
    }
}

#[test]
fn incomplete_messages_expire_and_free_their_memory() {
    let mut receiver = receiver(&TransportConfig::unprotected(), false);
    let statistics = &mut TransportStatistics::default();
    let code = &symbols(&[7; 1_000])[0];
    let symbol = Symbol { message: 9, code };
    receiver.prepare(Time::ZERO, PEER, &symbol, 0, statistics);
    receiver.decode(Time::ZERO, from(), &symbol, statistics);
    assert!(receiver.is_receiving(PEER) && receiver.unvalidated_bytes > 0);
    receiver.expire(Time::ZERO + MAX_LIFETIME, PEER, statistics);
    assert!(!receiver.is_receiving(PEER));
    assert_eq!(
        (receiver.unvalidated_bytes, statistics.incoming_bytes_now),
        (0, 0)
    );
    assert_eq!(statistics.refused.expired, 1);
}
