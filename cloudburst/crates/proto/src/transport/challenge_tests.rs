//! What a demand for a token makes a sender send again: once, and no more than at first.

use core::{num::NonZeroU8, time::Duration};

use super::{super::*, tests::Pair};
use crate::packet::{Header, Key, PacketKind};

/// Datagrams that may leave before anything is known (RFC 6928), and those that pairs add to it.
const FIRST_FLIGHT: usize = 10 + 2;
/// What is sent after this has had an answer: a round trip of the pair is two milliseconds.
const BEFORE_ANSWERS: Duration = Duration::from_micros(3_900);

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
    let key = Key::new(NonZeroU8::MIN, [7; 32]);
    let sealed = TransportConfig::new(Security::shared_key(key));
    for config in [TransportConfig::unprotected(), sealed] {
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
