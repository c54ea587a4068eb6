//! The flow table: set-associative, of fixed size, and hard to flood.
//!
//! A *group* of eight slots is one value of an array map. A flow's hash picks a
//! group and, within it, the *home line*: 64 bytes, which is all that a packet
//! of a known flow touches. Keys are compared whole, so that no two flows share
//! a slot; the hash is seeded anew at each load.
//!
//! A new flow takes, in this order,
//!
//! 1. a slot of its home line that is free or whose flow is over,
//! 2. such a slot of another line of the group; the home line is then marked,
//!    so that look-ups go on to the neighbours,
//! 3. the slot of the home line, else of the group, whose flow is not
//!    *protected* and has been silent the longest.
//!
//! Protected is what has sent [`PROTECTED_PACKETS`] and goes on: a flood of new
//! flows replaces itself. When all eight are protected the flow is not tracked.
//!
//! The kernel, the agent (which maps the same memory) and the tests share this
//! code. Everything is read and written by relaxed atomics: CPUs may lose a
//! count, as documented, but a slot changes its owner by compare-and-exchange.

mod place;
mod record;
mod slot;
#[cfg(not(target_arch = "bpf"))]
mod tidy;
mod word;

use crate::classify::{FlowPacket, note_sent_long};
use crate::config::Config;
use crate::drain::Tunnels;
use crate::flow::{Class, FlowEntry, FlowKey, Tunnel};
use place::Place;
pub use place::{Layout, Seeds};
pub use record::Record;
use record::{Owner, moments_between};
pub use slot::{Group, GroupV4, GroupV6, Slot, SlotV4, SlotV6};
#[cfg(not(target_arch = "bpf"))]
pub use tidy::{Found, is_over};
pub use word::Word;

/// Slots of a group.
pub const GROUP_SLOTS: usize = 8;

/// Flows that a group is meant for: at half its slots, less than one flow in a
/// hundred finds no room.
pub const GROUP_FLOWS: u32 = 4;

/// A flow that has sent fewer packets gives way to a new one.
pub const PROTECTED_PACKETS: u64 = 4;

/// How long a finished flow is remembered, so that late retransmissions and
/// ACKs still belong to it.
pub const FINISHED_LINGER_NS: u64 = 5_000_000_000;

/// Where the groups are.
pub trait Memory {
    /// A group of the IPv4 table.
    fn group_v4(&self, index: u32) -> Option<&GroupV4>;

    /// A group of the IPv6 table.
    fn group_v6(&self, index: u32) -> Option<&GroupV6>;

    /// Replaces `old` by `new` in one step; whether `old` was found there. The
    /// kernel's compiler has this as an intrinsic only.
    fn exchange(word: &Word, old: u64, new: u64) -> bool;

    /// `values` as they are, `None` only if that cannot be. In the kernel they
    /// take a way on which the verifier forgets where they came from: otherwise
    /// it follows all that comes after for each outcome of each comparison before.
    fn forget_origin<const N: usize>(&self, values: [u64; N]) -> Option<[u64; N]> {
        Some(values)
    }
}

/// The tables of both families.
#[derive(Debug)]
pub struct Table<'a, M> {
    /// Where the groups are.
    pub memory: &'a M,
    /// How flows are spread over them.
    pub layout: &'a Layout,
}

/// A flow's slot, held for one packet.
#[derive(Debug)]
pub struct Opened<'a> {
    record: &'a Record,
    owner: Owner,
    /// Whether the slot was given to the flow just now.
    pub is_new: bool,
    /// Whether a live flow that is not protected was forgotten for it.
    pub has_evicted: bool,
}

impl<'a, M: Memory> Table<'a, M> {
    /// The slot of a flow, given to it if it has none; `None` when there is no
    /// room. A new slot is the flow's once [`Opened::store`] has been called.
    ///
    /// `in_haste`, in a flood, a young flow of the home line gives way before the
    /// rest of the group is looked at.
    #[inline(always)]
    pub fn open(
        &self,
        key: &FlowKey,
        now_ns: u64,
        config: &Config,
        in_haste: impl Fn() -> bool,
    ) -> Option<Opened<'a>> {
        let rank = Rank::new(now_ns, config);
        let wanted = Owner::of(key);
        match key {
            FlowKey::V4(key) => {
                let Place { group, home } = self.layout.place_v4(key);
                let group = self.memory.group_v4(group)?;
                open(self.memory, group, home, key, wanted, &rank, in_haste)
            }
            FlowKey::V6(key) => {
                let Place { group, home } = self.layout.place_v6(key);
                let group = self.memory.group_v6(group)?;
                open(self.memory, group, home, key, wanted, &rank, in_haste)
            }
        }
    }
}

