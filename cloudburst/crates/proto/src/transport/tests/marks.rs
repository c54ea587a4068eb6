//! Marks of congestion.

use super::{super::super::*, Pair, with_and_without_keys};

#[test]
fn no_datagram_is_sent_as_capable_of_ecn() {
    for config in with_and_without_keys() {
        let (mut pair, peer) = Pair::new(&config, 4);
        pair.send(peer, 100_000);
        let mut out = vec![0; 65_536];
        let mut sent = 0;
        while let Some(transmit) = pair.ends[0].poll_transmit(pair.now, &mut out) {
            assert_eq!(transmit.ecn, Ecn::NotCapable);
            sent += transmit.bytes;
        }
        assert!(sent > 0);
    }
}
