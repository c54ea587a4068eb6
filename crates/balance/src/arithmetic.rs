//! Comparisons and choices of numbers without branches, where those cost.
//!
//! Elsewhere a compiler finds the processor's instructions for them by itself. The
//! kernel's machine has none, so they become branches there, and the verifier
//! follows both branches of each: for a choice among sixteen paths, too many to ever
//! come to an end. There they are computed. A host's [`Paths`](crate::Paths) computes likewise.

/// 1 if `a` is less than `b`, else 0.
#[inline(always)]
pub const fn less(a: u64, b: u64) -> u64 {
    if cfg!(target_arch = "bpf") {
        borrow(a, b)
    } else {
        (a < b) as u64
    }
}

/// `a` if `bit` is 1, and `b` if it is 0.
#[inline(always)]
pub fn select(bit: u64, a: u64, b: u64) -> u64 {
    if cfg!(target_arch = "bpf") {
        blend(opaque(bit.wrapping_neg()), a, b)
    } else if bit != 0 {
        a
    } else {
        b
    }
}

/// Returns the smaller number.
#[inline(always)]
pub fn min(a: u64, b: u64) -> u64 {
    select(less(a, b), a, b)
}

/// Returns the larger number.
#[inline(always)]
pub fn max(a: u64, b: u64) -> u64 {
    select(less(a, b), b, a)
}

/// The sum, or the largest number there is.
#[inline(always)]
pub fn saturating_add(a: u64, b: u64) -> u64 {
    let sum = a.wrapping_add(b);
    select(less(sum, a), u64::MAX, sum)
}

/// What is borrowed in `a - b` (Warren: "Hacker's Delight", 2-13).
const fn borrow(a: u64, b: u64) -> u64 {
    ((!a & b) | ((!a | b) & a.wrapping_sub(b))) >> 63
}

/// The bits of `a` where `mask` has them, and of `b` elsewhere.
const fn blend(mask: u64, a: u64, b: u64) -> u64 {
    b ^ ((a ^ b) & mask)
}

/// Returns the number, of which the compiler no longer knows what it can be: it would
/// make a branch of one of two, and leave out a bound that only the verifier needs.
#[inline(always)]
pub fn opaque(number: u64) -> u64 {
    #[cfg(target_arch = "bpf")]
    let number = {
        let mut number = number;
        // SAFETY: moves a register to itself.
        #[allow(unsafe_code, reason = "`black_box` would take the stack for it")]
        unsafe {
            core::arch::asm!("{0} = {0}", inout(reg) number, options(pure, nomem, nostack));
        }
        number
    };
    number
}

/// Zero, of which neither the compiler nor the kernel's verifier knows that it is: what is added to it is a
/// number like any other to them. `of` is any number that they do not know.
#[inline(always)]
pub fn unforeseen_zero(of: u64) -> u64 {
    if cfg!(target_arch = "bpf") {
        opaque(of).wrapping_sub(of)
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EDGES: [u64; 6] = [0, 1, u64::MAX / 2, u64::MAX / 2 + 1, u64::MAX - 1, u64::MAX];

    fn number() -> impl Strategy<Value = u64> {
        prop_oneof![proptest::sample::select(&EDGES), any::<u64>()]
    }

    proptest! {
        #[test]
        fn what_is_computed_is_what_is_compared(a in number(), b in number()) {
            prop_assert_eq!(borrow(a, b), u64::from(a < b));
            prop_assert_eq!(borrow(a, a), 0);
            prop_assert_eq!(blend(u64::MAX, a, b), a);
            prop_assert_eq!(blend(0, a, b), b);
        }

        #[test]
        fn they_are_the_operators(a in number(), b in number()) {
            prop_assert_eq!(less(a, b), u64::from(a < b));
            prop_assert_eq!(min(a, b), a.min(b));
            prop_assert_eq!(max(a, b), a.max(b));
            prop_assert_eq!(saturating_add(a, b), a.saturating_add(b));
        }
    }
}