impl<'a, M: Memory> Table<'a, M> {
    /// The slot of a flow that is known and lies in its home line, as most do.
    #[inline(always)]
    pub fn find_at_home(&self, key: &FlowKey) -> Option<Opened<'a>> {
        let wanted = Owner::of(key);
        let (record, owner) = match key {
            FlowKey::V4(key) => {
                let Place { group, home } = self.layout.place_v4(key);
                find_at_home(self.memory.group_v4(group)?, home, key, wanted)
            }
            FlowKey::V6(key) => {
                let Place { group, home } = self.layout.place_v6(key);
                find_at_home(self.memory.group_v6(group)?, home, key, wanted)
            }
        }?;
        Some(Opened {
            record,
            owner,
            is_new: false,
            has_evicted: false,
        })
    }
}

impl Opened<'_> {
    /// What is known of the flow; `now_ns` may be coarse.
    #[inline(always)]
    pub fn entry(&self, now_ns: u64) -> FlowEntry {
        if self.is_new {
            return FlowEntry::default();
        }
        self.record.unpack(self.owner, now_ns)
    }

    /// Counts a packet of a flow that is not in transition: it is long and in the
    /// long tunnel, or stays short, and neither begins nor ends. `None`, and
    /// nothing changed, when it may be.
    ///
    /// This is what most packets pass through. It says and keeps what
    /// [`classify`](crate::classify::classify) would.
    #[inline(always)]
    pub fn count_steady(
        &self,
        packet: FlowPacket,
        config: &Config,
        tunnels: &mut Tunnels,
        now_ns: u64,
    ) -> Option<(Class, Tunnel)> {
        let owner = self.owner;
        let is_idle = owner.is_as_old_as(moments_between(config.idle_timeout_ns), now_ns);
        if self.is_new || is_idle || packet.flags.opens() || packet.flags.closes() {
            return None;
        }
        if owner.is_long_and_moved() {
            self.record.count_wide(owner, packet, now_ns);
            note_sent_long(packet.bytes, config, tunnels, now_ns);
            return Some((Class::Long, Tunnel::Long));
        }
        if config.short_service.is_known() || !owner.is_short_and_narrow() {
            return None;
        }
        let is_counted = self.record.count_narrow(owner, packet, config, now_ns);
        is_counted.then_some((Class::Short, Tunnel::Short))
    }

    /// Keeps what is known of the flow now.
    #[inline(always)]
    pub fn store(&self, entry: &FlowEntry, now_ns: u64) {
        self.record.pack(self.owner, entry, now_ns);
    }
}

#[inline(always)]
fn open<'a, S: Slot, M: Memory>(
    memory: &M,
    group: &'a Group<S>,
    home: usize,
    key: &S::Key,
    wanted: Owner,
    rank: &Rank,
    in_haste: impl Fn() -> bool,
) -> Option<Opened<'a>> {
    if let Some((record, owner)) = find(group, home, key, wanted) {
        return Some(Opened {
            record,
            owner,
            is_new: false,
            has_evicted: false,
        });
    }
    let [chosen] = memory.forget_origin([choose(group, home, rank, in_haste)])?;
    claim::<S, M>(group, home, chosen, key, wanted, rank.now_ns)
}

/// Looks the flow up: in its home line, and beyond where that is marked.
#[inline(always)]
fn find<'a, S: Slot>(
    group: &'a Group<S>,
    home: usize,
    key: &S::Key,
    wanted: Owner,
) -> Option<(&'a Record, Owner)> {
    let found = find_at_home(group, home, key, wanted);
    if found.is_some() || !group.slot(home).record().owner().is_marked() {
        return found;
    }
    find_displaced(group, home, key, wanted)
}

#[inline(always)]
fn find_at_home<'a, S: Slot>(
    group: &'a Group<S>,
    home: usize,
    key: &S::Key,
    wanted: Owner,
) -> Option<(&'a Record, Owner)> {
    for step in 0..S::LINE_SLOTS {
        let slot = group.slot(home ^ step);
        let owner = slot.record().owner();
        if slot.differs(key) | owner.differs(wanted) == 0 {
            return Some((slot.record(), owner));
        }
    }
    None
}

