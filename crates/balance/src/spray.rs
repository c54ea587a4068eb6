//! Packet spraying, blind to order and load: RPS and DRB.

use super::random::draw;
use super::{Balancer, LastPath, Packet, PathId, Paths};

/// Random packet spraying (Dixit et al., INFOCOM 2013): each packet takes a
/// path at random, weighted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rps {
    /// Other seeds spread the same packets otherwise.
    pub seed: u64,
}

/// The spraying state of a flow under [`Rps`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RpsFlow {
    packets: u32,
}

impl Balancer for Rps {
    type Flow = RpsFlow;
    type Shared = ();

    #[inline(always)]
    fn choose<P: Paths + ?Sized>(
        &self,
        (): &mut (),
        flow: &mut RpsFlow,
        paths: &P,
        packet: &Packet,
    ) -> PathId {
        flow.packets = flow.packets.wrapping_add(1);
        let random = draw(self.seed, packet.flow_hash, flow.packets);
        paths.candidates().pick_weighted(paths, random)
    }
}

/// Round robin per packet (DRB: Cao et al., CoNEXT 2013).
///
/// DRB goes through the spines in the order of their reversed digits, for each
/// pair of hosts. In a fabric of two levels a spine has one digit, so the order
/// is that of the numbers; and a flow stands for its pair of hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drb {
    /// Decides where each flow starts.
    pub seed: u64,
}

/// The spraying state of a flow under [`Drb`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrbFlow {
    last: LastPath,
}

impl Balancer for Drb {
    type Flow = DrbFlow;
    type Shared = ();

    #[inline(always)]
    fn choose<P: Paths + ?Sized>(
        &self,
        (): &mut (),
        flow: &mut DrbFlow,
        paths: &P,
        packet: &Packet,
    ) -> PathId {
        let candidates = paths.candidates();
        flow.last.set(match flow.last.get() {
            Some(last) => candidates.after(last),
            None => candidates.pick(draw(self.seed, packet.flow_hash, 0)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MAX_PATHS, PathSet, PathView, Snapshot};

    const PACKET: Packet = Packet {
        now_ns: 0,
        bytes: 1_500,
        flow_hash: 7,
    };

    fn ten_paths() -> Snapshot {
        let path = PathView {
            weight: 1,
            ..PathView::default()
        };
        Snapshot::new(&[path; 10])
    }

    #[test]
    fn rps_uses_all_paths_alike() {
        let (mut flow, mut packets) = (RpsFlow::default(), [0; MAX_PATHS]);
        for _ in 0..10_000 {
            let path = Rps { seed: 1 }.choose(&mut (), &mut flow, &ten_paths(), &PACKET);
            packets[path.index()] += 1;
        }
        assert!(
            packets[..10]
                .iter()
                .all(|count| (850..1_150).contains(count)),
            "{packets:?}"
        );
    }

    #[test]
    fn drb_goes_round_and_leaves_out_what_failed() {
        let (mut paths, mut flow, mut packets) = (ten_paths(), DrbFlow::default(), [0; MAX_PATHS]);
        paths.usable = PathSet::from_bits(0b11_1110_1111);
        for _ in 0..900 {
            let path = Drb { seed: 1 }.choose(&mut (), &mut flow, &paths, &PACKET);
            packets[path.index()] += 1;
        }
        for path in PathId::all() {
            let turns = if paths.usable.contains(path) { 100 } else { 0 };
            assert_eq!(packets[path.index()], turns);
        }
    }
}
