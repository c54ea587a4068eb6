//! The path table of leaves: propagation delays, the backlog of their own ports, and the backlog
//! behind spines that ACKs have reported.
//!
//! With more than two leaves a spine's port depends on the destination, so backlogs are kept for
//! each (leaf, spine, destination's leaf) and not for each uplink as the paper's text says (A-T2).
//! What a policy reads for a packet lies side by side, as it looks at all paths.

use flow_balance::{
    Ageing, MAX_PATHS, PathId, PathSet, PathView, Paths, RemoteBacklogs, ServiceTime,
};

/// Paths between all leaves.
#[derive(Debug)]
pub(crate) struct PathTable {
    leaves: usize,
    /// By leaf, then destination's leaf.
    pairs: Vec<Pair>,
    /// Uplinks of each leaf.
    uplinks: Vec<Uplinks>,
    ageing: Ageing,
}

/// The paths from one leaf to another.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct Pair {
    /// Delay and far backlog of each path, while what was heard stays as it is.
    behind_ns: [u64; MAX_PATHS],
    far: RemoteBacklogs,
    propagation_ns: [u32; MAX_PATHS],
    weight: [u32; MAX_PATHS],
    service: [ServiceTime; MAX_PATHS],
    known: PathSet,
    usable: PathSet,
}

/// Times at which each uplink of a leaf will have sent what it holds, in whole ns.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(super) struct Uplinks {
    free_at_ns: [u64; MAX_PATHS],
}

impl Uplinks {
    /// Uplinks with nothing to send.
    pub(super) const IDLE: Self = Self {
        free_at_ns: [0; MAX_PATHS],
    };

    /// The uplink will have sent what it holds at `free_at_ns`.
    pub(super) fn set(&mut self, path: PathId, free_at_ns: u64) {
        self.free_at_ns[path.index()] = free_at_ns;
    }
}

/// The constants of a path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    /// Propagation delay of both links together.
    pub(crate) propagation_ns: u32,
    /// Its share of what is spread by weight.
    pub(crate) weight: u32,
    /// Transmission time of a byte on both links.
    pub(crate) service: ServiceTime,
    /// Both links of the path work.
    pub(crate) usable: bool,
}

impl PathTable {
    /// `path` is asked for leaf, spine and destination's leaf; of spines beyond [`MAX_PATHS`]
    /// nothing is known.
    pub(crate) fn new(
        leaves: usize,
        spines: usize,
        ageing: Ageing,
        path: impl Fn(usize, usize, usize) -> Path,
    ) -> Self {
        let mut pairs = Vec::with_capacity(leaves * leaves);
        for leaf in 0..leaves {
            for to_leaf in 0..leaves {
                pairs.push(Pair::new(spines, |spine| path(leaf, spine, to_leaf)));
            }
        }
        Self {
            leaves,
            pairs,
            uplinks: vec![Uplinks::IDLE; leaves],
            ageing,
        }
    }

    /// A table of a network without leaves.
    pub(crate) fn none() -> Self {
        Self {
            leaves: 0,
            pairs: Vec::new(),
            uplinks: Vec::new(),
            ageing: Ageing::Never,
        }
    }

    /// An ACK from `to_leaf` came over `spine` to `leaf`.
    #[inline]
    pub(crate) fn learn(
        &mut self,
        [leaf, spine, to_leaf]: [usize; 3],
        backlog_ns: u64,
        now_ns: u64,
    ) {
        if let Some(path) = PathId::new(spine) {
            self.pairs[leaf * self.leaves + to_leaf].learn(path, backlog_ns, now_ns);
        }
    }

    /// The uplink will have sent what it holds at `free_at_ns`.
    #[inline]
    pub(crate) fn set_uplink(&mut self, leaf: usize, spine: usize, free_at_ns: u64) {
        if let Some(path) = PathId::new(spine) {
            self.uplinks[leaf].set(path, free_at_ns);
        }
    }

