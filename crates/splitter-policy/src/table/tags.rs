//! Tags: a byte for each slot, by which a flood bypasses the table.
//!
//! A slot's tag is a part of its flow's hash. A flow whose tag no slot of its group
//! has is not in the table; of those that are not, one in thirty or so finds its tag
//! by chance. All tags together are so small that a processor's cache holds them,
//! which the table is not.
//!
//! A tag is written with its slot's owner and stays when that is gone.

use super::{GROUP_SLOTS, Word};

/// The tags of a group's slots, each in a byte of one word.
#[repr(transparent)]
#[derive(Debug, Default)]
pub struct Tags(pub(super) Word);

impl Tags {
    /// Whether none of the slots may be that of a flow with `tag`.
    #[inline(always)]
    pub(super) fn rule_out(&self, tag: u8) -> bool {
        const LOWEST: u64 = 0x0101_0101_0101_0101;
        const HIGHEST: u64 = LOWEST << 7;
        let differences = self.0.get() ^ (LOWEST * tag as u64);
        // Whether no byte is zero: borrows make the highest bits of those alone.
        differences.wrapping_sub(LOWEST) & !differences & HIGHEST == 0
    }

    /// Another CPU may tag another slot at the same time.
    #[cfg(target_arch = "bpf")]
    #[allow(unsafe_code, reason = "a word changes as a whole in safe code")]
    #[inline(always)]
    pub(super) fn set(&self, index: usize, tag: u8) {
        let bytes = self.0.as_ptr().cast::<u8>();
        // SAFETY: one of the eight bytes of a word, which only this type can reach.
        unsafe { bytes.add(index & (GROUP_SLOTS - 1)).write_volatile(tag) }
    }

    /// The same where a word can be replaced.
    #[cfg(not(target_arch = "bpf"))]
    pub(super) fn set(&self, index: usize, tag: u8) {
        let shift = index % GROUP_SLOTS * 8;
        loop {
            let old = self.0.get();
            let new = old & !(0xff << shift) | u64::from(tag) << shift;
            if self.0.exchange(old, new) {
                return;
            }
        }
    }
}

const _: () = assert!(size_of::<Tags>() == GROUP_SLOTS);
