//! The earliest arrival in order: [`Tr::bonding`](crate::Tr::bonding) for hosts with little memory and a
//! small stack.

use super::arithmetic::{less, min, saturating_add, select};
use super::random::draw;
use super::{Balancer, LastPath, Packet, PathId, PathSet, Paths};

/// Sends each packet by the path on which it arrives first and not before its flow's last one.
///
/// It chooses as [`Tr::bonding`](crate::Tr::bonding) does, which counts short flows on each path and
/// then does not ask for their number: 16 bytes a flow instead of 56, nothing in common, and no array
/// on the stack of a kernel program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EarliestArrival {
    /// Which of equals a flow takes.
    pub seed: u64,
}

/// The state of a flow under [`EarliestArrival`]: 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EarliestFlow {
    /// When the last packet was predicted to arrive.
    arrives_ns: u64,
    last: LastPath,
    reserved: [u8; 7],
}

/// The arrival by a path that is left out. Of all others it is less.
const OUT: u64 = u64::MAX;

impl Balancer for EarliestArrival {
    type Flow = EarliestFlow;
    type Shared = ();

    #[inline(always)]
    fn choose<P: Paths + ?Sized>(
        &self,
        (): &mut (),
        flow: &mut EarliestFlow,
        paths: &P,
        packet: &Packet,
    ) -> PathId {
        let mut order = InOrder {
            candidates: paths.candidates().bits().into(),
            after_ns: flow.arrives_ns,
            last: match flow.last.get() {
                Some(last) => 1 << last.index(),
                None => u64::MAX,
            },
        };
        let mut least_ns = order.least_ns(paths, packet);
        if least_ns == OUT {
            // The last one's path has failed, and no other is in order.
            order.last = u64::MAX;
            least_ns = order.least_ns(paths, packet);
        }
        let best = order.those_at(least_ns, paths, packet);
        let path = match best.only() {
            Some(path) => path,
            None => best.pick(draw(self.seed, packet.flow_hash, 0)),
        };
        flow.arrives_ns = least_ns;
        flow.last.set(path)
    }
}

/// What keeps a packet in order: bits of the paths there are, and of those that need not be late.
struct InOrder {
    candidates: u64,
    after_ns: u64,
    last: u64,
}

impl InOrder {
    /// Predicts the arrival by a path, its own time on the wire counted. Without a branch, which a
    /// kernel's verifier would follow both ways for each path.
    #[inline(always)]
    fn arrival_ns<P: Paths + ?Sized>(&self, path: PathId, paths: &P, packet: &Packet) -> u64 {
        let view = paths.view(path);
        let mut arrival_ns = packet.now_ns;
        for delay_ns in [
            view.propagation_ns,
            view.local_backlog_ns,
            view.remote_backlog_ns,
            view.service.of(packet.bytes as u64),
        ] {
            arrival_ns = saturating_add(arrival_ns, delay_ns);
        }
        let arrival_ns = min(arrival_ns, OUT - 1);
        let is_candidate = self.candidates >> path.index() & 1;
        let is_bound = 1 ^ (self.last >> path.index() & 1);
        let is_out = (1 ^ is_candidate) | (less(arrival_ns, self.after_ns) & is_bound);
        select(is_out, OUT, arrival_ns)
    }

    #[inline(always)]
    fn least_ns<P: Paths + ?Sized>(&self, paths: &P, packet: &Packet) -> u64 {
        let mut least_ns = OUT;
        for path in PathId::all() {
            if cfg!(target_arch = "bpf") || self.candidates >> path.index() & 1 != 0 {
                least_ns = min(least_ns, self.arrival_ns(path, paths, packet));
            }
        }
        least_ns
    }

    #[inline(always)]
    fn those_at<P: Paths + ?Sized>(&self, least_ns: u64, paths: &P, packet: &Packet) -> PathSet {
        let mut bits = 0;
        for path in PathId::all() {
            if cfg!(target_arch = "bpf") || self.candidates >> path.index() & 1 != 0 {
                let arrival_ns = self.arrival_ns(path, paths, packet);
                bits |= (1 ^ less(least_ns, arrival_ns)) << path.index();
            }
        }
        PathSet::from_bits(bits as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PathView, ServiceTime, ShortFlows, Snapshot, Tr, TrFlow};
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        /// Whatever the paths are and become.
        #[test]
        fn chooses_as_tr_does_for_bonding(
            steps in proptest::collection::vec(
                (
                    proptest::collection::vec((0u64..30_000_000, 0u64..9_000_000, 0u64..200), 1..7),
                    0u16..128,
                    0u64..3_000_000,
                    40u32..9_000,
                ),
                1..60,
            ),
        ) {
            let (mut short_flows, mut tr_flow) = (ShortFlows::new(1_000_000), TrFlow::default());
            let (mut flow, mut now_ns) = (EarliestFlow::default(), 1_000);
            for (paths, usable, gap_ns, bytes) in steps {
                now_ns += gap_ns;
                let views: Vec<_> = paths.into_iter().map(|(propagation_ns, local_backlog_ns, mbit)| PathView {
                    propagation_ns,
                    local_backlog_ns,
                    service: ServiceTime::from_bits_per_second(mbit * 1_000_000),
                    ..PathView::default()
                }).collect();
                let mut paths = Snapshot::new(&views);
                paths.usable = PathSet::from_bits(usable);
                let packet = Packet { now_ns, bytes, flow_hash: 7 };
                let expected = Tr::bonding().choose(&mut short_flows, &mut tr_flow, &paths, &packet);
                let chosen = EarliestArrival::default().choose(&mut (), &mut flow, &paths, &packet);
                prop_assert_eq!(chosen, expected);
                prop_assert_eq!(flow.arrives_ns, tr_flow.tnl_ns());
            }
        }
    }
}
