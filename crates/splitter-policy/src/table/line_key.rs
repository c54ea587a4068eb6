//! Keys by which the home line of a flow is found and looked through: of a flow's 5-tuple, or of a
//! packet's bytes where they lie.

use super::owner::Owner;
use super::slot::{SlotV4, SlotV6, joined};
use super::{Layout, Slot};
use crate::flow::{FlowKey, FlowKeyV4, FlowKeyV6};
use crate::packet::{WireKeyV4, WireKeyV6, protocol};

/// A name of a flow of one family, as look-ups compare it with slots.
pub trait LineKey: Copy {
    /// The slots of its family.
    type Slot: Slot;

    /// The hash of the flow, of which the group and the line are the upper bits.
    fn stir(&self, layout: &Layout) -> u64;

    /// Zero when the addresses of a slot are those of the key.
    fn differs(&self, slot: &Self::Slot) -> u64;

    /// Tells the same, with a branch where they begin to differ: for a line of few slots, which a verifier
    /// may follow for each outcome.
    fn has_addresses_of(&self, slot: &Self::Slot) -> bool {
        self.differs(slot) == 0
    }

    /// Writes the addresses of the key into a slot.
    fn write_to(&self, slot: &Self::Slot);

    /// Ports and protocol, as a slot's owner has them.
    fn owner(&self) -> Owner;
}

impl LineKey for &FlowKeyV4 {
    type Slot = SlotV4;

    #[inline(always)]
    fn stir(&self, layout: &Layout) -> u64 {
        layout.stir_v4(self.source, self.destination, self.ports)
    }

    #[inline(always)]
    fn differs(&self, slot: &SlotV4) -> u64 {
        slot.addresses() ^ joined(self.source, self.destination)
    }

    #[inline(always)]
    fn write_to(&self, slot: &SlotV4) {
        slot.set_addresses(joined(self.source, self.destination));
    }

    #[inline(always)]
    fn owner(&self) -> Owner {
        Owner::of(&FlowKey::V4(**self))
    }
}

impl LineKey for &FlowKeyV6 {
    type Slot = SlotV6;

    #[inline(always)]
    fn stir(&self, layout: &Layout) -> u64 {
        let ([a, b], [c, d]) = (self.source, self.destination);
        layout.stir_v6([halves(a), halves(b), halves(c), halves(d)], self.ports)
    }

    #[inline(always)]
    fn differs(&self, slot: &SlotV6) -> u64 {
        let ([a, b], [c, d]) = (self.source, self.destination);
        slot.differs([a, b, c, d])
    }

    #[inline(always)]
    fn write_to(&self, slot: &SlotV6) {
        let ([a, b], [c, d]) = (self.source, self.destination);
        slot.set_addresses([a, b, c, d]);
    }

    #[inline(always)]
    fn owner(&self) -> Owner {
        Owner::of(&FlowKey::V6(**self))
    }
}

// Each reads what it needs: kept from one to the next, all of it would lie on the stack meanwhile.

impl LineKey for WireKeyV4<'_> {
    type Slot = SlotV4;

    #[inline(always)]
    fn stir(&self, layout: &Layout) -> u64 {
        layout.stir_v4(self.source(), self.destination(), self.ports())
    }

    #[inline(always)]
    fn differs(&self, slot: &SlotV4) -> u64 {
        slot.addresses() ^ self.addresses()
    }

    #[inline(always)]
    fn has_addresses_of(&self, slot: &SlotV4) -> bool {
        slot.addresses() == self.addresses()
    }

    #[inline(always)]
    fn write_to(&self, slot: &SlotV4) {
        slot.set_addresses(self.addresses());
    }

    #[inline(always)]
    fn owner(&self) -> Owner {
        Owner::named(self.ports(), protocol::TCP)
    }
}

impl LineKey for WireKeyV6<'_> {
    type Slot = SlotV6;

    #[inline(always)]
    fn stir(&self, layout: &Layout) -> u64 {
        let halves = [
            self.halves(0),
            self.halves(1),
            self.halves(2),
            self.halves(3),
        ];
        layout.stir_v6(halves, self.ports())
    }

    #[inline(always)]
    fn differs(&self, slot: &SlotV6) -> u64 {
        slot.differs(self.longs())
    }

    #[inline(always)]
    fn has_addresses_of(&self, slot: &SlotV6) -> bool {
        slot.has_addresses(|index| self.long(index))
    }

    #[inline(always)]
    fn write_to(&self, slot: &SlotV6) {
        slot.set_addresses(self.longs());
    }

    #[inline(always)]
    fn owner(&self) -> Owner {
        Owner::named(self.ports(), protocol::TCP)
    }
}

#[inline(always)]
const fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}
