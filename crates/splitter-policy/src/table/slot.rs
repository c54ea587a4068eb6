//! The slots and groups of the flow table, as they lie in the kernel's maps.

use super::home_line::exceeds;
use super::owner::Owner;
use super::record::Record;
use super::{GROUP_SLOTS, Layout, Memory, PROTECTED_PACKETS, Word};
use crate::flow::{FlowKey, FlowKeyV4, FlowKeyV6};

/// Eight slots; the value of a table's map.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Group<S>([S; GROUP_SLOTS]);

/// 256 bytes: four lines of two slots.
pub type GroupV4 = Group<SlotV4>;

/// 512 bytes: eight lines of one slot.
pub type GroupV6 = Group<SlotV6>;

/// A flow of IPv4: 32 bytes.
#[repr(C)]
#[derive(Debug, Default)]
pub struct SlotV4 {
    addresses: Word,
    record: Record,
}

/// A flow of IPv6: 64 bytes.
#[repr(C)]
#[derive(Debug, Default)]
pub struct SlotV6 {
    source: [Word; 2],
    destination: [Word; 2],
    record: Record,
    unused: Word,
}

/// A slot for one flow of an address family.
pub trait Slot: Sized {
    /// The slots of a 64-byte line.
    type Line: AsRef<[Self]>;

    /// Slots of a 64-byte line.
    const LINE_SLOTS: usize;

    /// Groups of the family's table, and the tags before its own.
    fn extent(layout: &Layout) -> (u32, u32);

    /// A group of the family's table.
    fn group_in<M: Memory>(memory: &M, index: u32) -> Option<&Group<Self>>;

    /// A line of a group, of which a number's lowest bits say which one.
    fn line(group: &Group<Self>, number: usize) -> &Self::Line;

    /// The rest of the slot: the packed entry.
    fn record(&self) -> &Record;

    /// The flow that the addresses and `owner` name.
    fn key(&self, owner: Owner) -> FlowKey;
}

impl<S: Slot> Group<S> {
    /// The slots in the order of memory.
    pub fn slots(&self) -> &[S] {
        &self.0
    }

    #[inline(always)]
    pub(super) fn slot(&self, index: usize) -> &S {
        // The mask is what the verifier goes by.
        &self.0[index & (GROUP_SLOTS - 1)]
    }
}

impl SlotV4 {
    #[inline(always)]
    pub(super) fn addresses(&self) -> u64 {
        self.addresses.get()
    }

    #[inline(always)]
    pub(super) fn set_addresses(&self, addresses: u64) {
        self.addresses.set(addresses);
    }
}

impl Slot for SlotV4 {
    type Line = [Self; 2];

    const LINE_SLOTS: usize = 2;

    #[inline(always)]
    fn extent(layout: &Layout) -> (u32, u32) {
        (layout.groups_v4, 0)
    }

    #[inline(always)]
    fn group_in<M: Memory>(memory: &M, index: u32) -> Option<&GroupV4> {
        memory.group_v4(index)
    }

    #[inline(always)]
    fn line(group: &GroupV4, number: usize) -> &[Self; 2] {
        let (lines, _) = group.0.as_chunks();
        &lines[number & (GROUP_SLOTS / Self::LINE_SLOTS - 1)]
    }

    #[inline(always)]
    fn record(&self) -> &Record {
        &self.record
    }

    fn key(&self, owner: Owner) -> FlowKey {
        let addresses = self.addresses.get();
        FlowKey::V4(FlowKeyV4 {
            source: addresses as u32,
            destination: (addresses >> 32) as u32,
            ports: owner.ports(),
            protocol: owner.protocol(),
        })
    }
}

#[inline(always)]
pub(super) const fn joined(source: u32, destination: u32) -> u64 {
    source as u64 | (destination as u64) << 32
}

impl SlotV6 {
    /// Zero when these are the addresses, the two halves of the source first.
    #[inline(always)]
    pub(super) fn differs(&self, [a, b, c, d]: [u64; 4]) -> u64 {
        (self.source[0].get() ^ a)
            | (self.source[1].get() ^ b)
            | (self.destination[0].get() ^ c)
            | (self.destination[1].get() ^ d)
    }

    /// Tells if these are the addresses, of which `half` is asked one by one: so each is held against
    /// the slot's as soon as it is read.
    #[inline(always)]
    pub(super) fn has_addresses(&self, half: impl Fn(usize) -> u64) -> bool {
        self.source[0].get() == half(0)
            && self.source[1].get() == half(1)
            && self.destination[0].get() == half(2)
            && self.destination[1].get() == half(3)
    }

    #[inline(always)]
    pub(super) fn set_addresses(&self, [a, b, c, d]: [u64; 4]) {
        self.source[0].set(a);
        self.source[1].set(b);
        self.destination[0].set(c);
        self.destination[1].set(d);
    }
}

impl Slot for SlotV6 {
    type Line = [Self; 1];

    const LINE_SLOTS: usize = 1;

    #[inline(always)]
    fn extent(layout: &Layout) -> (u32, u32) {
        (layout.groups_v6, layout.groups_v4)
    }

    #[inline(always)]
    fn group_in<M: Memory>(memory: &M, index: u32) -> Option<&GroupV6> {
        memory.group_v6(index)
    }

    #[inline(always)]
    fn line(group: &GroupV6, number: usize) -> &[Self; 1] {
        core::array::from_ref(group.slot(number))
    }

    #[inline(always)]
    fn record(&self) -> &Record {
        &self.record
    }

    fn key(&self, owner: Owner) -> FlowKey {
        let read = |halves: &[Word; 2]| [halves[0].get(), halves[1].get()];
        FlowKey::V6(FlowKeyV6 {
            source: read(&self.source),
            destination: read(&self.destination),
            ports: owner.ports(),
            protocol: owner.protocol(),
        })
    }
}

impl Record {
    /// 1 when the flow has sent too little to be protected.
    #[inline(always)]
    pub(super) fn young_bit(&self, owner: Owner) -> u64 {
        exceeds(PROTECTED_PACKETS, self.narrow_packets()) & !owner.wide_bit()
    }
}

/// One slot is a part of a line, and a line is what the processor fetches.
const _: () = {
    assert!(size_of::<SlotV4>() == 32);
    assert!(size_of::<SlotV6>() == 64);
    assert!(size_of::<GroupV4>() == 256);
    assert!(size_of::<GroupV6>() == 512);
};
