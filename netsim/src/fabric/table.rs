//! What leaves know of paths: how long they are, and what ACKs have told of the backlog behind
//! spines.
//!
//! With more than two leaves a spine's port depends on the destination, so backlogs are kept for
//! each (leaf, spine, destination's leaf) and not for each uplink as the paper's text says (A-T2).

/// Paths between all leaves.
#[derive(Debug)]
pub(crate) struct PathTable {
    spines: usize,
    leaves: usize,
    entries: Vec<Known>,
}

/// What a leaf knows of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    /// Of both links together.
    pub(crate) propagation_ns: u32,
    /// What waits behind the spine; 0 before any ACK has told (A-T3).
    pub(crate) far_backlog_ns: u32,
}

impl PathTable {
    /// `propagation_ns` is asked for leaf, spine and destination's leaf.
    pub(crate) fn new(
        leaves: usize,
        spines: usize,
        propagation_ns: impl Fn(usize, usize, usize) -> u32,
    ) -> Self {
        let mut table = Self {
            spines,
            leaves,
            entries: vec![Known::default(); leaves * leaves * spines],
        };
        for leaf in 0..leaves {
            for to_leaf in 0..leaves {
                for spine in 0..spines {
                    let index = table.index(leaf, to_leaf) + spine;
                    table.entries[index].propagation_ns = propagation_ns(leaf, spine, to_leaf);
                }
            }
        }
        table
    }

    /// An ACK from `to_leaf` came over `spine` to `leaf`.
    pub(crate) fn learn(&mut self, leaf: usize, spine: usize, to_leaf: usize, backlog_ns: u64) {
        let index = self.index(leaf, to_leaf) + spine;
        self.entries[index].far_backlog_ns = u32::try_from(backlog_ns).unwrap_or(u32::MAX);
    }

    /// All paths from `leaf` to `to_leaf`, by spine. They lie side by side, as a choice looks at
    /// all of them.
    #[inline]
    pub(crate) fn between(&self, leaf: usize, to_leaf: usize) -> &[Known] {
        let first = self.index(leaf, to_leaf);
        &self.entries[first..first + self.spines]
    }

    fn index(&self, leaf: usize, to_leaf: usize) -> usize {
        (leaf * self.leaves + to_leaf) * self.spines
    }
}
