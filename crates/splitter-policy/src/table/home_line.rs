//! Look-up, insertion and eviction in one cache line of the flow table and its neighbours.

use super::layout::line_number;
use super::owner::{CLOCK_SKEW_STAMPS, stamps_between};
use super::{
    FINISHED_LINGER_NS, GROUP_SLOTS, Group, LineKey, Memory, Position, Slot, SlotGuard, SlotRef,
    Table, Tags,
};

/// The home line of a flow in its group.
#[derive(Debug)]
pub struct HomeLine<'a, M, K: LineKey> {
    pub(super) table: Table<'a, M>,
    pub(super) group: &'a Group<K::Slot>,
    /// The hash of the flow.
    pub(super) stirred: u64,
    pub(super) key: K,
}

impl<'a, M: Memory, K: LineKey> HomeLine<'a, M, K> {
    const LINE_SLOTS: usize = K::Slot::LINE_SLOTS;

    #[inline(always)]
    fn home(&self) -> usize {
        Position::of(self.stirred, 0, Self::LINE_SLOTS).home
    }

    /// Its slots. By the number of the line and not of a slot, of which the place is another step away.
    #[inline(always)]
    fn slots(&self) -> &'a [K::Slot] {
        K::Slot::line(self.group, line_number(self.stirred)).as_ref()
    }

    /// Works out where all of the flow is, and the tags of its group. Anew each time: kept ready for what
    /// only few packets need, it would be in the way of all others.
    #[inline(always)]
    fn position(&self) -> (Position, Option<&'a Tags>) {
        let (groups, first_tags) = K::Slot::extent(self.table.layout);
        let position = Position::of(
            core::hint::black_box(self.stirred),
            groups,
            Self::LINE_SLOTS,
        );
        let index = first_tags.wrapping_add(position.group);
        (position, self.table.memory.tags(index))
    }

    /// The tags alone tell that the flow has no slot. Looks at nothing else.
    #[inline(always)]
    pub fn is_ruled_out(&self) -> bool {
        let (position, tags) = self.position();
        tags.is_some_and(|tags| tags.rule_out(position.tag))
    }

    /// Looks up the slot of a TCP flow by its addresses and ports: that it is one of TCP, and not given up
    /// meanwhile, is for those to find out who rely on its state.
    #[inline(always)]
    pub fn lookup_tcp(&self) -> Option<SlotGuard<'a>> {
        for (step, slot) in self.slots().iter().enumerate() {
            let owner = slot.record().owner();
            if owner.ports() == self.key.owner().ports() && self.key.has_addresses_of(slot) {
                return Some(SlotGuard::known(self.home() ^ step, slot.record(), owner));
            }
        }
        if self.has_overflow() {
            self.lookup_displaced()
        } else {
            None
        }
    }

    #[inline(always)]
    fn has_overflow(&self) -> bool {
        self.slots()[0].record().owner().has_overflow()
    }

    /// Looks up the slot of the flow: in its home line, as most have, and beyond where that has
    /// overflowed.
    #[inline(always)]
    pub fn lookup(&self) -> Option<SlotGuard<'a>> {
        for (step, slot) in self.slots().iter().enumerate() {
            let owner = slot.record().owner();
            if self.key.differs(slot) | owner.differs(self.key.owner()) == 0 {
                return Some(SlotGuard::known(self.home() ^ step, slot.record(), owner));
            }
        }
        if self.has_overflow() {
            self.lookup_displaced()
        } else {
            None
        }
    }

    /// Looks at all the others at once: a processor that waits for one line may
    /// as well wait for three.
    #[inline(always)]
    fn lookup_displaced(&self) -> Option<SlotGuard<'a>> {
        let (mut found, home) = (0, self.position().0.home);
        for step in Self::LINE_SLOTS..GROUP_SLOTS {
            let slot = self.group.slot(home ^ step);
            let owner = slot.record().owner();
            let is_it = zero_bit(self.key.differs(slot) | owner.differs(self.key.owner()));
            // Without a branch, which the verifier would follow for each.
            found = (found * (1 - is_it)) | (step as u64 * is_it);
        }
        if found == 0 {
            return None;
        }
        let [found] = self.table.memory.forget_origin([found])?;
        // Known to the compiler to be in bounds, but not to verifiers before Linux 6.10.
        let index = core::hint::black_box(home ^ found as usize);
        let record = self.group.slot(index).record();
        Some(SlotGuard::known(index, record, record.owner()))
    }

    /// The slot that a reference names.
    #[inline(always)]
    pub(super) fn resume(&self, slot_ref: &SlotRef) -> SlotGuard<'a> {
        SlotGuard::slot_ref(self.group.slot(slot_ref.index()).record(), slot_ref)
    }

    /// Chooses the slot of the home line that a new flow evicts first: its rank, with its index in
    /// the lowest bits.
    #[inline(always)]
    pub fn victim_at_home(&self, rank: &EvictionRank) -> u64 {
        // Anew, as in `position`: where a line has one slot, a look-up would keep its number for this.
        let home = match Self::LINE_SLOTS {
            1 => Position::of(core::hint::black_box(self.stirred), 0, 1).home,
            _ => self.home(),
        };
        // Of an empty line the first slot, so that look-ups find most flows there.
        if self.group.slot(home).record().owner().is_free() {
            return EvictionRank::OVER | home as u64;
        }
        let mut best = rank.of(self.group, home);
        for step in 1..Self::LINE_SLOTS {
            best = best.max(rank.of(self.group, home ^ step));
        }
        best
    }

    /// Chooses the victim of the whole group, where the home line comes first.
    #[inline(always)]
    pub(super) fn choose(&self, rank: &EvictionRank, is_hurried: impl Fn() -> bool) -> u64 {
        let best = self.victim_at_home(rank);
        if EvictionRank::suffices(best, is_hurried) {
            return best;
        }
        let mut beyond = 0;
        // A compiler that knows how many there are writes it out for each, on a stack
        // as large as a kernel program's may be.
        let end = core::hint::black_box(GROUP_SLOTS);
        let mut step = Self::LINE_SLOTS;
        while step < end {
            beyond = beyond.max(rank.of(self.group, self.home() ^ step));
            step += 1;
        }
        if beyond >= EvictionRank::OVER || best < EvictionRank::YOUNG {
            beyond
        } else {
            best
        }
    }

    /// Inserts the flow, which has no slot, into the chosen one.
    #[inline(always)]
    pub fn insert(&self, chosen: u64, now_ns: u64) -> Option<SlotGuard<'a>> {
        if chosen < EvictionRank::YOUNG {
            return None;
        }
        let index = chosen as usize & (GROUP_SLOTS - 1);
        let home = self.home();
        if (index ^ home) >= Self::LINE_SLOTS {
            // First of all: a flow that lies elsewhere is found by the mark alone.
            let record = self.group.slot(home).record();
            let owner = record.owner();
            if !owner.has_overflow()
                && !M::exchange(record.owner_word(), owner.0, owner.with_overflow().0)
            {
                return None;
            }
        }
        self.insert_at(chosen, now_ns)
    }

    /// Inserts the flow, which has no slot, into the one that was chosen of its home line.
    #[inline(always)]
    pub fn insert_at_home(&self, chosen: u64, now_ns: u64) -> Option<SlotGuard<'a>> {
        if chosen < EvictionRank::YOUNG {
            return None;
        }
        self.insert_at(chosen, now_ns)
    }

    #[inline(always)]
    fn insert_at(&self, chosen: u64, now_ns: u64) -> Option<SlotGuard<'a>> {
        let index = chosen as usize & (GROUP_SLOTS - 1);
        let slot = self.group.slot(index);
        let record = slot.record();
        let owner = record.owner();
        // Another CPU may be faster: rare enough to let this packet pass uncounted.
        let is_free_still = !owner.is_claimed();
        if !is_free_still || !M::exchange(record.owner_word(), owner.0, owner.claimed(now_ns).0) {
            return None;
        }
        self.key.write_to(slot);
        if let (position, Some(tags)) = self.position() {
            tags.set(index, position.tag);
        }
        let owner = self.key.owner().with_overflow_of(owner);
        Some(SlotGuard::new(
            index,
            record,
            owner,
            chosen < EvictionRank::OVER,
        ))
    }
}

