//! 128-bit vectors; products in GF(256) by two table look-ups.

use core::{arch::aarch64::*, ops::Range};

use super::grouped;
use super::transform::{self, TransformTask};
use super::vector::Vector;
use super::{WeightedTask, XorTask, portable};
use crate::gf256::NIBBLES;

const VECTOR: usize = 16;

/// # Safety
///
/// As of [`super::xor`].
#[target_feature(enable = "neon")]
pub(super) unsafe fn xor(task: &XorTask<'_>, range: Range<usize>) {
    const WIDE: usize = 16;
    let mut at = range.start;
    // SAFETY: the caller vouches for the range, and every stretch lies in it.
    unsafe {
        if grouped::pays(task) {
            return grouped::xor::<Wide<5>, Wide<1>>(task, range);
        }
        while at + WIDE * VECTOR <= range.end {
            xor_stretch::<WIDE>(task, at);
            at += WIDE * VECTOR;
        }
        while at + VECTOR <= range.end {
            xor_stretch::<1>(task, at);
            at += VECTOR;
        }
        portable::xor(task, at..range.end);
    }
}

/// # Safety
///
/// As of [`super::xor`], for `WIDE` vectors at offset `at`.
#[target_feature(enable = "neon")]
#[inline]
unsafe fn xor_stretch<const WIDE: usize>(task: &XorTask<'_>, at: usize) {
    // SAFETY: the caller vouches for all that is read and written.
    unsafe {
        for &(output, mask) in task.outputs {
            let mut sums = [vdupq_n_u8(0); WIDE];
            let mut rest = mask;
            while rest != 0 {
                let index = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                let input = task.inputs.get_unchecked(index).add(at);
                for (vector, sum) in sums.iter_mut().enumerate() {
                    *sum = veorq_u8(*sum, vld1q_u8(input.add(vector * VECTOR)));
                }
            }
            for (vector, &sum) in sums.iter().enumerate() {
                vst1q_u8(output.add(at + vector * VECTOR), sum);
            }
        }
    }
}

/// # Safety
///
/// As of [`super::weighted`].
#[target_feature(enable = "neon")]
pub(super) unsafe fn weighted(task: &WeightedTask<'_>, range: Range<usize>) {
    let whole = range.len() / VECTOR * VECTOR;
    let vectors = range.start..range.start + whole;
    let mut first = 0;
    // SAFETY: the caller vouches for the task, and each part lies in it.
    unsafe {
        while first < task.outputs.len() {
            first += match task.outputs.len() - first {
                4.. => weighted_group::<4>(task, first, vectors.clone()),
                _ => weighted_group::<1>(task, first, vectors.clone()),
            };
        }
        portable::weighted_few(task, vectors.end..range.end);
    }
}

/// Computes the outputs from `first` on, and tells how many those are; `range`
/// is a whole number of vectors.
///
/// # Safety
///
/// As of [`super::weighted`]; there are so many outputs.
#[target_feature(enable = "neon")]
#[inline]
unsafe fn weighted_group<const OUTPUTS: usize>(
    task: &WeightedTask<'_>,
    first: usize,
    range: Range<usize>,
) -> usize {
    let n = task.inputs.len();
    for at in range.step_by(VECTOR) {
        // SAFETY: the caller vouches for all that is read and written; there is
        // a weight for each input and output.
        unsafe {
            let mut sums = [vdupq_n_u8(0); OUTPUTS];
            for (index, &input) in task.inputs.iter().enumerate() {
                let symbol = vld1q_u8(input.add(at));
                let low = vandq_u8(symbol, vdupq_n_u8(15));
                let high = vshrq_n_u8::<4>(symbol);
                for (output, sum) in sums.iter_mut().enumerate() {
                    let weight = *task.weights.get_unchecked((first + output) * n + index);
                    let [of_low, of_high] = &NIBBLES.0[usize::from(weight)];
                    let low = vqtbl1q_u8(vld1q_u8(of_low.as_ptr()), low);
                    let high = vqtbl1q_u8(vld1q_u8(of_high.as_ptr()), high);
                    *sum = veorq_u8(*sum, veorq_u8(low, high));
                }
            }
            for (output, &sum) in sums.iter().enumerate() {
                vst1q_u8(task.outputs[first + output].add(at), sum);
            }
        }
    }
    OUTPUTS
}

/// # Safety
///
/// As of [`super::transform`].
#[target_feature(enable = "neon")]
pub(super) unsafe fn transform(task: &TransformTask<'_>, range: Range<usize>) {
    // SAFETY: the caller vouches for it.
    unsafe { transform::transform::<Wide<4>, Wide<1>>(task, range) };
}

/// So many vectors of 16 bytes.
#[derive(Clone, Copy)]
struct Wide<const VECTORS: usize>([uint8x16_t; VECTORS]);

impl<const VECTORS: usize> Vector for Wide<VECTORS> {
    const BYTES: usize = VECTORS * VECTOR;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller has the instructions.
        Self([unsafe { vdupq_n_u8(0) }; VECTORS])
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller vouches for what is read.
        unsafe {
            let mut vectors = Self::zero();
            for (number, vector) in vectors.0.iter_mut().enumerate() {
                *vector = vld1q_u8(from.add(number * VECTOR));
            }
            vectors
        }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        for (number, vector) in self.0.into_iter().enumerate() {
            // SAFETY: the caller vouches for what is written.
            unsafe { vst1q_u8(to.add(number * VECTOR), vector) };
        }
    }

    #[inline(always)]
    unsafe fn xor(mut self, other: Self) -> Self {
        for (vector, other) in self.0.iter_mut().zip(other.0) {
            // SAFETY: the caller has the instructions.
            *vector = unsafe { veorq_u8(*vector, other) };
        }
        self
    }

    #[inline(always)]
    unsafe fn times(mut self, factor: u8) -> Self {
        // SAFETY: the caller has the instructions; the tables have 16 bytes each.
        unsafe {
            let [of_low, of_high] = &NIBBLES.0[usize::from(factor)];
            let (of_low, of_high) = (vld1q_u8(of_low.as_ptr()), vld1q_u8(of_high.as_ptr()));
            for vector in &mut self.0 {
                let low = vqtbl1q_u8(of_low, vandq_u8(*vector, vdupq_n_u8(15)));
                *vector = veorq_u8(low, vqtbl1q_u8(of_high, vshrq_n_u8::<4>(*vector)));
            }
        }
        self
    }
}
