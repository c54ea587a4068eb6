//! The earliest arrival in order: [`Tr::bonding`](crate::Tr::bonding) for hosts with little memory and a
//! small stack.

use super::arithmetic::unforeseen_zero;
use super::random::draw;
use super::{Balancer, LastPath, MAX_PATHS, Packet, PathId, PathSet, Paths};

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
        (self.first_ns < self.arrives_ns) as u64
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
    ///
    /// The path of the flow's last packet comes first. Mostly it is still the best, and then no more is computed of
    /// each other one than it takes to see that [it is not](Paths::delay_within_ns).
    #[inline(always)]
    pub fn find<P: Paths + ?Sized>(
        &self,
        flow: &EarliestFlow,
        paths: &P,
        packet: &Packet,
    ) -> Earliest {
        let none = unforeseen_zero(packet.now_ns);
        let candidates = u64::from(paths.candidates().bits());
        let mut best = Best {
            in_order: Equals::of_none(none),
            first_ns: none.wrapping_sub(1),
            none,
        };
        let (mut rest, mut after_ns) = (candidates, none);
        if let Some(last) = flow.last.get() {
            after_ns = none.wrapping_add(flow.arrives_ns);
            let own = 1 << last.index();
            if candidates & own != 0
                && let Some(delay_ns) = paths.delay_within_ns(last, packet, u64::MAX)
            {
                // Nothing overtakes on the path of what went before it.
                best.in_order.take(last, delay_ns, none);
                best.first_ns = delay_ns;
                rest &= !own;
            }
        }
        best.search(rest, after_ns, paths, packet);
        let (mut chosen, first_ns) = (best.in_order, best.first_ns);
        if chosen.paths == 0 || chosen.delay_ns.wrapping_sub(first_ns) > self.patience_ns {
            // The last one's path has failed and no other is in order, or order is too dear.
            chosen = Equals::first_of(candidates, paths, packet, none);
        }
        let is_one = chosen.paths & chosen.paths.wrapping_sub(1) == 0;
        Earliest {
            path: if is_one {
                PathId::from_low_bits(chosen.path)
            } else {
                let equals = PathSet::from_bits(chosen.paths as u16);
                equals.pick(draw(self.seed, packet.flow_hash, 0))
            },
            arrives_ns: packet.now_ns.wrapping_add(chosen.delay_ns),
            first_ns: packet.now_ns.wrapping_add(first_ns),
        }
    }
}

/// The paths by which a packet arrives first in order, of those that were looked at.
///
/// The kernel's verifier tells states of a program apart by numbers that it can foresee, and would follow
/// each way through the branches by itself: so all that is kept from one path to the next is what it
/// knows nothing of, whatever way led there.
struct Best {
    in_order: Equals,
    /// How long after it came it would arrive first if order counted for nothing.
    first_ns: u64,
    /// Zero.
    none: u64,
}

/// Paths by which a packet arrives at the same time.
#[derive(Clone, Copy)]
struct Equals {
    /// How long after it came.
    delay_ns: u64,
    /// A bit for each of them.
    paths: u64,
    /// The number of the last one that was found: to find a single bit takes the kernel's machine thirty instructions.
    path: u64,
}

impl Equals {
    #[inline(always)]
    const fn of_none(none: u64) -> Self {
        Self {
            delay_ns: none.wrapping_sub(1),
            paths: none,
            path: none,
        }
    }

    /// The earliest of the paths, whatever order says. Seldom asked for: each is looked at as a whole, for the verifier follows
    /// every way to leave one off.
    #[inline(always)]
    fn first_of<P: Paths + ?Sized>(mut rest: u64, paths: &P, packet: &Packet, none: u64) -> Self {
        let mut first = Self::of_none(none);
        for path in PathId::all() {
            if rest == 0 {
                break;
            }
            if rest & 1 != 0 {
                let delay_ns = paths.arrival_ns(path, packet).wrapping_sub(packet.now_ns);
                if delay_ns <= first.delay_ns {
                    first.take(path, delay_ns, none);
                }
            }
            rest >>= 1;
        }
        first
    }

