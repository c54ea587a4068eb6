//! Plain Rust: the reference that the others are held to, and what runs where
//! there is nothing better.

use core::{ops::Range, slice};

use super::vector::Vector;
use super::{WeightedTask, XorTask, grouped, sliced};
use crate::gf256::NIBBLES;

/// The number of bytes that are summed at once where few are left.
const STRETCH: usize = 64;

/// # Safety
///
/// As of [`super::xor`], except that no instructions are asked for.
pub(super) unsafe fn xor(task: &XorTask<'_>, range: Range<usize>) {
    // SAFETY: the caller vouches for it.
    unsafe { grouped::xor::<Words<4>, Words<1>>(task, range) };
}

/// So many words of 8 bytes, which compilers put into vectors where there are any.
#[derive(Clone, Copy)]
pub(super) struct Words<const WORDS: usize>([u64; WORDS]);

impl<const WORDS: usize> Vector for Words<WORDS> {
    const BYTES: usize = WORDS * 8;

    #[inline(always)]
    unsafe fn zero() -> Self {
        Self([0; WORDS])
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller vouches for what is read.
        Self(unsafe { from.cast::<[u64; WORDS]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller vouches for what is written.
        unsafe { to.cast::<[u64; WORDS]>().write_unaligned(self.0) };
    }

    #[inline(always)]
    unsafe fn xor(mut self, other: Self) -> Self {
        for (word, other) in self.0.iter_mut().zip(other.0) {
            *word ^= other;
        }
        self
    }

    #[inline(always)]
    unsafe fn times(self, factor: u8) -> Self {
        let [low, high] = &NIBBLES.0[usize::from(factor)];
        let product = |byte: u8| low[usize::from(byte & 15)] ^ high[usize::from(byte >> 4)];
        Self(
            self.0
                .map(|word| u64::from_ne_bytes(word.to_ne_bytes().map(product))),
        )
    }
}

/// # Safety
///
/// As of [`super::weighted`], except that no instructions are asked for.
pub(super) unsafe fn weighted(task: &WeightedTask<'_>, range: Range<usize>) {
    // SAFETY: the caller vouches for it.
    unsafe {
        if range.len() < FEW {
            weighted_few(task, range);
        } else {
            sliced::weighted(task, range);
        }
    }
}

/// Fewer bytes than this are not worth slicing.
const FEW: usize = 32;

/// What the others leave of a range.
/// # Safety
///
/// As of [`super::weighted`], except that no instructions are asked for.
pub(super) unsafe fn weighted_few(task: &WeightedTask<'_>, range: Range<usize>) {
    let rows = task.weights.chunks_exact(task.inputs.len());
    for (&output, weights) in task.outputs.iter().zip(rows) {
        for at in range.clone().step_by(STRETCH) {
            let len = STRETCH.min(range.end - at);
            let mut sum = [0; STRETCH];
            for (&input, &weight) in task.inputs.iter().zip(weights) {
                // SAFETY: the caller vouches for the range, and `at + len` is in it.
                let input = unsafe { slice::from_raw_parts(input.add(at), len) };
                let [low, high] = &NIBBLES.0[usize::from(weight)];
                for (sum, byte) in sum.iter_mut().zip(input) {
                    *sum ^= low[usize::from(byte & 15)] ^ high[usize::from(byte >> 4)];
                }
            }
            // SAFETY: as above; nothing that is borrowed overlaps the output.
            let output = unsafe { slice::from_raw_parts_mut(output.add(at), len) };
            output.copy_from_slice(&sum[..len]);
        }
    }
}
