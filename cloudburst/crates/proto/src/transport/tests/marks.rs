//! Marks of congestion: what may be marked.

use super::{super::super::*, Pair, address, with_and_without_keys};
use core::time::Duration;

/// Takes all that an end has to send now, and returns the marks of its datagrams.
fn marks(pair: &mut Pair, end: usize) -> Vec<Ecn> {
    let mut out = vec![0; 65_536];
    let mut marks = Vec::new();
    while let Some(transmit) = pair.ends[end].poll_transmit(pair.now, &mut out) {
        marks.push(transmit.ecn);
    }
    assert!(!marks.is_empty());
    marks
}

/// Neither a handshake nor what is sent to where nothing was ever heard is, as no SYN is.
#[test]
fn no_datagram_of_a_first_flight_is_capable_of_ecn() {
    for config in with_and_without_keys() {
        let (mut pair, peer) = Pair::new(&config, 4);
        pair.send(peer, 100_000);
        let first = marks(&mut pair, 0);
        assert!(first.iter().all(|it| *it == Ecn::NotCapable), "{first:?}");
    }
}

#[test]
fn symbols_are_capable_where_something_was_heard_and_answers_never() {
    for config in with_and_without_keys() {
        let (mut pair, peer) = Pair::new(&config, 1);
        pair.send(peer, 100_000);
        pair.run(Duration::from_millis(100), |_, _| false);
        let path = |pair: &Pair| pair.ends[0].paths(pair.now, peer).next().unwrap();
        assert_eq!(path(&pair).ecn, EcnState::Capable);
        pair.send(peer, 5_000);
        let mut out = vec![0; 65_536];
        while let Some(transmit) = pair.ends[0].poll_transmit(pair.now, &mut out) {
            assert_eq!(transmit.ecn, Ecn::Capable);
            let from = FourTuple::new(SocketId(0), address(0, 0));
            for datagram in out[..transmit.bytes].chunks_mut(transmit.segment_bytes) {
                pair.ends[1].handle_datagram(pair.now, from, transmit.ecn, datagram);
            }
        }
        let answers = marks(&mut pair, 1);
        assert!(
            answers.iter().all(|it| *it == Ecn::NotCapable),
            "{answers:?}"
        );
    }
}

/// Where a mark would slow nothing down, none is asked for.
#[test]
fn no_datagram_at_a_reserved_rate_is_capable_of_ecn() {
    let mut config = TransportConfig::unprotected();
    config.congestion = CongestionControl::reserved(1_000_000_000);
    let (mut pair, peer) = Pair::new(&config, 1);
    pair.send(peer, 100_000);
    pair.run(Duration::from_millis(100), |_, _| false);
    pair.send(peer, 100_000);
    let symbols = marks(&mut pair, 0);
    assert!(
        symbols.iter().all(|it| *it == Ecn::NotCapable),
        "{symbols:?}"
    );
}
