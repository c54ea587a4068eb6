//! What leaves have learnt from ACKs of the backlog behind spines.
//!
//! With more than two leaves a spine's port depends on the destination, so the table is kept for
//! each (leaf, spine, destination's leaf) and not for each uplink as the paper's text says (A-T2).

/// Backlogs of spines' ports, as each leaf knows them.
#[derive(Debug)]
pub(crate) struct FarBacklogs {
    spines: usize,
    leaves: usize,
    ns: Vec<u32>,
}

impl FarBacklogs {
    pub(crate) fn new(leaves: usize, spines: usize) -> Self {
        Self {
            spines,
            leaves,
            ns: vec![0; leaves * leaves * spines],
        }
    }

    /// An ACK from `to_leaf` came over `spine` to `leaf`.
    pub(crate) fn learn(&mut self, leaf: usize, spine: usize, to_leaf: usize, backlog_ns: u64) {
        let index = self.index(leaf, spine, to_leaf);
        self.ns[index] = u32::try_from(backlog_ns).unwrap_or(u32::MAX);
    }

    /// What `leaf` believes to wait behind `spine` towards `to_leaf`; 0 before any ACK (A-T3).
    pub(crate) fn of(&self, leaf: usize, spine: usize, to_leaf: usize) -> u64 {
        u64::from(self.ns[self.index(leaf, spine, to_leaf)])
    }

    /// Paths between the same leaves lie side by side: a choice looks at all of them.
    fn index(&self, leaf: usize, spine: usize, to_leaf: usize) -> usize {
        (leaf * self.leaves + to_leaf) * self.spines + spine
    }
}
