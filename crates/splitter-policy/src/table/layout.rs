//! The layout of the flow table: the group and the home line of a flow, by a seeded hash.

use super::{GROUP_FLOWS, GROUP_SLOTS, LineKey as _, Slot, SlotV4, SlotV6};
use crate::flow::{FlowKey, FlowKeyV4, FlowKeyV6, Seeds};

/// The sizes and seeds by which flows are spread over both tables; 88 bytes, a part of the settings
/// map.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The seeds, drawn at load.
    pub seeds: Seeds,
    /// Groups of the IPv4 table.
    pub groups_v4: u32,
    /// Groups of the IPv6 table.
    pub groups_v6: u32,
}

/// A group, the first slot of the home line within it, and the flow's tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) group: u32,
    pub(super) home: usize,
    pub(super) tag: u8,
}

impl Layout {
    /// A layout for so many flows of each family.
    pub const fn for_flows(flows: u32, seeds: Seeds) -> Self {
        let groups = Self::groups_for(flows);
        Self {
            seeds,
            groups_v4: groups,
            groups_v6: groups,
        }
    }

    /// Returns the same layout as kernel programs read it: the seeds that are multiplied by are odd, which those
    /// do not see to for each packet. It leads to the same places.
    #[must_use]
    pub const fn with_odd_seeds(mut self) -> Self {
        let [.., ports, stir] = &mut self.seeds;
        *ports |= 1;
        *stir |= 1;
        self
    }

    /// The number of groups in a table for so many flows.
    pub const fn groups_for(flows: u32) -> u32 {
        flows.div_ceil(GROUP_FLOWS)
    }

    /// Where the tags of an IPv6 group are, behind those of the IPv4 ones.
    #[cfg(not(target_arch = "bpf"))]
    pub(super) const fn tags_v6(&self, group: u32) -> u32 {
        self.groups_v4.wrapping_add(group)
    }

    /// The group of a flow, and the first slot of its home line.
    pub fn place(&self, key: &FlowKey) -> (u32, usize) {
        let Position { group, home, .. } = match key {
            FlowKey::V4(key) => self.locate_v4(key),
            FlowKey::V6(key) => self.locate_v6(key),
        };
        (group, home)
    }

    /// Locates the tags of a flow's group, with the flow's own tag.
    #[cfg(not(target_arch = "bpf"))]
    pub fn tag(&self, key: &FlowKey) -> (u32, u8) {
        match key {
            FlowKey::V4(key) => {
                let Position { group, tag, .. } = self.locate_v4(key);
                (group, tag)
            }
            FlowKey::V6(key) => {
                let Position { group, tag, .. } = self.locate_v6(key);
                (self.tags_v6(group), tag)
            }
        }
    }

    #[inline(always)]
    pub(super) fn locate_v4(&self, key: &FlowKeyV4) -> Position {
        Position::of(key.stir(self), self.groups_v4, SlotV4::LINE_SLOTS)
    }

    /// The hash of an IPv4 flow, of which [`Position::of`] takes the upper bits.
    #[inline(always)]
    pub(super) const fn stir_v4(&self, source: u32, destination: u32, ports: u32) -> u64 {
        let [a, b, .., ports_seed, stir] = self.seeds;
        let addresses = product([source, destination], a, b);
        let mixed = addresses.wrapping_add((ports as u64).wrapping_mul(odd(ports_seed)));
        stirred(mixed, stir)
    }

    #[inline(always)]
    pub(super) fn locate_v6(&self, key: &FlowKeyV6) -> Position {
        Position::of(key.stir(self), self.groups_v6, SlotV6::LINE_SLOTS)
    }

    /// The hash of an IPv6 flow, of its addresses in halves of eight bytes, the lower one first.
    #[inline(always)]
    pub(super) const fn stir_v6(&self, addresses: [[u32; 2]; 4], ports: u32) -> u64 {
        let [a, b, c, d, e, f, g, h, ports_seed, stir] = self.seeds;
        let [source, more_source, destination, more_destination] = addresses;
        // In halves of 32 bits: of a product's 64, the upper bits of a factor
        // reach only the uppermost. Each factor has a seed of its own, as the bound on collisions
        // demands (Lemire and Kaser 2014, Multilinear-HM): with one in two products, whoever has
        // a /64 finds thousands of keys whose products add up to the same.
        let mixed = product(source, a, b)
            .wrapping_add(product(more_source, c, d))
            .wrapping_add(product(destination, e, f))
            .wrapping_add(product(more_destination, g, h))
            .wrapping_add((ports as u64).wrapping_mul(odd(ports_seed)));
        stirred(mixed, stir)
    }
}

#[inline(always)]
const fn product([one, other]: [u32; 2], one_seed: u64, other_seed: u64) -> u64 {
    (one as u64)
        .wrapping_add(one_seed)
        .wrapping_mul((other as u64).wrapping_add(other_seed))
}

/// Folds and stirs. Without the second multiplication, neighbouring addresses meet under
/// unlucky seeds.
#[inline(always)]
const fn stirred(mixed: u64, seed: u64) -> u64 {
    (mixed ^ (mixed >> 32)).wrapping_mul(odd(seed))
}

/// A seed that is multiplied by, odd so that nothing is lost. The kernel programs find it so, because
/// [`Layout::with_odd_seeds`] is what they are given.
#[inline(always)]
const fn odd(seed: u64) -> u64 {
    if cfg!(target_arch = "bpf") {
        seed
    } else {
        seed | 1
    }
}

impl Position {
    /// Takes the upper bits of a hash for the group and some below for the line.
    #[inline(always)]
    pub(super) const fn of(stirred: u64, groups: u32, line_slots: usize) -> Self {
        let group = ((stirred >> 32) * groups as u64) >> 32;
        let line = line_number(stirred) & (GROUP_SLOTS / line_slots - 1);
        Self {
            group: group as u32,
            home: line * line_slots,
            tag: (stirred >> 16) as u8,
        }
    }
}

/// The bits of a hash of which the lowest few are the number of the line.
#[inline(always)]
pub(super) const fn line_number(stirred: u64) -> usize {
    (stirred >> 24) as usize
}
