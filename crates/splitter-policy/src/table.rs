//! The flow table: set-associative, of fixed size, and hard to flood.
//!
//! A *group* of eight slots is one value of an array map. A flow's hash picks a
//! group and, within it, the *home line*: 64 bytes, which is all that a packet
//! of a known flow touches. Keys are compared whole, so that no two flows share
//! a slot; the hash is seeded with new numbers at each load.
//!
//! A new flow takes, in this order,
//!
//! 1. a slot of its home line that is free or whose flow is over,
//! 2. such a slot of another line of the group; the home line is then marked,
//!    so that look-ups go on to the neighbours,
//! 3. the slot of the home line, else of the group, whose flow is not
//!    *protected* and has been silent the longest.
//!
//! In a flood the packets of flows that are not known are known by their [tags](Tags)
//! alone; one in a few still gets a slot, the rest passes the table by.
//!
//! Protected is what has sent [`PROTECTED_PACKETS`] and goes on: a flood of new
//! flows replaces itself. When all eight are protected the flow is not tracked.
//!
//! The kernel, the agent (which maps the same memory) and the tests share this
//! code. Everything is read and written by relaxed atomics: CPUs may lose a
//! count, as documented, but a slot changes its owner by compare-and-exchange.

mod home_line;
mod layout;
mod line_key;
mod owner;
mod record;
mod slot;
mod slot_guard;
#[cfg(not(target_arch = "bpf"))]
mod sweep;
mod tags;
mod word;

use crate::flow::FlowKey;
pub use home_line::{EvictionRank, HomeLine};
pub use layout::Layout;
use layout::Position;
pub use line_key::LineKey;
pub use record::Record;
pub use slot::{Group, GroupV4, GroupV6, Slot, SlotV4, SlotV6};
pub use slot_guard::{SlotGuard, SlotRef};
#[cfg(not(target_arch = "bpf"))]
pub use sweep::{StoredFlow, is_expired};
pub use tags::Tags;
pub use word::Word;

/// Slots of a group.
pub const GROUP_SLOTS: usize = 8;

/// Flows that a group is meant for: at half its slots, less than one flow in a
/// hundred finds no slot.
pub const GROUP_FLOWS: u32 = 4;

/// A flow that has sent fewer packets may be evicted for a new one.
pub const PROTECTED_PACKETS: u64 = 4;

/// How long a finished flow is remembered, so that late retransmissions and
/// ACKs still belong to it.
pub const FINISHED_LINGER_NS: u64 = 5_000_000_000;

/// The memory of the flow table, where its groups are.
pub trait Memory {
    /// Aggregates take the short cut, too, which is there a second time for them. False where a
    /// verifier has enough to look at without: they go the long way then, to the same end.
    const SPLITS_AGGREGATES_FAST: bool = true;

    /// A group of the IPv4 table.
    fn group_v4(&self, index: u32) -> Option<&GroupV4>;

    /// A group of the IPv6 table.
    fn group_v6(&self, index: u32) -> Option<&GroupV6>;

    /// The tags of a group: those of the IPv4 table first, then those of the IPv6 table.
    fn tags(&self, index: u32) -> Option<&Tags>;

    /// Replaces `old` by `new` in one step; true when `old` was found there. The kernel's compiler
    /// has this as an intrinsic only.
    fn exchange(word: &Word, old: u64, new: u64) -> bool;

    /// `values` as they are, `None` only if that cannot be. In the kernel they
    /// take a path on which the verifier forgets where they came from: otherwise
    /// it follows all that comes after for each outcome of each comparison before.
    fn forget_origin<const N: usize>(&self, values: [u64; N]) -> Option<[u64; N]> {
        Some(values)
    }
}

/// The flow table: IPv4 and IPv6 flows by their 5-tuples.
#[derive(Debug)]
pub struct Table<'a, M> {
    /// The memory of the flow table, where its groups are.
    pub memory: &'a M,
    /// The layout by which flows are spread over them.
    pub layout: &'a Layout,
}

/// Does the same on the home line of either family; a miss of the memory ends the function.
macro_rules! on_line {
    ($table:expr, $key:expr, $line:ident => $then:expr) => {
        match $key {
            FlowKey::V4(key) => {
                let $line = $table.line(key)?;
                $then
            }
            FlowKey::V6(key) => {
                let $line = $table.line(key)?;
                $then
            }
        }
    };
}

impl<'a, M: Memory> Table<'a, M> {
    /// The home line of a flow. `None` only where a kernel program finds no memory, which cannot be.
    #[inline(always)]
    pub fn line<K: LineKey>(&self, key: K) -> Option<HomeLine<'a, M, K>> {
        let stirred = key.stir(self.layout);
        let (groups, _) = K::Slot::extent(self.layout);
        let group = Position::of(stirred, groups, K::Slot::LINE_SLOTS).group;
        Some(HomeLine {
            table: Table { ..*self },
            group: K::Slot::group_in(self.memory, group)?,
            stirred,
            key,
        })
    }

    /// Looks up the slot of a flow; `None` when it has none.
    #[inline(always)]
    pub fn lookup(&self, key: &FlowKey) -> Option<SlotGuard<'a>> {
        on_line!(self, key, line => line.lookup())
    }

    /// Inserts a flow that has no slot; `None` when the table is full. The slot is the flow's once
    /// [`SlotGuard::commit`] has been called.
    ///
    /// `is_hurried`, in a flood, a young flow of the home line is evicted before the
    /// rest of the group is looked at.
    #[inline(always)]
    pub fn insert(
        &self,
        key: &FlowKey,
        now_ns: u64,
        idle_timeout_ns: u64,
        is_hurried: impl Fn() -> bool,
    ) -> Option<SlotGuard<'a>> {
        let rank = EvictionRank::new(now_ns, idle_timeout_ns);
        on_line!(self, key, line => {
            let chosen = line.choose(&rank, is_hurried);
            let [chosen] = self.memory.forget_origin([chosen])?;
            line.insert(chosen, now_ns)
        })
    }

    /// Resumes work on the slot that a reference names.
    #[inline(always)]
    pub fn resume(&self, key: &FlowKey, slot_ref: &SlotRef) -> Option<SlotGuard<'a>> {
        if slot_ref.is_none() {
            return None;
        }
        on_line!(self, key, line => Some(line.resume(slot_ref)))
    }
}

// Last, for it moves no line of what the kernel programs are built of.
#[cfg(not(target_arch = "bpf"))]
mod inherit;
#[cfg(not(target_arch = "bpf"))]
pub use inherit::{InheritedFlow, TABLE_VERSION, UNSTATED_TABLE_VERSION, upgraded};

#[cfg(test)]
pub(crate) mod tests;