/// The rank by which slots are evicted: the higher, the earlier. Within a kind, by how long the
/// flow was silent.
///
/// Without branches, because the verifier follows each of them, for each slot.
#[derive(Debug)]
pub struct EvictionRank {
    now_ns: u64,
    idle_age: u64,
}

impl EvictionRank {
    /// Live, but not protected.
    const YOUNG: u64 = 1 << 32;
    /// Idle, or finished and quiet.
    const OVER: u64 = 2 << 32;
    const INDEX_BITS: u32 = GROUP_SLOTS.trailing_zeros();

    /// Ranks slots as they are at a time.
    #[inline(always)]
    pub const fn new(now_ns: u64, idle_timeout_ns: u64) -> Self {
        Self {
            now_ns,
            idle_age: stamps_between(idle_timeout_ns) + CLOCK_SKEW_STAMPS,
        }
    }

    /// Tells if the slot that was chosen of the home line need not be compared with others: nothing
    /// live is lost with it, or there is no time to look.
    #[inline(always)]
    pub fn suffices(chosen: u64, is_hurried: impl Fn() -> bool) -> bool {
        chosen >= Self::OVER || chosen >= Self::YOUNG && is_hurried()
    }

    #[inline(always)]
    fn of<S: Slot>(&self, group: &Group<S>, index: usize) -> u64 {
        const LINGER_AGE: u64 = stamps_between(FINISHED_LINGER_NS) + CLOCK_SKEW_STAMPS;
        let record = group.slot(index).record();
        let owner = record.owner();
        let age = owner.age_stamps(self.now_ns);
        let is_finished = owner.finished_bit();
        let is_expired = exceeds(age, self.idle_age) | is_finished & exceeds(age, LINGER_AGE);
        let is_young = is_finished | record.young_bit(owner);
        let is_free = 1 - owner.occupied_bit();
        let kind = is_young | (is_expired | is_free) << 1;
        let rank = kind << 32 | age << Self::INDEX_BITS;
        // What is being claimed by another CPU ranks lowest.
        (rank * (1 - owner.claimed_bit())) | index as u64
    }
}

/// 1 when no bit is set.
#[inline(always)]
const fn zero_bit(bits: u64) -> u64 {
    let folded = (bits | bits >> 32) & 0xffff_ffff;
    folded.wrapping_sub(1) >> 63
}

/// 1 when `value` is the greater; both below 2^63.
#[inline(always)]
pub(super) const fn exceeds(value: u64, limit: u64) -> u64 {
    limit.wrapping_sub(value) >> 63
}
