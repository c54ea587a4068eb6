//! Pairs of endpoints for tests of what comes after the first flight.

use core::time::Duration;

use super::{
    super::{
        packet::{Header, PacketKind},
        *,
    },
    sealed_tests::{SETTLED, shared_key},
    tests::Pair,
};

/// Two endpoints that are older than first flights are doubted after a start.
pub(super) fn settled(config: &TransportConfig) -> (Pair, PeerId) {
    let (mut pair, peer) = Pair::new(config, 2);
    pair.now = pair.now + SETTLED;
    (pair, peer)
}

/// Two endpoints that know each other, what the second is to the first, and the first to the second.
pub(super) fn acquainted(config: &TransportConfig) -> (Pair, PeerId, PeerId) {
    let (mut pair, peer) = settled(config);
    pair.send(peer, 1_000);
    pair.run(Duration::from_secs(1), |_, _| false);
    let events = pair.events(1);
    let [Event::Received { peer: first, .. }] = events[..] else {
        panic!("{events:?}");
    };
    pair.events(0);
    (pair, peer, first)
}

/// Such endpoints without keys and with keys.
pub(super) fn of_both_kinds() -> impl Iterator<Item = (Pair, PeerId, PeerId)> {
    [TransportConfig::unprotected(), shared_key(3)]
        .into_iter()
        .map(|mut config| {
            config.congestion = CongestionControl::reserved(1_000_000_000);
            acquainted(&config)
        })
}

pub(super) fn kind(datagram: &[u8]) -> PacketKind {
    Header::parse(datagram).unwrap().kind
}

pub(super) fn is_symbol(datagram: &[u8]) -> bool {
    kind(datagram) == PacketKind::Symbol
}
