//! What a demand for a token makes a sender send again: once, no more than at first, and nothing in a conversation.

use core::{num::NonZeroU8, time::Duration};

use super::{
    super::*,
    sealed_tests::hand,
    tests::{Pair, address},
};
use crate::packet::{
    Challenge, Form, Header, Key, PacketKind, STATELESS_PATH, Sealer, Stamp, TOKEN_BYTES,
};

/// Datagrams that may leave before anything is known (RFC 6928), and those that pairs add to it.
const FIRST_FLIGHT: usize = 10 + 2;
/// What is sent after this has had an answer: a round trip of the pair is two milliseconds.
const BEFORE_ANSWERS: Duration = Duration::from_micros(3_900);

fn sealed() -> TransportConfig {
    let key = Key::new(NonZeroU8::MIN, [7; 32]);
    TransportConfig::new(Security::shared_key(key))
}

/// Symbols that leave before the second flight can be answered, and demands for a token.
fn symbols_and_demands(config: &TransportConfig, sockets: u16) -> (usize, usize) {
    let mut server = config.clone();
    server.require_validation = true;
    let (mut pair, peer) = Pair::of([config, &server], sockets);
    pair.send(peer, 300_000);
    let (mut symbols, mut demands) = (0, 0);
    pair.run(BEFORE_ANSWERS, |from, datagram| {
        let header = Header::parse(datagram).unwrap();
        symbols += usize::from(from == 0 && header.kind == PacketKind::Symbol);
        demands += usize::from(from == 1 && header.kind == PacketKind::Challenge);
        false
    });
    let so_far = (symbols, demands);
    pair.run(Duration::from_secs(5), |_, _| false);
    let delivered = pair
        .events(0)
        .into_iter()
        .any(|event| matches!(event, Event::Delivered { .. }));
    assert!(delivered, "it arrives all the same");
    so_far
}

#[test]
fn demands_for_a_token_let_the_first_flight_leave_twice_however_many_come() {
    for config in [TransportConfig::unprotected(), sealed()] {
        for sockets in [1, 4, 16] {
            let (symbols, demands) = symbols_and_demands(&config, sockets);
            assert!(demands > 1, "{demands} demands");
            let is_sealed = !config.security.is_unprotected();
            assert!(
                symbols > FIRST_FLIGHT && symbols <= 2 * FIRST_FLIGHT,
                "{symbols} symbols, {demands} demands, {sockets} sockets, sealed: {is_sealed}"
            );
        }
    }
}

/// A demand for a token, as anybody can make it who sees what index is spoken to.
fn forged(index: u64) -> Vec<u8> {
    let mut datagram = vec![0; 100];
    let stamp = Stamp {
        path: STATELESS_PATH,
        sent_us: 0,
        sequence: 0,
    };
    let token = [1; TOKEN_BYTES];
    let challenge = |body: &mut [u8]| Challenge { token }.write(index, body);
    let written = Sealer::retry(index).write(stamp, &mut datagram, challenge);
    datagram.truncate(written.unwrap());
    datagram
}

/// Symbols that two messages take, and demands that were forged while the second was under way.
fn symbols_beside_forgeries(is_forged: bool) -> (usize, usize) {
    let (mut pair, peer) = Pair::new(&sealed(), 4);
    // Later than a server asks for tokens.
    pair.now = pair.now + Duration::from_secs(11);
    let (mut symbols, mut demands) = (0, 0);
    for is_second in [false, true] {
        pair.send(peer, 300_000);
        let mut is_over = false;
        while !is_over {
            let mut indices = Vec::new();
            pair.run(Duration::from_micros(100), |from, datagram| {
                let header = Header::parse(datagram).unwrap();
                let is_symbol = from == 0 && header.kind == PacketKind::Symbol;
                symbols += usize::from(is_symbol);
                if is_symbol && header.form == Form::Data {
                    indices.push(header.session);
                }
                false
            });
            indices.retain(|_| is_forged && is_second);
            demands += indices.len();
            let datagrams: Vec<_> = indices.into_iter().map(forged).collect();
            hand(&mut pair, 0, address(1, 0), &datagrams);
            let mut events = pair.events(0).into_iter();
            is_over = events.any(|event| matches!(event, Event::Delivered { .. }));
        }
    }
    (symbols, demands)
}

#[test]
fn forged_demands_in_a_conversation_let_nothing_leave_again() {
    let (symbols, none) = symbols_beside_forgeries(false);
    let (beside, demands) = symbols_beside_forgeries(true);
    assert!(none == 0 && demands > 100, "{demands} demands");
    assert!(beside <= symbols + 2, "{beside} symbols, {symbols} without");
}
