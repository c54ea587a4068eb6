//! The slots and groups of the flow table, as they lie in the kernel's maps.

use super::home_line::exceeds;
use super::owner::Owner;
use super::record::Record;
use super::{GROUP_SLOTS, Layout, PROTECTED_PACKETS, Word};
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
pub trait Slot {
    /// What names a flow of the family.
    type Key;

    /// Slots of a 64-byte line.
    const LINE_SLOTS: usize;

    /// Groups of the family's table, and the tags before its own.
    fn extent(layout: &Layout) -> (u32, u32);

    /// Zero when the addresses are those of `key`.
    fn differs(&self, key: &Self::Key) -> u64;

    /// Writes the addresses of `key`.
    fn set_addresses(&self, key: &Self::Key);

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

impl Slot for SlotV4 {
    type Key = FlowKeyV4;

    const LINE_SLOTS: usize = 2;

    #[inline(always)]
    fn extent(layout: &Layout) -> (u32, u32) {
        (layout.groups_v4, 0)
    }

    #[inline(always)]
    fn differs(&self, key: &FlowKeyV4) -> u64 {
        self.addresses.get() ^ joined(key)
    }

    #[inline(always)]
    fn set_addresses(&self, key: &FlowKeyV4) {
        self.addresses.set(joined(key));
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
const fn joined(key: &FlowKeyV4) -> u64 {
    key.source as u64 | (key.destination as u64) << 32
}

impl Slot for SlotV6 {
    type Key = FlowKeyV6;

    const LINE_SLOTS: usize = 1;

    #[inline(always)]
    fn extent(layout: &Layout) -> (u32, u32) {
        (layout.groups_v6, layout.groups_v4)
    }

    #[inline(always)]
    fn differs(&self, key: &FlowKeyV6) -> u64 {
        (self.source[0].get() ^ key.source[0])
            | (self.source[1].get() ^ key.source[1])
            | (self.destination[0].get() ^ key.destination[0])
            | (self.destination[1].get() ^ key.destination[1])
    }

    #[inline(always)]
    fn set_addresses(&self, key: &FlowKeyV6) {
        self.source[0].set(key.source[0]);
        self.source[1].set(key.source[1]);
        self.destination[0].set(key.destination[0]);
        self.destination[1].set(key.destination[1]);
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
