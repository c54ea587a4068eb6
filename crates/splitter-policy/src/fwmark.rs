//! The fwmark that the kernel keeps next to a packet (`skb->mark`), and which of its bits are ours.

use crate::dscp::Dscp;

/// The bits of the fwmark that are ours: a run of them. All others are kept, for other users of
/// marks. Zero where none are.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MarkBits(u32);

impl MarkBits {
    /// No bits: the fwmark is left alone.
    pub const NONE: Self = Self(0);

    /// The bits that are set in `mask`; `None` where they are not one run.
    pub const fn new(mask: u32) -> Option<Self> {
        let run = mask >> (mask.trailing_zeros() & 31);
        if mask != 0 && run & run.wrapping_add(1) == 0 {
            Some(Self(mask))
        } else {
            None
        }
    }

    /// The mask that selects these bits of the fwmark.
    #[inline(always)]
    pub const fn mask(self) -> u32 {
        self.0
    }

    /// Tells if the number of a mark fits into these bits.
    pub const fn fits(self, mark: Dscp) -> bool {
        (mark.value() as u64 * self.lowest() as u64) & !(self.0 as u64) == 0
    }

    /// A mark as these bits have it; what a rule matches under [`MarkBits::mask`].
    #[inline(always)]
    pub const fn of(self, mark: Dscp) -> u32 {
        (mark.value() as u32).wrapping_mul(self.lowest()) & self.0
    }

    /// `kernel_mark` with these bits replaced, and no others.
    #[inline(always)]
    pub const fn applied_to(self, kernel_mark: u32, mark: Dscp) -> u32 {
        kernel_mark & !self.0 | self.of(mark)
    }

    /// The mark in these bits of `kernel_mark`, as far as it has six bits.
    #[inline(always)]
    pub const fn read(self, kernel_mark: u32) -> Dscp {
        // The kernel's verifier wants to see that a shift is less than the width.
        let number = (kernel_mark & self.0) >> (self.0.trailing_zeros() & 31);
        Dscp::of_traffic_class((number << 2) as u8)
    }

    #[inline(always)]
    const fn lowest(self) -> u32 {
        self.0 & self.0.wrapping_neg()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn our_bits_are_replaced_and_no_others(
            before: u32,
            width in 1u32..=32,
            shift in 0u32..32,
            number in 0u8..64,
        ) {
            let mask = (((1u64 << width) - 1) << shift) as u32;
            prop_assume!(mask != 0);
            let bits = MarkBits::new(mask).expect("one run");
            let mark = Dscp::new(number).expect("six bits");
            let after = bits.applied_to(before, mark);
            prop_assert_eq!(after & !mask, before & !mask);
            prop_assert_eq!(after & mask, bits.of(mark));
            if bits.fits(mark) {
                prop_assert_eq!(bits.read(after), mark);
            }
            prop_assert_eq!(bits.fits(mark), number.checked_ilog2().is_none_or(|top| top < mask.count_ones()));
        }
    }

    #[test]
    fn bits_are_one_run() {
        assert!(MarkBits::new(0).is_none());
        assert!(MarkBits::new(0x5).is_none());
        assert!(MarkBits::new(0x8000_0001).is_none());
        for mask in [1, 6, 0x3f00_0000, 0x8000_0000, u32::MAX] {
            assert_eq!(MarkBits::new(mask).map(MarkBits::mask), Some(mask));
        }
    }
}