    /// Takes a path that is no later than those that are here, in the place of those that are.
    #[inline(always)]
    const fn take(&mut self, path: PathId, delay_ns: u64, none: u64) {
        if delay_ns < self.delay_ns {
            self.paths = none;
        }
        self.delay_ns = delay_ns;
        self.paths = self.paths.wrapping_add(1 << path.index());
        self.path = none.wrapping_add(path.index() as u64);
    }
}

/// How many paths are looked at before it is asked if there are more.
const TOGETHER: usize = 4;

impl Best {
    /// Goes once through the paths in `rest`, on which a packet must not arrive before `after_ns`; with a branch for each
    /// comparison: of few tunnels nearly all are the same from packet to packet, and a processor foresees them.
    #[inline(always)]
    fn search<P: Paths + ?Sized>(
        &mut self,
        mut rest: u64,
        after_ns: u64,
        paths: &P,
        packet: &Packet,
    ) {
        for group in 0..MAX_PATHS / TOGETHER {
            if rest == 0 {
                break;
            }
            for of in 0..TOGETHER {
                let Some(path) = PathId::new(group * TOGETHER + of) else {
                    continue;
                };
                // What is later than the best in order is not the first of all either.
                let most_ns = self.in_order.delay_ns;
                if rest >> of & 1 != 0
                    && let Some(delay_ns) = paths.delay_within_ns(path, packet, most_ns)
                {
                    if delay_ns < self.first_ns {
                        self.first_ns = delay_ns;
                    }
                    let is_in_order = packet.now_ns.wrapping_add(delay_ns) >= after_ns;
                    if is_in_order && delay_ns <= most_ns {
                        self.in_order.take(path, delay_ns, self.none);
                    }
                }
            }
            rest >>= TOGETHER;
        }
    }
}

#[cfg(test)]
mod oracle;

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

    /// Few different numbers, so that paths are often equal and order often at its price.
    fn path_view() -> impl Strategy<Value = PathView> {
        let near = (0u64..4, 0u64..4, 0u64..3).prop_map(|(far, queued, mbit)| PathView {
            propagation_ns: 1_000_000 * far,
            local_backlog_ns: 1_000_000 * queued,
            service: ServiceTime::from_bits_per_second(12_000_000 * mbit),
            ..PathView::default()
        });
        let any = any::<[u64; 4]>().prop_map(|[far, queued, behind, rate]| PathView {
            propagation_ns: far,
            local_backlog_ns: queued,
            remote_backlog_ns: behind,
            service: ServiceTime::from_bits_per_second(rate),
            ..PathView::default()
        });
        prop_oneof![9 => near, 1 => any]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_096))]

        /// Whatever the paths are, and whatever the flow has noted.
        #[test]
        fn chooses_bit_for_bit_as_a_search_of_all_paths(
            views in proptest::collection::vec(path_view(), 1..=MAX_PATHS),
            usable in prop_oneof![Just(u16::MAX), any::<u16>()],
            (last, ahead_ns) in (0usize..=MAX_PATHS, prop_oneof![(0u64..9).prop_map(|ms| ms * 500_000), any::<u64>()]),
            patience_ns in prop_oneof![Just(u64::MAX), Just(0), 0u64..5_000_000, Just(1_000_000)],
            (now_ns, bytes, flow_hash) in (prop_oneof![Just(1_000_000_000), any::<u64>()], prop_oneof![Just(1_500), any::<u32>()], any::<u64>()),
            seed: u64,
        ) {
            let mut paths = Snapshot::new(&views);
            paths.usable = PathSet::from_bits(usable);
            // Also what no flow has noted: a time without a path.
            let mut flow = EarliestFlow {
                arrives_ns: now_ns.wrapping_add(ahead_ns),
                ..EarliestFlow::default()
            };
            if let Some(last) = PathId::new(last) {
                flow.last.set(last);
            }
            let balancer = EarliestArrival { patience_ns, seed };
            let packet = Packet { now_ns, bytes, flow_hash };
            let found = balancer.find(&flow, &paths, &packet);
            prop_assert_eq!(found, oracle::find(&balancer, &flow, &paths, &packet));
        }
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
