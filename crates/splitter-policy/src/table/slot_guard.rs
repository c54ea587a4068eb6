//! A guard of a flow's slot, held for one packet.

use super::owner::Owner;
use super::record::{Counted, Record};
use crate::flow::{FlowEntry, TunnelRole};
use crate::thresholds::ThresholdIndex;

/// A guard of a flow's slot, held for one packet.
#[derive(Debug)]
pub struct SlotGuard<'a> {
    pub(super) record: &'a Record,
    pub(super) owner: Owner,
    index: usize,
    /// The slot was given to the flow just now.
    pub is_new: bool,
    /// A live flow that is not protected was evicted for it.
    pub has_evicted: bool,
}

/// A reference to a flow's slot in plain data: its index in the group, and the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotRef {
    owner: u64,
    index: u32,
    is_new: bool,
}

impl SlotRef {
    /// No slot at all: a number like the others, where the kernel's verifier would miss what an
    /// `Option` leaves unwritten.
    pub const NONE: Self = Self {
        owner: 0,
        index: u32::MAX,
        is_new: false,
    };

    /// The reference names no slot.
    #[inline(always)]
    pub const fn is_none(&self) -> bool {
        self.index == Self::NONE.index
    }

    #[inline(always)]
    pub(super) const fn index(&self) -> usize {
        self.index as usize
    }
}

impl<'a> SlotGuard<'a> {
    #[inline(always)]
    pub(super) const fn known(index: usize, record: &'a Record, owner: Owner) -> Self {
        Self {
            record,
            owner,
            index,
            is_new: false,
            has_evicted: false,
        }
    }

    #[inline(always)]
    pub(super) const fn new(
        index: usize,
        record: &'a Record,
        owner: Owner,
        has_evicted: bool,
    ) -> Self {
        Self {
            record,
            owner,
            index,
            is_new: true,
            has_evicted,
        }
    }

    #[inline(always)]
    pub(super) const fn slot_ref(record: &'a Record, slot_ref: &SlotRef) -> Self {
        Self {
            record,
            owner: Owner(slot_ref.owner),
            index: slot_ref.index as usize,
            is_new: slot_ref.is_new,
            has_evicted: false,
        }
    }

    /// Lets go of the slot, to be [resumed](super::Table::resume).
    #[inline(always)]
    pub fn to_ref(&self) -> SlotRef {
        SlotRef {
            owner: self.owner.0,
            index: self.index as u32,
            is_new: self.is_new,
        }
    }

    /// Unpacks what is known of the flow; `now_ns` may be coarse.
    #[inline(always)]
    pub fn entry(&self, now_ns: u64) -> FlowEntry {
        if self.is_new {
            return FlowEntry::default();
        }
        self.record.unpack(self.owner, now_ns)
    }

    /// The flow may have been silent for `idle_timeout_ns`, to the table's own precision.
    #[inline(always)]
    pub(crate) const fn may_be_idle(&self, idle_timeout_ns: u64, now_ns: u64) -> bool {
        self.owner.may_be_as_old_as(idle_timeout_ns, now_ns)
    }

    /// The flow is long and stays in its tunnel: the long one, unless tunnels are shared.
    #[inline(always)]
    pub(crate) const fn is_settled(&self, is_shared: bool) -> bool {
        self.owner.is_settled(is_shared)
    }

    /// The flow is short, in the short tunnel, and has sent little.
    #[inline(always)]
    pub(crate) const fn is_plainly_short(&self) -> bool {
        self.owner.is_plainly_short()
    }

    /// The tunnel that the flow uses now.
    #[inline(always)]
    pub(crate) const fn tunnel(&self) -> TunnelRole {
        self.owner.tunnel()
    }

    /// The time of the flow's last packet, up to 17 ms too early.
    #[inline(always)]
    pub(crate) const fn last_seen_ns(&self, now_ns: u64) -> u64 {
        self.owner.last_seen_ns(now_ns)
    }

    /// Counts a packet of a flow that is settled, and keeps when it came.
    #[inline(always)]
    pub(crate) fn count_settled(&self, packets: u64, bytes: u64, now_ns: u64) {
        self.record.count_wide(self.owner, packets, bytes, now_ns);
    }

    /// The counts of a plainly short flow with a packet more; `None` when `is_long` says so
    /// of them and of the threshold's index, or when they outgrow their bits.
    #[inline(always)]
    pub(crate) fn counted_short(
        &self,
        packets: u64,
        bytes: u64,
        is_long: impl Fn(ThresholdIndex, u64, u64) -> bool,
    ) -> Option<Counted> {
        self.record.counted_narrow(packets, bytes, is_long)
    }

    /// Keeps the counts of a plainly short flow, and when its packets drain: now, where that is not known.
    #[inline(always)]
    pub(crate) fn commit_short(&self, counted: Counted, drained_ns: Option<u64>, now_ns: u64) {
        self.record
            .set_narrow(self.owner, counted, drained_ns, now_ns);
    }

    /// Commits what is known of a short flow with its first packet, which drains now where it is not known
    /// when.
    #[inline(always)]
    pub fn commit_first(&self, packets: u64, bytes: u64, drained_ns: Option<u64>, now_ns: u64) {
        self.record
            .set_first(self.owner, packets, bytes, drained_ns, now_ns);
    }

    /// Commits what is known of the flow now.
    #[inline(always)]
    pub fn commit(&self, entry: &FlowEntry, now_ns: u64) {
        self.record.pack(self.owner, entry, now_ns);
    }
}
