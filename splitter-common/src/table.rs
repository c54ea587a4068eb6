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
use crate::flow::{Class, FlowEntry, FlowKey};
use crate::models::Models;
use crate::share::Ride;
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
    index: usize,
    /// Whether the slot was given to the flow just now.
    pub is_new: bool,
    /// Whether a live flow that is not protected was forgotten for it.
    pub has_evicted: bool,
}

/// The same in plain data: where the slot is in its group, and the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    owner: u64,
    index: u32,
    is_new: bool,
}

impl Held {
    /// None at all: a number like the others, where the kernel's verifier would
    /// miss what an `Option` leaves unwritten.
    pub const NONE: Self = Self {
        owner: 0,
        index: u32::MAX,
        is_new: false,
    };

    /// Whether there is none.
    #[inline(always)]
    pub const fn is_none(&self) -> bool {
        self.index == Self::NONE.index
    }
}

impl<'a, M: Memory> Table<'a, M> {
    /// The slot of a flow that has one.
    #[inline(always)]
    pub fn find(&self, key: &FlowKey) -> Option<Opened<'a>> {
        let wanted = Owner::of(key);
        let found = match key {
            FlowKey::V4(key) => {
                let Place { group, home } = self.layout.place_v4(key);
                find(self.memory.group_v4(group)?, home, key, wanted)
            }
            FlowKey::V6(key) => {
                let Place { group, home } = self.layout.place_v6(key);
                find(self.memory.group_v6(group)?, home, key, wanted)
            }
        };
        found.map(Opened::known)
    }

    /// A slot for a flow that has none; `None` when there is no room. It is the
    /// flow's once [`Opened::store`] has been called.
    ///
    /// `in_haste`, in a flood, a young flow of the home line gives way before the
    /// rest of the group is looked at.
    #[inline(always)]
    pub fn claim(
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
                let [chosen] = self.chosen(choose(group, home, &rank, in_haste))?;
                claim::<_, M>(group, home, chosen, key, wanted, now_ns)
            }
            FlowKey::V6(key) => {
                let Place { group, home } = self.layout.place_v6(key);
                let group = self.memory.group_v6(group)?;
                let [chosen] = self.chosen(choose(group, home, &rank, in_haste))?;
                claim::<_, M>(group, home, chosen, key, wanted, now_ns)
            }
        }
    }

    #[inline(always)]
    fn chosen(&self, chosen: u64) -> Option<[u64; 1]> {
        self.memory.forget_origin([chosen])
    }

    /// The slot that was held of a flow.
    #[inline(always)]
    pub fn reopen(&self, key: &FlowKey, held: &Held) -> Option<Opened<'a>> {
        if held.is_none() {
            return None;
        }
        let index = held.index as usize;
        let record = match key {
            FlowKey::V4(key) => {
                let Place { group, .. } = self.layout.place_v4(key);
                self.memory.group_v4(group)?.slot(index).record()
            }
            FlowKey::V6(key) => {
                let Place { group, .. } = self.layout.place_v6(key);
                self.memory.group_v6(group)?.slot(index).record()
            }
        };
        Some(Opened {
            record,
            owner: Owner(held.owner),
            index,
            is_new: held.is_new,
            has_evicted: false,
        })
    }

    /// The slot of a flow that is known and lies in its home line, as most do.
    #[inline(always)]
    pub fn find_at_home(&self, key: &FlowKey) -> Option<Opened<'a>> {
        let wanted = Owner::of(key);
        let found = match key {
            FlowKey::V4(key) => {
                let Place { group, home } = self.layout.place_v4(key);
                find_at_home(self.memory.group_v4(group)?, home, key, wanted)
            }
            FlowKey::V6(key) => {
                let Place { group, home } = self.layout.place_v6(key);
                find_at_home(self.memory.group_v6(group)?, home, key, wanted)
            }
        };
        found.map(Opened::known)
    }
}

impl<'a> Opened<'a> {
    #[inline(always)]
    const fn known((index, record, owner): (usize, &'a Record, Owner)) -> Self {
        Self {
            record,
            owner,
            index,
            is_new: false,
            has_evicted: false,
        }
    }

    /// Lets go of it, to be [reopened](Table::reopen).
    #[inline(always)]
    pub fn hold(&self) -> Held {
        Held {
            owner: self.owner.0,
            index: self.index as u32,
            is_new: self.is_new,
        }
    }

    /// What is known of the flow; `now_ns` may be coarse.
    #[inline(always)]
    pub fn entry(&self, now_ns: u64) -> FlowEntry {
        if self.is_new {
            return FlowEntry::default();
        }
        self.record.unpack(self.owner, now_ns)
    }

    /// Counts a packet of a flow that is not in transition: it is long and stays
    /// in its tunnel, or stays short, and neither begins nor ends. Its class, and
    /// where it goes; `None`, and nothing changed, when it may be.
    ///
    /// This is what most packets pass through. It says and keeps what
    /// [`classify`](crate::classify::classify) would.
    #[inline(always)]
    pub fn count_steady(
        &self,
        packet: FlowPacket,
        config: &Config,
        models: &mut impl Models,
        now_ns: u64,
    ) -> Option<(Class, Ride)> {
        let owner = self.owner;
        let is_idle = owner.is_as_old_as(moments_between(config.idle_timeout_ns), now_ns);
        if self.is_new || is_idle || packet.flags.opens() || packet.flags.closes() {
            return None;
        }
        let (is_shared, tunnel) = (config.is_shared(), owner.tunnel());
        if owner.is_settled(is_shared) {
            self.record.count_wide(owner, packet, now_ns);
            if is_shared {
                let ride = models.send_placed(config, tunnel, packet, now_ns);
                return Some((Class::Long, ride));
            }
            if config.long_service.is_known()
                && let Some(tunnels) = models.dedicated()
            {
                note_sent_long(packet.bytes, config, tunnels, now_ns);
            }
            return Some((Class::Long, Ride::in_own(tunnel)));
        }
        if is_shared || config.short_service.is_known() || !owner.is_plainly_short() {
            return None;
        }
        let is_counted = self.record.count_narrow(owner, packet, config, now_ns);
        is_counted.then_some((Class::Short, Ride::in_own(tunnel)))
    }

    /// Keeps what is known of the flow now.
    #[inline(always)]
    pub fn store(&self, entry: &FlowEntry, now_ns: u64) {
        self.record.pack(self.owner, entry, now_ns);
    }
}

/// Looks the flow up: in its home line, and beyond where that is marked.
#[inline(always)]
fn find<'a, S: Slot>(
    group: &'a Group<S>,
    home: usize,
    key: &S::Key,
    wanted: Owner,
) -> Option<(usize, &'a Record, Owner)> {
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
) -> Option<(usize, &'a Record, Owner)> {
    for step in 0..S::LINE_SLOTS {
        let slot = group.slot(home ^ step);
        let owner = slot.record().owner();
        if slot.differs(key) | owner.differs(wanted) == 0 {
            return Some((home ^ step, slot.record(), owner));
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
) -> Option<(usize, &'a Record, Owner)> {
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
    // Known to the compiler to be in bounds, but not to verifiers before Linux 6.10.
    let index = core::hint::black_box(home ^ found);
    let record = group.slot(index).record();
    Some((index, record, record.owner()))
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
        index,
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
    let mut beyond = 0;
    // A compiler that knows how many there are writes it out for each, on a stack
    // as large as a kernel program's may be.
    let end = core::hint::black_box(GROUP_SLOTS);
    let mut step = S::LINE_SLOTS;
    while step < end {
        beyond = beyond.max(rank.of(group, home ^ step));
        step += 1;
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
