//! 128-bit vectors; products in GF(256) by two shuffles.
//!
//! For processors without AVX2: nearly all of x86-64 since 2006 have it. Sums by exclusive or need nothing
//! that the compiler does not know of any x86-64, and are those of [`portable`].

use core::{arch::x86_64::*, ops::Range};

use super::super::transform::{self, TransformTask};
use super::super::vector::Vector;
use super::super::{WeightedTask, portable};
use crate::gf256::NIBBLES;

const VECTOR: usize = 16;

/// # Safety
///
/// As of [`super::super::weighted`].
#[target_feature(enable = "ssse3")]
pub(in super::super) unsafe fn weighted(task: &WeightedTask<'_>, range: Range<usize>) {
    let whole = range.len() / VECTOR * VECTOR;
    let vectors = range.start..range.start + whole;
    let mut first = 0;
    // SAFETY: the caller vouches for the task, and each part lies in it.
    unsafe {
        while first < task.outputs.len() {
            first += match task.outputs.len() - first {
                4.. => weighted_group::<4>(task, first, vectors.clone()),
                2.. => weighted_group::<2>(task, first, vectors.clone()),
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
/// As of [`super::super::weighted`]; there are so many outputs.
#[target_feature(enable = "ssse3")]
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
            let mut sums = [Wide::<1>::zero(); OUTPUTS];
            for (index, &input) in task.inputs.iter().enumerate() {
                let symbol = Wide::<1>::load(input.add(at));
                for (output, sum) in sums.iter_mut().enumerate() {
                    let weight = *task.weights.get_unchecked((first + output) * n + index);
                    *sum = sum.xor(symbol.times(weight));
                }
            }
            for (output, sum) in sums.into_iter().enumerate() {
                sum.store(task.outputs[first + output].add(at));
            }
        }
    }
    OUTPUTS
}

/// # Safety
///
/// As of [`super::super::transform`].
#[target_feature(enable = "ssse3")]
pub(in super::super) unsafe fn transform(task: &TransformTask<'_>, range: Range<usize>) {
    // SAFETY: the caller vouches for it.
    unsafe { transform::transform::<Wide<2>, Wide<1>>(task, range) };
}

/// So many vectors of 16 bytes.
#[derive(Clone, Copy)]
struct Wide<const VECTORS: usize>([__m128i; VECTORS]);

impl<const VECTORS: usize> Vector for Wide<VECTORS> {
    const BYTES: usize = VECTORS * VECTOR;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller has the instructions.
        Self([unsafe { _mm_setzero_si128() }; VECTORS])
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller vouches for what is read.
        unsafe {
            let mut vectors = Self::zero();
            for (number, vector) in vectors.0.iter_mut().enumerate() {
                *vector = _mm_loadu_si128(from.add(number * VECTOR).cast());
            }
            vectors
        }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        for (number, vector) in self.0.into_iter().enumerate() {
            // SAFETY: the caller vouches for what is written.
            unsafe { _mm_storeu_si128(to.add(number * VECTOR).cast(), vector) };
        }
    }

    #[inline(always)]
    unsafe fn xor(mut self, other: Self) -> Self {
        for (vector, other) in self.0.iter_mut().zip(other.0) {
            // SAFETY: the caller has the instructions.
            *vector = unsafe { _mm_xor_si128(*vector, other) };
        }
        self
    }

    #[inline(always)]
    unsafe fn times(mut self, factor: u8) -> Self {
        // SAFETY: the caller has the instructions; the tables have 16 bytes each.
        unsafe {
            let low_nibbles = _mm_set1_epi8(15);
            let [of_low, of_high] = &NIBBLES.0[usize::from(factor)];
            let of_low = _mm_loadu_si128(of_low.as_ptr().cast());
            let of_high = _mm_loadu_si128(of_high.as_ptr().cast());
            for vector in &mut self.0 {
                let low = _mm_and_si128(*vector, low_nibbles);
                let high = _mm_and_si128(_mm_srli_epi16::<4>(*vector), low_nibbles);
                *vector = _mm_xor_si128(
                    _mm_shuffle_epi8(of_low, low),
                    _mm_shuffle_epi8(of_high, high),
                );
            }
        }
        self
    }
}
