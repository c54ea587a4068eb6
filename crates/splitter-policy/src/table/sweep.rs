//! Sweeping of the flow table by the agent, while the kernel uses it.

use super::owner::Owner;
use super::{FINISHED_LINGER_NS, GROUP_SLOTS, Group, Layout, Slot};
use crate::flow::{FlowEntry, FlowKey};

/// A flow as it was stored in a slot.
#[derive(Clone, Copy, Debug)]
pub struct StoredFlow {
    /// Its 5-tuple.
    pub key: FlowKey,
    /// What is known of it.
    pub entry: FlowEntry,
    owner: Owner,
}

impl<S: Slot> Group<S> {
    /// Reads the flow in a slot, if there is one and it stays while it is read.
    pub fn read(&self, index: usize, now_ns: u64) -> Option<StoredFlow> {
        let slot = self.slot(index);
        let owner = slot.record().owner();
        if !owner.is_occupied() {
            return None;
        }
        let (key, entry) = (slot.key(owner), slot.record().unpack(owner, now_ns));
        let is_same = slot.record().owner().differs(owner) == 0;
        is_same.then_some(StoredFlow { key, entry, owner })
    }

    /// Removes the flow that `found` was read from, unless a packet came since; true when it did.
    pub fn remove(&self, index: usize, found: &StoredFlow) -> bool {
        let free = Owner(0).with_overflow_of(found.owner);
        exchange(self.slot(index), found.owner, free)
    }

    /// Clears the overflow bit of lines whose flows are all at home again, so that look-ups need
    /// not go beyond them.
    ///
    /// A flow that is displaced in the instant between is not found again: it
    /// starts again, and its old slot expires.
    pub fn clear_overflow(&self, layout: &Layout) {
        let mut lines_with_displaced = 0u32;
        for (index, slot) in self.slots().iter().enumerate() {
            let owner = slot.record().owner();
            if owner.is_claimed() {
                return;
            }
            if owner.is_occupied() {
                let (_, home) = layout.place(&slot.key(owner));
                if home != index & !(S::LINE_SLOTS - 1) {
                    lines_with_displaced |= 1 << home;
                }
            }
        }
        for home in (0..GROUP_SLOTS).step_by(S::LINE_SLOTS) {
            let owner = self.slot(home).record().owner();
            if owner.has_overflow() && lines_with_displaced & (1 << home) == 0 {
                exchange(self.slot(home), owner, owner.without_overflow());
            }
        }
    }
}

/// A flow has expired and may be removed: it is idle, or finished and quiet.
pub const fn is_expired(entry: &FlowEntry, now_ns: u64, idle_timeout_ns: u64) -> bool {
    entry.is_idle(now_ns, idle_timeout_ns)
        || (entry.is_finished() && entry.is_idle(now_ns, FINISHED_LINGER_NS))
}

impl Owner {
    const fn without_overflow(self) -> Self {
        Self(self.0 & !Self(0).with_overflow().0)
    }
}

fn exchange<S: Slot>(slot: &S, old: Owner, new: Owner) -> bool {
    slot.record().owner_word().exchange(old.0, new.0)
}
