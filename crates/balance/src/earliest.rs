//! The earliest arrival in order: [`Tr::bonding`](crate::Tr::bonding) for hosts with little memory and a
//! small stack.

use super::arithmetic::{less, unforeseen_zero};
use super::random::draw;
use super::{Balancer, LastPath, Packet, PathId, PathSet, Paths};

/// Sends each packet by the path on which it arrives first and not before its flow's last one.
///
/// It chooses as [`Tr::bonding`](crate::Tr::bonding) does, which counts short flows on each path and
/// then does not ask for their number: 16 bytes a flow instead of 56, nothing in common, and no array
/// on the stack of a kernel program.
///
/// Where predictions are right a flow waits for nothing: the path by which a packet arrives first keeps it in order.
/// But a prediction that is mended, a path that comes back or a sender that paused may leave the flow's last packet
/// far ahead, on a path that is slow to drain. A flow that stayed there for order's sake would fill it further with
/// each packet, while the fast path runs empty, until it paused; so order has a [price](Self::patience_ns).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EarliestArrival {
    /// By how much later a packet may arrive for the sake of order. One that would be later still takes the path on
    /// which it arrives first, and overtakes what its flow has under way on others. The default, the largest number
    /// there is, keeps order at any price. TCP bears a quarter of the shortest round trip (RFC 8985).
    pub patience_ns: u64,
    /// Which of equals a flow takes.
    pub seed: u64,
}

impl Default for EarliestArrival {
    fn default() -> Self {
        Self {
            patience_ns: u64::MAX,
            seed: 0,
        }
    }
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

/// The path of a packet, and when it is predicted to arrive by that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Earliest {
    /// The path.
    pub path: PathId,
    /// The time of arrival.
    pub arrives_ns: u64,
    /// The time at which it would arrive by some path if order counted for nothing.
    pub first_ns: u64,
}

impl Earliest {
    /// Returns 1 if the packet arrives later for the sake of order, else 0.
    #[inline(always)]
    pub const fn is_held(self) -> u64 {
        less(self.first_ns, self.arrives_ns)
    }
}

impl EarliestFlow {
    /// Notes that a packet of the flow was sent, which those that follow may not overtake.
    #[inline(always)]
    pub const fn note(&mut self, sent: Earliest) {
        self.arrives_ns = sent.arrives_ns;
        self.last.set(sent.path);
    }

    /// The path of the last packet.
    #[inline(always)]
    pub(crate) const fn last(&self) -> LastPath {
        self.last
    }

    /// The time at which the last packet was predicted to arrive.
    #[inline(always)]
    pub(crate) const fn arrives_ns(&self) -> u64 {
        self.arrives_ns
    }
}

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
        let earliest = self.find(flow, paths, packet);
        flow.note(earliest);
        earliest.path
    }
}

impl EarliestArrival {
    /// Chooses the path of a packet whose flow is not to [`note`](EarliestFlow::note) it before it was
    /// sent; [`choose`](Balancer::choose) has it note it at once.
    #[inline(always)]
    pub fn find<P: Paths + ?Sized>(
        &self,
        flow: &EarliestFlow,
        paths: &P,
        packet: &Packet,
    ) -> Earliest {
        let none = unforeseen_zero(packet.now_ns);
        let unbound = match flow.last.get() {
            Some(last) => 1 << last.index(),
            None => u64::MAX,
        };
        let mut order = InOrder {
            after_ns: flow.arrives_ns.wrapping_add(none),
            unbound: none.wrapping_add(unbound),
            none,
        };
        let mut best = order.best(paths, packet);
        let costs_ns = best.arrives_ns.wrapping_sub(best.first_ns);
        if best.paths.is_empty() || costs_ns > self.patience_ns {
            // The last one's path has failed and no other is in order, or order is too dear.
            order.unbound = none.wrapping_add(u64::MAX);
            best = order.best(paths, packet);
        }
        Earliest {
            path: match best.paths.only() {
                Some(path) => path,
                None => best.paths.pick(draw(self.seed, packet.flow_hash, 0)),
            },
            arrives_ns: best.arrives_ns,
            first_ns: best.first_ns,
        }
    }
}