#[inline(always)]
fn find_displaced<'a, S: Slot>(
    group: &'a Group<S>,
    home: usize,
    key: &S::Key,
    wanted: Owner,
) -> Option<(&'a Record, Owner)> {
    let mut found = 0;
    for step in S::LINE_SLOTS..GROUP_SLOTS {
        let slot = group.slot(home ^ step);
        if slot.differs(key) | slot.record().owner().differs(wanted) == 0 {
            found = step;
        }
    }
    if found == 0 {
        return None;
    }
    let record = group.slot(home ^ found).record();
    Some((record, record.owner()))
}

/// Gives the chosen slot to a flow that has none.
#[inline(always)]
fn claim<'a, S: Slot, M: Memory>(
    group: &'a Group<S>,
    home: usize,
    chosen: u64,
    key: &S::Key,
    wanted: Owner,
    now_ns: u64,
) -> Option<Opened<'a>> {
    if chosen < Rank::YOUNG {
        return None;
    }
    let index = chosen as usize & (GROUP_SLOTS - 1);
    if (index ^ home) >= S::LINE_SLOTS {
        // First of all: a flow that lies elsewhere is found by the mark alone.
        let record = group.slot(home).record();
        let owner = record.owner();
        if !owner.is_marked() && !M::exchange(record.owner_word(), owner.0, owner.marked().0) {
            return None;
        }
    }
    let slot = group.slot(index);
    let record = slot.record();
    let owner = record.owner();
    // Another CPU may be faster: rare enough to let this packet pass uncounted.
    let is_free_still = !owner.is_claimed();
    if !is_free_still || !M::exchange(record.owner_word(), owner.0, owner.claimed(now_ns).0) {
        return None;
    }
    slot.set_addresses(key);
    Some(Opened {
        record,
        owner: wanted.with_mark_of(owner),
        is_new: true,
        has_evicted: chosen < Rank::OVER,
    })
}

/// The slot that is the first to give way: its rank, with its index in the
/// lowest bits.
#[inline(always)]
fn choose<S: Slot>(group: &Group<S>, home: usize, rank: &Rank, in_haste: impl Fn() -> bool) -> u64 {
    let mut best = rank.of(group, home);
    for step in 1..S::LINE_SLOTS {
        best = best.max(rank.of(group, home ^ step));
    }
    if best >= Rank::OVER || best >= Rank::YOUNG && in_haste() {
        return best;
    }
    let mut beyond = rank.of(group, home ^ S::LINE_SLOTS);
    for step in S::LINE_SLOTS + 1..GROUP_SLOTS {
        beyond = beyond.max(rank.of(group, home ^ step));
    }
    if beyond >= Rank::OVER || best < Rank::YOUNG {
        beyond
    } else {
        best
    }
}

/// Tells who is to give way: the higher, the sooner. Within a kind, who has been
/// silent for longer.
///
/// Without branches, because the verifier follows each of them, for each slot.
struct Rank {
    now_ns: u64,
    idle_moments: u64,
}

impl Rank {
    /// Live, but not protected.
    const YOUNG: u64 = 1 << 32;
    /// Idle, or finished and quiet.
    const OVER: u64 = 2 << 32;
    const INDEX_BITS: u32 = GROUP_SLOTS.trailing_zeros();

    #[inline(always)]
    const fn new(now_ns: u64, config: &Config) -> Self {
        Self {
            now_ns,
            idle_moments: moments_between(config.idle_timeout_ns),
        }
    }

    #[inline(always)]
    fn of<S: Slot>(&self, group: &Group<S>, index: usize) -> u64 {
        const LINGER_MOMENTS: u64 = moments_between(FINISHED_LINGER_NS);
        let record = group.slot(index).record();
        let owner = record.owner();
        let age = owner.age_moments(self.now_ns);
        let is_finished = owner.finished_bit();
        let is_over = exceeds(age, self.idle_moments) | is_finished & exceeds(age, LINGER_MOMENTS);
        let is_young = is_finished | record.young_bit(owner);
        let is_free = 1 - owner.occupied_bit();
        let kind = is_young | (is_over | is_free) << 1;
        let rank = kind << 32 | age << Self::INDEX_BITS;
        // What is being claimed by another CPU ranks lowest.
        (rank * (1 - owner.claimed_bit())) | index as u64
    }
}

/// 1 when `value` is the greater; both below 2^63.
#[inline(always)]
const fn exceeds(value: u64, limit: u64) -> u64 {
    limit.wrapping_sub(value) >> 63
}

#[cfg(test)]
pub(crate) mod tests;
