//! ECMP, equal-cost multipath: a flow's hash chooses its path, once and for all.

use super::random::draw;
use super::{Balancer, Packet, PathId, Paths};

/// ECMP by the flow's hash alone, weighted (RFC 2992's hash-threshold).
///
/// When a path fails, its flows are spread over the rest and no others move;
/// when it returns, they do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ecmp {
    /// Other seeds spread the same flows otherwise; switches in a row need
    /// different ones, or the second finds all flows on one of its paths.
    pub seed: u64,
}

impl Balancer for Ecmp {
    type Flow = ();
    type Shared = ();

    #[inline(always)]
    fn choose<P: Paths + ?Sized>(
        &self,
        (): &mut (),
        (): &mut (),
        paths: &P,
        packet: &Packet,
    ) -> PathId {
        let chosen = paths
            .known()
            .pick_weighted(paths, draw(self.seed, packet.flow_hash, 0));
        let candidates = paths.candidates();
        if candidates.contains(chosen) {
            return chosen;
        }
        candidates.pick_weighted(paths, draw(self.seed, packet.flow_hash, 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PathSet, PathView, Snapshot};

    #[test]
    fn a_failed_path_moves_its_own_flows_alone() {
        let equal = PathView {
            weight: 1,
            ..PathView::default()
        };
        let mut paths = Snapshot::new(&[equal; 4]);
        let choose = |paths: &Snapshot, flow_hash| {
            let packet = Packet {
                now_ns: 0,
                bytes: 60,
                flow_hash,
            };
            Ecmp { seed: 3 }.choose(&mut (), &mut (), paths, &packet)
        };
        for flow in 0..1_000 {
            paths.usable = PathSet::first(4);
            let before = choose(&paths, flow);
            paths.usable = PathSet::from_bits(0b1011);
            let after = choose(&paths, flow);
            assert_eq!(before == after, before.index() != 2);
            assert_ne!(after.index(), 2);
        }
    }
}
