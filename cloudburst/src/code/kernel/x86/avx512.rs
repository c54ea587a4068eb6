//! 512-bit vectors; products in GF(256) by the bit matrices of GFNI.

use core::{arch::x86_64::*, ops::Range};

use super::super::{MAX_INPUTS, WeightedTask, XorTask};
use crate::code::gf256::MATRICES;

const VECTOR: usize = 64;

/// # Safety
///
/// As of [`super::super::xor`].
#[target_feature(enable = "avx512f,avx512bw")]
pub(in super::super) unsafe fn xor(task: &XorTask<'_>, range: Range<usize>) {
    /// 64 inputs of so many vectors fit into a first-level cache of 32 KiB,
    /// with room for what else is going on.
    const WIDE: usize = 6;
    let mut at = range.start;
    // SAFETY: the caller vouches for the range, and every stretch lies in it.
    unsafe {
        while at + WIDE * VECTOR <= range.end {
            xor_stretch::<WIDE>(task, at, !0);
            at += WIDE * VECTOR;
        }
        while at + VECTOR <= range.end {
            xor_stretch::<1>(task, at, !0);
            at += VECTOR;
        }
        if at < range.end {
            xor_stretch::<1>(task, at, first_bytes(range.end - at));
        }
    }
}

/// Selects the first `count` bytes of a vector.
const fn first_bytes(count: usize) -> __mmask64 {
    !0 >> (VECTOR - count)
}

/// Sums `WIDE` vectors at offset `at` for each output; of them only the bytes
/// that `bytes` selects are touched.
///
/// # Safety
///
/// As of [`super::super::xor`], for that stretch.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
unsafe fn xor_stretch<const WIDE: usize>(task: &XorTask<'_>, at: usize, bytes: __mmask64) {
    const EXCLUSIVE_OR_OF_THREE: i32 = 0x96;
    // SAFETY: the caller vouches for all that is read and written.
    unsafe {
        let input = |index: u32| {
            task.inputs
                .get_unchecked(index as usize)
                .add(at)
                .cast::<i8>()
        };
        let load =
            |input: *const i8, vector| _mm512_maskz_loadu_epi8(bytes, input.add(vector * VECTOR));
        for &(output, mask) in task.outputs {
            let mut sums = [_mm512_setzero_si512(); WIDE];
            let mut rest = mask;
            if rest.count_ones() % 2 == 1 {
                let first = input(rest.trailing_zeros());
                rest &= rest - 1;
                for (vector, sum) in sums.iter_mut().enumerate() {
                    *sum = load(first, vector);
                }
            }
            while rest != 0 {
                let one = input(rest.trailing_zeros());
                rest &= rest - 1;
                let other = input(rest.trailing_zeros());
                rest &= rest - 1;
                for (vector, sum) in sums.iter_mut().enumerate() {
                    let (one, other) = (load(one, vector), load(other, vector));
                    *sum = _mm512_ternarylogic_epi64::<EXCLUSIVE_OR_OF_THREE>(*sum, one, other);
                }
            }
            for (vector, sum) in sums.iter().enumerate() {
                let output = output.add(at + vector * VECTOR).cast::<i8>();
                _mm512_mask_storeu_epi8(output, bytes, *sum);
            }
        }
    }
}

/// # Safety
///
/// As of [`super::super::weighted`].
#[target_feature(enable = "avx512f,avx512bw,gfni")]
pub(in super::super) unsafe fn weighted(task: &WeightedTask<'_>, range: Range<usize>) {
    let mut first = 0;
    while first < task.outputs.len() {
        // SAFETY: the caller vouches for the task, and each group is part of it.
        first += unsafe {
            match task.outputs.len() - first {
                10.. => weighted_group::<10>(task, first, range.clone()),
                7.. => weighted_group::<7>(task, first, range.clone()),
                4.. => weighted_group::<4>(task, first, range.clone()),
                2.. => weighted_group::<2>(task, first, range.clone()),
                _ => weighted_group::<1>(task, first, range.clone()),
            }
        };
    }
}

/// Computes the outputs from `first` on, and tells how many those are.
///
/// # Safety
///
/// As of [`super::super::weighted`]; there are so many outputs.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[inline]
unsafe fn weighted_group<const OUTPUTS: usize>(
    task: &WeightedTask<'_>,
    first: usize,
    range: Range<usize>,
) -> usize {
    let n = task.inputs.len();
    let mut matrices = [[0u64; OUTPUTS]; MAX_INPUTS];
    for (input, matrices) in matrices[..n].iter_mut().enumerate() {
        for (output, matrix) in matrices.iter_mut().enumerate() {
            *matrix = MATRICES[usize::from(task.weights[(first + output) * n + input])];
        }
    }
    let matrices = &matrices[..n];
    let outputs: &[*mut u8; OUTPUTS] = task.outputs[first..]
        .first_chunk()
        .expect("there are so many outputs");
    let mut at = range.start;
    // SAFETY: the caller vouches for the range, and every stretch lies in it.
    unsafe {
        while at + 2 * VECTOR <= range.end {
            weighted_stretch::<OUTPUTS, 2>(task.inputs, matrices, outputs, at, !0);
            at += 2 * VECTOR;
        }
        if at + VECTOR <= range.end {
            weighted_stretch::<OUTPUTS, 1>(task.inputs, matrices, outputs, at, !0);
            at += VECTOR;
        }
        if at < range.end {
            let bytes = first_bytes(range.end - at);
            weighted_stretch::<OUTPUTS, 1>(task.inputs, matrices, outputs, at, bytes);
        }
    }
    OUTPUTS
}

/// # Safety
///
/// As of [`super::super::weighted`], for `WIDE` vectors at offset `at`, of
/// which only the bytes that `bytes` selects are touched.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[inline]
unsafe fn weighted_stretch<const OUTPUTS: usize, const WIDE: usize>(
    inputs: &[*const u8],
    matrices: &[[u64; OUTPUTS]],
    outputs: &[*mut u8; OUTPUTS],
    at: usize,
    bytes: __mmask64,
) {
    // SAFETY: the caller vouches for all that is read and written.
    unsafe {
        let mut sums = [[_mm512_setzero_si512(); WIDE]; OUTPUTS];
        for (&input, matrices) in inputs.iter().zip(matrices) {
            let input = input.add(at).cast::<i8>();
            let mut symbol = [_mm512_setzero_si512(); WIDE];
            for (vector, symbol) in symbol.iter_mut().enumerate() {
                *symbol = _mm512_maskz_loadu_epi8(bytes, input.add(vector * VECTOR));
            }
            for (sums, &matrix) in sums.iter_mut().zip(matrices) {
                let matrix = _mm512_set1_epi64(matrix.cast_signed());
                for (sum, &symbol) in sums.iter_mut().zip(&symbol) {
                    let product = _mm512_gf2p8affine_epi64_epi8::<0>(symbol, matrix);
                    *sum = _mm512_xor_si512(*sum, product);
                }
            }
        }
        for (sums, output) in sums.iter().zip(outputs) {
            for (vector, &sum) in sums.iter().enumerate() {
                let output = output.add(at + vector * VECTOR).cast::<i8>();
                _mm512_mask_storeu_epi8(output, bytes, sum);
            }
        }
    }
}
