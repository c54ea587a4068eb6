//! Placement of long flows by load: each is given a path once, and keeps it.

use super::{Balancer, LastPath, Packet, PathId, PathSet, Paths};

/// Places each flow where it gets the most: on the path with the least flows for
/// its weight, by turns among equal ones, leaving out paths that are much busier
/// than the least busy one.
///
/// Ask it when a flow turns long; it answers the same for all packets that
/// follow, unless the path fails. Elastic flows fill whatever path they are on and
/// share it, so that a little more backlog says little of a path, and the number
/// of flows says what the next one will get: to join the shortest queue is close to
/// the best that can be done without knowing sizes (Gupta, Harchol-Balter, Sigman
/// and Whitt, "Analysis of join-the-shortest-queue routing for web server farms",
/// 2007). RoundRobin alone do as well for equal flows on equal paths; a slower path they
/// give a share that it takes long to carry while the faster one idles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// How much longer than on the least busy path a packet may wait.
    pub tolerance_ns: u64,
}

impl Placement {
    /// Longer than most queues' ups and downs, shorter than a stuck one's.
    pub const DEFAULT_TOLERANCE_NS: u64 = 20_000_000;
}

impl Default for Placement {
    fn default() -> Self {
        Self {
            tolerance_ns: Self::DEFAULT_TOLERANCE_NS,
        }
    }
}

/// What one flow takes of a path of weight 1: so much that some digits are left
/// where the weight is the greatest there is.
const CROWDING: u64 = 1 << 43;
/// More flows than this do not count: times [`CROWDING`] they do not overflow.
const MOST_FLOWS: u64 = 1 << 20;

/// Whose turn it is among equal paths, for one set of paths: 8 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundRobin {
    /// The path that was chosen last.
    last: LastPath,
    reserved: [u8; 7],
}

/// The path on which [`Placement`] has a flow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlacedFlow {
    path: LastPath,
}

impl Balancer for Placement {
    type Flow = PlacedFlow;
    type Shared = RoundRobin;

    #[inline(always)]
    fn choose<P: Paths + ?Sized>(
        &self,
        turns: &mut RoundRobin,
        flow: &mut PlacedFlow,
        paths: &P,
        _packet: &Packet,
    ) -> PathId {
        let candidates = paths.candidates();
        if let Some(path) = flow.path.within(candidates) {
            return path;
        }
        let path = turns.next(self.best(candidates, paths));
        turns.last.set(path);
        flow.path.set(path)
    }
}

impl Placement {
    /// The best paths for the next flow by what `paths` carry; the round robin decides among them.
    #[inline(always)]
    pub fn best<P: Paths + ?Sized>(&self, candidates: PathSet, paths: &P) -> PathSet {
        let backlog_ns = |path| paths.view(path).local_backlog_ns;
        let most_ns = candidates
            .least_of(backlog_ns)
            .saturating_add(self.tolerance_ns);
        // What one more flow would have of the path, inverted.
        let crowding = |path| {
            let view = paths.view(path);
            if view.local_backlog_ns > most_ns {
                u64::MAX
            } else if view.weight == 0 {
                // For when nothing else is left.
                u64::MAX - 1
            } else {
                let flows = (view.flows as u64 + 1).min(MOST_FLOWS);
                flows * CROWDING / view.weight as u64
            }
        };
        let least = candidates.least_of(crowding);
        candidates.those(|path| crowding(path) == least)
    }
}

