//! Flows that keep to paths of their own, next to flows that choose among all.

use super::{Balancer, Earliest, EarliestFlow, Ecmp, Packet, PathId, PathSet, PathView, Paths};

/// Keeps each flow on one of some paths, by a hash of the flow, weighted.
///
/// A flow may have chosen among all paths before. It then stays where its last packet went until its own path keeps it in
/// order; as for any other [earliest arrival](crate::EarliestArrival), order has a price, beyond which the flow
/// overtakes itself once. Each packet that it sends there makes it stay: where a path is longer than its own by less
/// than that price, it goes home in its first pause that is as long as the difference.
///
/// While none of its own paths is usable, a flow takes one of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnPaths {
    /// The paths of the flows.
    pub own: PathSet,
    /// By how much later a packet may arrive for the sake of [order](crate::EarliestArrival::patience_ns).
    pub patience_ns: u64,
    /// Other seeds spread the same flows otherwise.
    pub seed: u64,
}

impl OwnPaths {
    /// Finds the path of a packet, and when it arrives by that. Its flow is to [note](EarliestFlow::note) it
    /// once it was sent.
    #[inline(always)]
    pub fn find<P: Paths + ?Sized>(
        &self,
        flow: &EarliestFlow,
        paths: &P,
        packet: &Packet,
    ) -> Earliest {
        self.in_order(self.pick(paths, packet), flow, paths, packet)
    }

    /// Picks the path that the packet's flow is to keep to: the first part of [`find`](Self::find), by itself for a
    /// host that has each checked once.
    #[inline(always)]
    pub fn pick<P: Paths + ?Sized>(&self, paths: &P, packet: &Packet) -> PathId {
        let has_own = !self.own.and(paths.usable()).is_empty();
        let among = Among {
            paths,
            known: if has_own { self.own } else { paths.known() },
        };
        Ecmp { seed: self.seed }.choose(&mut (), &mut (), &among, packet)
    }

    /// Leaves the flow where it is if it would overtake itself by its own path: the second part.
    #[inline(always)]
    pub fn in_order<P: Paths + ?Sized>(
        &self,
        own: PathId,
        flow: &EarliestFlow,
        paths: &P,
        packet: &Packet,
    ) -> Earliest {
        let first_ns = paths.arrival_ns(own, packet);
        let (path, arrives_ns) = match flow.last().within(paths.candidates()) {
            Some(last) if self.waits_for(flow, first_ns) && last.index() != own.index() => {
                (last, paths.arrival_ns(last, packet))
            }
            _ => (own, first_ns),
        };
        Earliest {
            path,
            arrives_ns,
            first_ns,
        }
    }

    /// Tells if a packet that would arrive at this time would overtake its flow, and order is not too dear.
    #[inline(always)]
    const fn waits_for(&self, flow: &EarliestFlow, arrives_ns: u64) -> bool {
        let ahead_ns = flow.arrives_ns().saturating_sub(arrives_ns);
        ahead_ns > 0 && ahead_ns <= self.patience_ns
    }
}

/// Some of a host's paths, as if there were no others.
struct Among<'a, P: ?Sized> {
    paths: &'a P,
    known: PathSet,
}