/// What keeps a packet in order: the time that it must not arrive before, and the bits of the paths that
/// are not bound to it; and zero.
struct InOrder {
    after_ns: u64,
    unbound: u64,
    none: u64,
}

/// The paths by which a packet arrives first in order, and when it would arrive first without.
struct Best {
    arrives_ns: u64,
    paths: PathSet,
    first_ns: u64,
}

impl InOrder {
    /// Goes once through the paths there are, with a branch for each comparison: of few tunnels nearly all
    /// are the same from packet to packet, and a processor foresees them.
    ///
    /// The kernel's verifier tells states of a program apart by numbers that it can foresee, and would follow
    /// each way through the branches by itself: so all that is kept from one path to the next is what it
    /// knows nothing of, whatever way led there.
    #[inline(always)]
    fn best<P: Paths + ?Sized>(&self, paths: &P, packet: &Packet) -> Best {
        let latest_ns = u64::MAX.wrapping_add(self.none);
        let (mut arrives_ns, mut first_ns, mut best) = (latest_ns, latest_ns, self.none);
        let (mut rest, mut unbound) = (u64::from(paths.candidates().bits()), self.unbound);
        for path in PathId::all() {
            if rest == 0 {
                break;
            }
            if rest & 1 != 0 {
                let arrival_ns = paths.arrival_ns(path, packet);
                if arrival_ns < first_ns {
                    first_ns = arrival_ns;
                }
                let is_in_order = arrival_ns >= self.after_ns || unbound & 1 != 0;
                if is_in_order && arrival_ns <= arrives_ns {
                    if arrival_ns < arrives_ns {
                        best = self.none;
                    }
                    arrives_ns = arrival_ns;
                    best = best.wrapping_add(1 << path.index());
                }
            }
            rest >>= 1;
            unbound >>= 1;
        }
        Best {
            arrives_ns,
            paths: PathSet::from_bits(best as u16),
            first_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PathView, ServiceTime, ShortFlows, Snapshot, Tr, TrFlow};
    use proptest::prelude::*;
    use std::vec::Vec;

    #[test]
    fn flow_whose_last_packet_is_far_ahead_leaves_the_slow_path_when_order_is_too_dear() {
        let view = |propagation_ns, local_backlog_ns, mbit: u64| PathView {
            propagation_ns,
            local_backlog_ns,
            service: ServiceTime::from_bits_per_second(mbit * 1_000_000),
            ..PathView::default()
        };
        let (fast, slow) = (view(10_000_000, 0, 30), view(30_000_000, 40_000_000, 8));
        let paths = Snapshot::new(&[fast, slow]);
        let packet = Packet {
            now_ns: 1_000_000_000,
            bytes: 1_500,
            flow_hash: 7,
        };
        let choose = |patience_ns, ahead_ns| {
            let mut flow = EarliestFlow::default();
            flow.note(Earliest {
                path: PathId::all().nth(1).expect("there are 16"),
                arrives_ns: packet.now_ns + ahead_ns,
                first_ns: packet.now_ns,
            });
            let balancer = EarliestArrival {
                patience_ns,
                seed: 0,
            };
            let found = balancer.find(&flow, &paths, &packet);
            let chosen = balancer.choose(&mut (), &mut flow, &paths, &packet);
            assert_eq!(chosen, found.path);
            let is_held = found.is_held() == 1;
            (chosen.index(), is_held, flow.arrives_ns - packet.now_ns)
        };
        // By the slow path it arrives after 71.5 ms, and by the fast one after 10.4 ms: 61.1 ms earlier.
        for patience_ns in [u64::MAX, 61_200_000] {
            let (path, is_held, _) = choose(patience_ns, 70_000_000);
            assert_eq!((path, is_held), (1, true));
        }
        let (path, is_held, arrives_ns) = choose(61_000_000, 70_000_000);
        assert_eq!((path, is_held), (0, false));
        // From there on it is in order again.
        assert!(
            (10_300_000..10_500_000).contains(&arrives_ns),
            "{arrives_ns}"
        );
        // Where the first one is in order, nothing is to be paid.
        let (path, is_held, _) = choose(0, 10_000_000);
        assert_eq!((path, is_held), (0, false));
    }

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
