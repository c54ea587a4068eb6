//! Placement: a long flow is given a path once, and keeps it.

use super::{Balancer, LastPath, MAX_PATHS, Packet, PathId, PathSet, Paths};

/// Places each flow where it is next: in turn, as often as the path's weight
/// says, leaving out paths that are much busier than the least busy one.
///
/// Ask it when a flow turns long; it answers the same for all packets that
/// follow, unless the path fails. Equal paths are taken by turns. Elastic flows
/// fill whatever path they are on, so a little more backlog says little of it
/// and does not count; that and turns do no worse than the emptiest path for
/// equal flows on equal paths, and turns cannot be led astray by a model.
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

/// How far a turn sets a path of weight 1 back.
const STRIDE: u64 = 1 << 32;

/// Whose turn it is, for one set of paths: 128 bytes.
///
/// This is stride scheduling (Waldspurger and Weihl, 1995): a turn sets a path
/// back by the inverse of its weight, and the path that is set back least is next.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    set_back: [u64; MAX_PATHS],
}

/// What [`Placement`] remembers of a flow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlacedFlow {
    path: LastPath,
}

impl Balancer for Placement {
    type Flow = PlacedFlow;
    type Shared = Turns;

    #[inline(always)]
    fn choose<P: Paths + ?Sized>(
        &self,
        turns: &mut Turns,
        flow: &mut PlacedFlow,
        paths: &P,
        _packet: &Packet,
    ) -> PathId {
        let candidates = paths.candidates();
        if let Some(path) = flow.path.within(candidates) {
            return path;
        }
        flow.path
            .set(turns.take(self.not_too_busy(candidates, paths), paths))
    }
}

impl Placement {
    #[inline(always)]
    fn not_too_busy<P: Paths + ?Sized>(&self, candidates: PathSet, paths: &P) -> PathSet {
        let backlog_ns = |path| paths.view(path).local_backlog_ns;
        let most_ns = candidates
            .least_of(backlog_ns)
            .saturating_add(self.tolerance_ns);
        candidates.those(|path| backlog_ns(path) <= most_ns)
    }
}

impl Turns {
    /// How far a path is set back: the least is the next to have its turn.
    #[inline(always)]
    pub const fn set_back(&self, path: PathId) -> u64 {
        self.set_back[path.index()]
    }

    /// A flow whose turn was `from` went to `to` after all.
    #[inline(always)]
    pub fn reassign<P: Paths + ?Sized>(&mut self, from: PathId, to: PathId, paths: &P) {
        let stride = |path| STRIDE / (paths.view(path).weight as u64).max(1);
        let of_from = &mut self.set_back[from.index()];
        *of_from = of_from.saturating_sub(stride(from));
        self.set_back[to.index()] += stride(to);
    }

    #[inline(always)]
    fn take<P: Paths + ?Sized>(&mut self, candidates: PathSet, paths: &P) -> PathId {
        let weight = |path| paths.view(path).weight as u64;
        // A path with no weight is for when nothing else is left.
        let weighted = candidates.those(|path| weight(path) > 0);
        let candidates = if weighted.is_empty() {
            candidates
        } else {
            weighted
        };
        let path = candidates.smallest(&self.set_back).pick(0);
        let present = self.set_back[path.index()];
        // Kept relative to the present, so that nothing overflows, and a path
        // that was left out does not claim all the turns it missed.
        for set_back in &mut self.set_back {
            *set_back = set_back.saturating_sub(present);
        }
        self.set_back[path.index()] = STRIDE / weight(path).max(1);
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balance::{PathView, Snapshot};
    use std::vec::Vec;

    const PACKET: Packet = Packet {
        now_ns: 0,
        bytes: 1_500,
        flow_hash: 0,
    };

    fn weighted(weights: &[u32]) -> Snapshot {
        let paths: Vec<_> = weights
            .iter()
            .map(|&weight| PathView {
                weight,
                ..PathView::default()
            })
            .collect();
        Snapshot::new(&paths)
    }

    fn place(turns: &mut Turns, paths: &Snapshot) -> usize {
        let mut flow = PlacedFlow::default();
        Placement::default()
            .choose(turns, &mut flow, paths, &PACKET)
            .index()
    }

    #[test]
    fn equal_tunnels_take_turns() {
        let (mut turns, paths) = (Turns::default(), weighted(&[100, 100]));
        let placed: Vec<_> = (0..6).map(|_| place(&mut turns, &paths)).collect();
        assert_eq!(placed, [0, 1, 0, 1, 0, 1]);
    }

    #[test]
    fn unequal_tunnels_take_turns_by_weight() {
        let (mut turns, paths) = (Turns::default(), weighted(&[100, 40]));
        let placed: Vec<_> = (0..7_000).map(|_| place(&mut turns, &paths)).collect();
        let first = placed.iter().filter(|&&path| path == 0).count();
        assert!((4_999..=5_001).contains(&first), "{first}");
        // Spread evenly: never more than three in a row.
        assert!(!placed.windows(4).any(|run| run == [0; 4]));
    }

    #[test]
    fn a_flow_that_went_elsewhere_gives_its_turn_back() {
        let (mut turns, paths) = (Turns::default(), weighted(&[100, 100]));
        let [first, second] = [0, 1].map(|index| PathId::new(index).expect("below 16"));
        assert_eq!(place(&mut turns, &paths), 0);
        turns.reassign(first, second, &paths);
        let placed: Vec<_> = (0..4).map(|_| place(&mut turns, &paths)).collect();
        assert_eq!(placed, [0, 0, 1, 0], "the second has had a turn");
    }

    #[test]
    fn a_tunnel_that_was_too_busy_gets_no_burst_afterwards() {
        let (mut turns, mut paths) = (Turns::default(), weighted(&[100, 100]));
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
        let (mut turns, mut paths) = (Turns::default(), weighted(&[100, 40, 0]));
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