    /// All paths from `leaf` to `to_leaf`, as they are now.
    #[inline]
    pub(crate) fn between(&self, leaf: usize, to_leaf: usize, now_ns: u64) -> PathsBetween<'_> {
        PathsBetween {
            pair: &self.pairs[leaf * self.leaves + to_leaf],
            uplinks: &self.uplinks[leaf],
            ageing: self.ageing,
            now_ns,
        }
    }

    /// Policies learn whether a path between two leaves works.
    pub(crate) fn set_path(&mut self, [leaf, to_leaf]: [usize; 2], path: PathId, usable: bool) {
        let pair = &mut self.pairs[leaf * self.leaves + to_leaf];
        if usable {
            pair.usable.insert(path);
        } else {
            pair.usable.remove(path);
        }
    }

    /// A pair of leaves without a working path, if there is one.
    pub(crate) fn unreachable(&self) -> Option<(usize, usize)> {
        let pairs = self.pairs.iter().enumerate();
        let mut pairs = pairs.map(|(index, pair)| (index / self.leaves, index % self.leaves, pair));
        let (leaf, to_leaf, _) =
            pairs.find(|(leaf, to_leaf, pair)| leaf != to_leaf && pair.usable.is_empty())?;
        Some((leaf, to_leaf))
    }
}

impl Pair {
    pub(super) fn new(spines: usize, path: impl Fn(usize) -> Path) -> Self {
        let mut pair = Self {
            behind_ns: [0; MAX_PATHS],
            far: RemoteBacklogs::default(),
            propagation_ns: [0; MAX_PATHS],
            weight: [0; MAX_PATHS],
            service: [ServiceTime::UNKNOWN; MAX_PATHS],
            known: PathSet::first(spines),
            usable: PathSet::EMPTY,
        };
        for id in pair.known.iter() {
            let path = path(id.index());
            pair.propagation_ns[id.index()] = path.propagation_ns;
            pair.behind_ns[id.index()] = u64::from(path.propagation_ns);
            pair.weight[id.index()] = path.weight;
            pair.service[id.index()] = path.service;
            if path.usable {
                pair.usable.insert(id);
            }
        }
        pair
    }

    /// What is behind a path was reported.
    #[inline]
    pub(super) fn learn(&mut self, path: PathId, backlog_ns: u64, now_ns: u64) {
        self.far.behind_mut(path).report(backlog_ns, now_ns);
        let index = path.index();
        self.behind_ns[index] = u64::from(self.propagation_ns[index]) + backlog_ns;
    }
}

/// The paths between two leaves as they are now, computed as a policy reads them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathsBetween<'a> {
    pair: &'a Pair,
    uplinks: &'a Uplinks,
    ageing: Ageing,
    now_ns: u64,
}

impl<'a> PathsBetween<'a> {
    pub(super) fn new(pair: &'a Pair, uplinks: &'a Uplinks, ageing: Ageing, now_ns: u64) -> Self {
        Self {
            pair,
            uplinks,
            ageing,
            now_ns,
        }
    }
}

impl Paths for PathsBetween<'_> {
    #[inline(always)]
    fn known(&self) -> PathSet {
        self.pair.known
    }

    #[inline(always)]
    fn usable(&self) -> PathSet {
        self.pair.usable
    }

    #[inline(always)]
    fn view(&self, path: PathId) -> PathView {
        let index = path.index();
        PathView {
            propagation_ns: u64::from(self.pair.propagation_ns[index]),
            local_backlog_ns: self.uplinks.free_at_ns[index].saturating_sub(self.now_ns),
            remote_backlog_ns: self.pair.far.behind(path).at(self.now_ns, self.ageing),
            service: self.pair.service[index],
            weight: self.pair.weight[index],
            ..PathView::default()
        }
    }

    #[inline(always)]
    fn arrivals_ns(&self, now_ns: u64) -> [u64; MAX_PATHS] {
        let mut arrivals_ns = match self.ageing {
            Ageing::Never => self.pair.behind_ns,
            Ageing::Drains => PathSet::first(MAX_PATHS).map(0, |path| {
                let far_ns = self.pair.far.behind(path).at(now_ns, Ageing::Drains);
                u64::from(self.pair.propagation_ns[path.index()]) + far_ns
            }),
        };
        for (arrival_ns, free_at_ns) in arrivals_ns.iter_mut().zip(&self.uplinks.free_at_ns) {
            *arrival_ns += (*free_at_ns).max(now_ns);
        }
        arrivals_ns
    }
}

#[cfg(test)]
impl PathTable {
    /// Replays cases in which paths fail meanwhile.
    pub(crate) fn set_usable(&mut self, usable: PathSet) {
        for pair in &mut self.pairs {
            pair.usable = usable;
        }
    }
}