impl RoundRobin {
    /// The one of equal paths whose turn it is.
    #[inline(always)]
    pub fn next(&self, equal: PathSet) -> PathId {
        match self.last.get() {
            Some(last) => equal.after(last),
            None => equal.pick(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PathView, Snapshot};
    use proptest::prelude::*;
    use std::vec::Vec;

    const PACKET: Packet = Packet {
        now_ns: 0,
        bytes: 1_500,
        flow_hash: 0,
    };

    fn snapshot(weights: &[u32]) -> Snapshot {
        let paths: Vec<_> = weights
            .iter()
            .map(|&weight| PathView {
                weight,
                ..PathView::default()
            })
            .collect();
        Snapshot::new(&paths)
    }

    fn place(turns: &mut RoundRobin, paths: &Snapshot) -> usize {
        let mut flow = PlacedFlow::default();
        Placement::default()
            .choose(turns, &mut flow, paths, &PACKET)
            .index()
    }

    #[test]
    fn equal_tunnels_take_turns() {
        let (mut turns, paths) = (RoundRobin::default(), snapshot(&[100, 100]));
        let placed: Vec<_> = (0..6).map(|_| place(&mut turns, &paths)).collect();
        assert_eq!(placed, [0, 1, 0, 1, 0, 1]);
    }

    #[test]
    fn unequal_tunnels_fill_in_proportion_the_faster_one_first() {
        let (mut turns, mut paths) = (RoundRobin::default(), snapshot(&[100, 40]));
        let placed: Vec<_> = (0..7)
            .map(|_| {
                let index = place(&mut turns, &paths);
                let path = PathId::new(index).expect("below 16");
                paths.view_mut(path).flows += 1;
                index
            })
            .collect();
        // With two flows a third has 33 of the 100, or all of the 40; the sixth has 20 on either,
        // so that the turn decides.
        assert_eq!(placed, [0, 0, 1, 0, 0, 1, 0]);
    }

    #[test]
    fn fast_tunnels_are_told_apart() {
        // The greatest weight there is, some 2 Tbit/s, and 30 % less.
        let mut paths = snapshot(&[u32::MAX, u32::MAX / 10 * 7]);
        let placed: Vec<_> = (0..17)
            .map(|_| {
                let index = place(&mut RoundRobin::default(), &paths);
                paths.view_mut(PathId::new(index).expect("below 16")).flows += 1;
                index
            })
            .collect();
        assert_eq!(placed.iter().sum::<usize>(), 7);
    }

    proptest! {
        /// No other path would give the flow more.
        #[test]
        fn a_flow_gets_the_most_there_is(rates in proptest::collection::vec((1u32..1_000, 0u32..50), 1..16)) {
            let weights: Vec<_> = rates.iter().map(|it| it.0).collect();
            let mut paths = snapshot(&weights);
            for (index, (_, flows)) in rates.iter().enumerate() {
                paths.view_mut(PathId::new(index).expect("below 16")).flows = *flows;
            }
            let share = |index: usize| f64::from(rates[index].0) / f64::from(rates[index].1 + 1);
            let placed = place(&mut RoundRobin::default(), &paths);
            for index in 0..rates.len() {
                prop_assert!(share(index) <= share(placed) * 1.000_001);
            }
        }
    }

    #[test]
    fn a_tunnel_that_was_too_busy_gets_no_burst_afterwards() {
        let (mut turns, mut paths) = (RoundRobin::default(), snapshot(&[100, 100]));
        let second = PathId::new(1).expect("below 16");
        paths.view_mut(second).local_backlog_ns = Placement::DEFAULT_TOLERANCE_NS + 1;
        assert_eq!(
            (0..100).map(|_| place(&mut turns, &paths)).sum::<usize>(),
            0
        );
        paths.view_mut(second).local_backlog_ns = Placement::DEFAULT_TOLERANCE_NS;
        let placed: Vec<_> = (0..4).map(|_| place(&mut turns, &paths)).collect();
        assert_eq!(placed, [1, 0, 1, 0]);
    }

    #[test]
    fn a_flow_stays_unless_its_tunnel_fails() {
        let (mut turns, mut paths) = (RoundRobin::default(), snapshot(&[100, 40, 0]));
        let (placement, mut flow) = (Placement::default(), PlacedFlow::default());
        let first = placement.choose(&mut turns, &mut flow, &paths, &PACKET);
        paths.view_mut(first).local_backlog_ns = u64::MAX;
        assert_eq!(
            placement.choose(&mut turns, &mut flow, &paths, &PACKET),
            first
        );
        paths.usable.remove(first);
        let second = placement.choose(&mut turns, &mut flow, &paths, &PACKET);
        assert_eq!((first.index(), second.index()), (0, 1));
        paths.usable.insert(first);
        assert_eq!(
            placement.choose(&mut turns, &mut flow, &paths, &PACKET),
            second
        );
        paths.usable = PathSet::from_bits(0b100);
        assert_eq!(
            placement
                .choose(&mut turns, &mut flow, &paths, &PACKET)
                .index(),
            2
        );
    }
}