impl<P: Paths + ?Sized> Paths for Among<'_, P> {
    #[inline(always)]
    fn known(&self) -> PathSet {
        self.known
    }

    #[inline(always)]
    fn usable(&self) -> PathSet {
        self.paths.usable()
    }

    #[inline(always)]
    fn view(&self, path: PathId) -> PathView {
        self.paths.view(path)
    }

    #[inline(always)]
    fn weight(&self, path: PathId) -> u32 {
        self.paths.weight(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EarliestArrival, ServiceTime, Snapshot};
    use proptest::prelude::*;
    use std::vec::Vec;

    const SECOND_AND_THIRD: PathSet = PathSet::from_bits(0b110);

    fn own_paths(patience_ns: u64) -> OwnPaths {
        OwnPaths {
            own: SECOND_AND_THIRD,
            patience_ns,
            seed: 3,
        }
    }

    /// Three paths, each 10 ms longer than the one before, of which the third has three times the weight.
    fn snapshot() -> Snapshot {
        let view = |propagation_ns, weight| PathView {
            propagation_ns,
            weight,
            ..PathView::default()
        };
        Snapshot::new(&[
            view(10_000_000, 1),
            view(20_000_000, 1),
            view(30_000_000, 3),
        ])
    }

    fn packet(flow_hash: u64, now_ns: u64) -> Packet {
        Packet {
            now_ns,
            bytes: 1_500,
            flow_hash: flow_hash.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        }
    }

    fn paths_of_new_flows(paths: &Snapshot) -> Vec<usize> {
        let flow = EarliestFlow::default();
        let found = |hash| own_paths(u64::MAX).find(&flow, paths, &packet(hash, 1));
        (0..4_000).map(|hash| found(hash).path.index()).collect()
    }

    #[test]
    fn flows_are_spread_over_their_own_paths_by_weight_and_over_others_while_none_is_usable() {
        let mut paths = snapshot();
        let all = paths_of_new_flows(&paths);
        let by = |chosen: &[usize], path| chosen.iter().filter(|it| **it == path).count();
        assert_eq!(by(&all, 0), 0);
        assert!((900..1_100).contains(&by(&all, 1)), "{}", by(&all, 1));

        paths.usable = PathSet::from_bits(0b011);
        let one_dead = paths_of_new_flows(&paths);
        assert_eq!(by(&one_dead, 1), 4_000);

        paths.usable = PathSet::from_bits(0b001);
        assert_eq!(by(&paths_of_new_flows(&paths), 0), 4_000);

        // Nobody is stopped by a wrong suspicion.
        paths.usable = PathSet::from_bits(0);
        assert_eq!(paths_of_new_flows(&paths).len(), 4_000);

        paths.usable = PathSet::first(3);
        assert_eq!(paths_of_new_flows(&paths), all);
    }

    #[test]
    fn flow_comes_to_its_own_path_once_that_keeps_it_in_order_or_order_is_too_dear() {
        let mut paths = snapshot();
        paths.usable = PathSet::from_bits(0b011);
        let (first, second) = (PathId::from_low_bits(0), PathId::from_low_bits(1));
        let mut flow = EarliestFlow::default();
        // Its last packet waits in front of the first path, and arrives after 45 ms.
        flow.note(Earliest {
            path: first,
            arrives_ns: 45_000_000,
            first_ns: 45_000_000,
        });
        // By its own path it arrives after 20 ms.
        for now_ns in [0, 24_999_999] {
            let found = own_paths(25_000_000).find(&flow, &paths, &packet(1, now_ns));
            assert_eq!((found.path, found.is_held()), (first, 0));
        }
        for (patience_ns, now_ns) in [(25_000_000, 25_000_000), (24_999_999, 0)] {
            let found = own_paths(patience_ns).find(&flow, &paths, &packet(1, now_ns));
            assert_eq!(found.path, second);
        }
        // A path that has failed holds nobody.
        paths.usable = PathSet::from_bits(0b010);
        let found = own_paths(u64::MAX).find(&flow, &paths, &packet(1, 0));
        assert_eq!(found.path, second);
    }

    proptest! {
        /// A flow that has chosen among all paths and then keeps to its own, or the other way round, over FIFOs
        /// that hold what was put there.
        #[test]
        fn no_flow_overtakes_itself_when_it_comes_to_its_own_paths_or_leaves_them(
            turns_at in 1usize..40,
            begins_with_own: bool,
            steps in proptest::collection::vec((0u64..2_000_000, 40u32..9_000), 41..80),
        ) {
            let service = ServiceTime::from_bits_per_second(20_000_000);
            let mut free_at_ns = [0u64; 3];
            let (mut flow, mut now_ns, mut last_ns) = (EarliestFlow::default(), 1_000, 0);
            for (index, (gap_ns, bytes)) in steps.into_iter().enumerate() {
                now_ns += gap_ns;
                let mut paths = snapshot();
                for (path, free_ns) in PathId::all().zip(free_at_ns) {
                    let view = paths.view_mut(path);
                    view.local_backlog_ns = free_ns.saturating_sub(now_ns);
                    view.service = service;
                }
                let packet = Packet { now_ns, bytes, flow_hash: 7 };
                let found = if (index < turns_at) == begins_with_own {
                    own_paths(u64::MAX).find(&flow, &paths, &packet)
                } else {
                    EarliestArrival::default().find(&flow, &paths, &packet)
                };
                flow.note(found);
                let path = found.path.index();
                free_at_ns[path] = free_at_ns[path].max(now_ns) + service.of(bytes.into());
                let arrives_ns = free_at_ns[path] + paths.view(found.path).propagation_ns;
                prop_assert_eq!(arrives_ns, found.arrives_ns);
                prop_assert!(arrives_ns >= last_ns, "{} before {}", arrives_ns, last_ns);
                last_ns = arrives_ns;
            }
        }
    }
}
