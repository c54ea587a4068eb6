//! Flows of a table that another build has filled, for one of this build.
//!
//! The tables outlive the agent, and an agent of another build has to know how they are laid out: where a
//! flow's slot is, what is in it, and how that is packed. All of it together has a *version*.
//!
//! | version | differs from the one before |
//! |---|---|
//! | 1 | of all builds before tables said their version |
//! | 2 | a short flow's record has the index of its threshold, in bits that were 0 in all but counts of 2^31 packets |
//!
//! A change of anything that [`Slot`], [`Record`](super::Record), [`Tags`](super::Tags) or [`Layout`](super::Layout)
//! say of a flow is another version, and needs a line here and in [`upgraded`].

use super::owner::Owner;
use super::{Group, Memory, Record, Slot, SlotGuard, Table, Tags, is_expired};
use crate::flow::{FlowEntry, FlowKey};

/// The version of the tables that this build fills.
pub const TABLE_VERSION: u32 = 2;

/// The version of tables that do not say theirs.
pub const UNSTATED_TABLE_VERSION: u32 = 1;

/// The words of a flow's record: owner, first and second.
type Words = [u64; 3];

/// Turns the words of a record of another version into those of this one; `None` where this build does not
/// know that version.
#[must_use]
pub const fn upgraded(version: u32, words: Words) -> Option<Words> {
    match version {
        1 | TABLE_VERSION => Some(words),
        _ => None,
    }
}

/// A flow of another table, as this build would have stored it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InheritedFlow {
    /// Its 5-tuple.
    pub key: FlowKey,
    pub(super) words: Words,
}

impl<S: Slot> Group<S> {
    /// Reads the flow in a slot of a table of that version, if there is one and this build knows the
    /// version. Programs may go on counting meanwhile.
    pub fn inherited(&self, index: usize, version: u32) -> Option<InheritedFlow> {
        let slot = self.slot(index);
        let words = upgraded(version, slot.record().words())?;
        let owner = Owner(words[0]);
        if !owner.is_occupied() || slot.record().owner().differs(owner) != 0 {
            return None;
        }
        let key = slot.key(owner);
        Some(InheritedFlow { key, words })
    }
}

impl<M: Memory> Table<'_, M> {
    /// Stores a flow of another table in this one, with all that is known of it; false where there is no
    /// room. Nothing else may use this table yet.
    pub fn inherit(&self, flow: &InheritedFlow, now_ns: u64, idle_timeout_ns: u64) -> bool {
        let slot = self.insert(&flow.key, now_ns, idle_timeout_ns, || false);
        let is_stored = slot.is_some();
        if let Some(slot) = slot {
            slot.restore(flow.words);
        }
        is_stored
    }

    /// Makes up for what another table has counted of a flow since this one inherited it; true where
    /// something was to be made up for. Programs use this table by now, and the other one no longer.
    ///
    /// A flow that both have counted keeps the larger count, so that one that became long meanwhile is
    /// long here. One that has begun again here since is another, and stays as it is.
    pub fn catch_up(&self, flow: &InheritedFlow, now_ns: u64, idle_timeout_ns: u64) -> bool {
        let before = flow.entry(now_ns);
        if is_expired(&before, now_ns, idle_timeout_ns) {
            return false;
        }
        let Some(slot) = self.lookup(&flow.key) else {
            return self.inherit(flow, now_ns, idle_timeout_ns);
        };
        let here = slot.entry(now_ns);
        let is_same = here.first_seen_ns == before.first_seen_ns || !before.is_finished();
        let is_behind = is_same && here.packets < before.packets;
        if is_behind {
            slot.restore(flow.words);
        }
        is_behind
    }
}

impl InheritedFlow {
    /// Unpacks what is known of the flow.
    fn entry(&self, now_ns: u64) -> FlowEntry {
        let record = Record::default();
        record.set_words(self.words);
        record.unpack(Owner(self.words[0]), now_ns)
    }
}

impl SlotGuard<'_> {
    /// Keeps the words of another slot of the flow. That other flows of the line lie elsewhere is for this
    /// table to say.
    fn restore(&self, words: Words) {
        let of_flow = Owner(words[0] & !Owner::OVERFLOW);
        let owner = of_flow.with_overflow_of(self.owner);
        self.record.set_words([owner.0, words[1], words[2]]);
    }
}

impl Record {
    fn words(&self) -> Words {
        [&self.owner, &self.first, &self.second].map(super::Word::get)
    }

    /// Overwrites all words. The owner's comes last: with it a flow's slot becomes visible.
    fn set_words(&self, [owner, first, second]: Words) {
        self.first.set(first);
        self.second.set(second);
        self.owner.set(owner);
    }
}

impl Tags {
    /// The tags of a group as they lie in the map.
    #[must_use]
    pub fn bits(&self) -> u64 {
        self.0.get()
    }
}
