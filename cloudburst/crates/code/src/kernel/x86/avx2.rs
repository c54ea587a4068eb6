//! 256-bit vectors; products in GF(256) by two shuffles.

use core::{arch::x86_64::*, ops::Range};

use super::super::grouped;
use super::super::transform::{self, TransformTask};
use super::super::vector::Vector;
use super::super::{WeightedTask, XorTask, portable};
use crate::gf256::NIBBLES;

const VECTOR: usize = 32;

/// # Safety
///
/// As of [`super::super::xor`].
#[target_feature(enable = "avx2")]
pub(in super::super) unsafe fn xor(task: &XorTask<'_>, range: Range<usize>) {
    const WIDE: usize = 10;
    let mut at = range.start;
    // SAFETY: the caller vouches for the range, and every stretch lies in it.
    unsafe {
        if grouped::pays(task) {
            return grouped::xor::<Wide<3>, Wide<1>>(task, range);
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
/// As of [`super::super::xor`], for `WIDE` vectors at offset `at`.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn xor_stretch<const WIDE: usize>(task: &XorTask<'_>, at: usize) {
    // SAFETY: the caller vouches for all that is read and written.
    unsafe {
        for &(output, mask) in task.outputs {
            let mut sums = [_mm256_setzero_si256(); WIDE];
            let mut rest = mask;
            while rest != 0 {
                let index = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                let input = task.inputs.get_unchecked(index).add(at);
                for (vector, sum) in sums.iter_mut().enumerate() {
                    let input = _mm256_loadu_si256(input.add(vector * VECTOR).cast());
                    *sum = _mm256_xor_si256(*sum, input);
                }
            }
            for (vector, &sum) in sums.iter().enumerate() {
                _mm256_storeu_si256(output.add(at + vector * VECTOR).cast(), sum);
            }
        }
    }
}

/// # Safety
///
/// As of [`super::super::weighted`].
#[target_feature(enable = "avx2")]
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
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn weighted_group<const OUTPUTS: usize>(
    task: &WeightedTask<'_>,
    first: usize,
    range: Range<usize>,
) -> usize {
    let mut at = range.start;
    // SAFETY: the caller vouches for the range, and every stretch lies in it.
    unsafe {
        while at + 2 * VECTOR <= range.end {
            weighted_stretch::<OUTPUTS, 2>(task, first, at);
            at += 2 * VECTOR;
        }
        if at < range.end {
            weighted_stretch::<OUTPUTS, 1>(task, first, at);
        }
    }
    OUTPUTS
}

/// # Safety
///
/// As of [`super::super::weighted`], for `WIDE` vectors at offset `at`.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn weighted_stretch<const OUTPUTS: usize, const WIDE: usize>(
    task: &WeightedTask<'_>,
    first: usize,
    at: usize,
) {
    let n = task.inputs.len();
    // SAFETY: the caller vouches for all that is read and written; there is a
    // weight for each input and output.
    unsafe {
        let low_nibbles = _mm256_set1_epi8(15);
        let mut sums = [[_mm256_setzero_si256(); WIDE]; OUTPUTS];
        for (index, &input) in task.inputs.iter().enumerate() {
            let mut low = [_mm256_setzero_si256(); WIDE];
            let mut high = [_mm256_setzero_si256(); WIDE];
            for vector in 0..WIDE {
                let symbol = _mm256_loadu_si256(input.add(at + vector * VECTOR).cast());
                low[vector] = _mm256_and_si256(symbol, low_nibbles);
                high[vector] = _mm256_and_si256(_mm256_srli_epi16::<4>(symbol), low_nibbles);
            }
            for (output, sums) in sums.iter_mut().enumerate() {
                let weight = *task.weights.get_unchecked((first + output) * n + index);
                let [of_low, of_high] = &NIBBLES.0[usize::from(weight)];
                let of_low = _mm256_broadcastsi128_si256(_mm_loadu_si128(of_low.as_ptr().cast()));
                let of_high = _mm256_broadcastsi128_si256(_mm_loadu_si128(of_high.as_ptr().cast()));
                for (vector, sum) in sums.iter_mut().enumerate() {
                    let products = _mm256_xor_si256(
                        _mm256_shuffle_epi8(of_low, low[vector]),
                        _mm256_shuffle_epi8(of_high, high[vector]),
                    );
                    *sum = _mm256_xor_si256(*sum, products);
                }
            }
        }
        for (output, sums) in sums.iter().enumerate() {
            let output = task.outputs[first + output].add(at);
            for (vector, &sum) in sums.iter().enumerate() {
                _mm256_storeu_si256(output.add(vector * VECTOR).cast(), sum);
            }
        }
    }
}

/// # Safety
///
/// As of [`super::super::transform`].
#[target_feature(enable = "avx2")]
pub(in super::super) unsafe fn transform(task: &TransformTask<'_>, range: Range<usize>) {
    // SAFETY: the caller vouches for it.
    unsafe { transform::transform::<Wide<2>, Wide<1>>(task, range) };
}

/// So many vectors of 32 bytes.
#[derive(Clone, Copy)]
struct Wide<const VECTORS: usize>([__m256i; VECTORS]);

impl<const VECTORS: usize> Vector for Wide<VECTORS> {
    const BYTES: usize = VECTORS * VECTOR;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller has the instructions.
        Self([unsafe { _mm256_setzero_si256() }; VECTORS])
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller vouches for what is read.
        unsafe {
            let mut vectors = Self::zero();
            for (number, vector) in vectors.0.iter_mut().enumerate() {
                *vector = _mm256_loadu_si256(from.add(number * VECTOR).cast());
            }
            vectors
        }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        for (number, vector) in self.0.into_iter().enumerate() {
            // SAFETY: the caller vouches for what is written.
            unsafe { _mm256_storeu_si256(to.add(number * VECTOR).cast(), vector) };
        }
    }

    #[inline(always)]
    unsafe fn xor(mut self, other: Self) -> Self {
        for (vector, other) in self.0.iter_mut().zip(other.0) {
            // SAFETY: the caller has the instructions.
            *vector = unsafe { _mm256_xor_si256(*vector, other) };
        }
        self
    }

    #[inline(always)]
    unsafe fn times(mut self, factor: u8) -> Self {
        // SAFETY: the caller has the instructions; the tables have 16 bytes each.
        unsafe {
            let low_nibbles = _mm256_set1_epi8(15);
            let [of_low, of_high] = &NIBBLES.0[usize::from(factor)];
            let of_low = _mm256_broadcastsi128_si256(_mm_loadu_si128(of_low.as_ptr().cast()));
            let of_high = _mm256_broadcastsi128_si256(_mm_loadu_si128(of_high.as_ptr().cast()));
            for vector in &mut self.0 {
                let low = _mm256_and_si256(*vector, low_nibbles);
                let high = _mm256_and_si256(_mm256_srli_epi16::<4>(*vector), low_nibbles);
                *vector = _mm256_xor_si256(
                    _mm256_shuffle_epi8(of_low, low),
                    _mm256_shuffle_epi8(of_high, high),
                );
            }
        }
        self
    }
}
