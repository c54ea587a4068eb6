//! Sums over GF(256), products by the bit matrices of GFNI.

use core::{arch::x86_64::*, ops::Range};

use super::{EXCLUSIVE_OR_OF_THREE, VECTOR, first_bytes};
use crate::gf256::MATRICES;
use crate::kernel::{MAX_INPUTS, WeightedTask};

/// # Safety
///
/// As of [`crate::kernel::weighted`].
#[target_feature(enable = "avx512f,avx512bw,gfni")]
pub(in crate::kernel) unsafe fn weighted(task: &WeightedTask<'_>, range: Range<usize>) {
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
/// As of [`crate::kernel::weighted`]; there are so many outputs.
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
/// As of [`crate::kernel::weighted`], for `WIDE` vectors at offset `at`, of
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
        let load = |input: *const u8| {
            let input = input.add(at).cast::<i8>();
            let mut symbol = [_mm512_setzero_si512(); WIDE];
            for (vector, symbol) in symbol.iter_mut().enumerate() {
                *symbol = _mm512_maskz_loadu_epi8(bytes, input.add(vector * VECTOR));
            }
            symbol
        };
        let product = |symbol, matrix: u64| {
            let matrix = _mm512_set1_epi64(matrix.cast_signed());
            _mm512_gf2p8affine_epi64_epi8::<0>(symbol, matrix)
        };
        // Two at a time, because three terms are added up in one instruction.
        let (pairs, odd) = inputs.as_chunks();
        let (matrix_pairs, odd_matrices) = matrices.as_chunks();
        for (&[one, other], [of_one, of_other]) in pairs.iter().zip(matrix_pairs) {
            let (one, other) = (load(one), load(other));
            for (output, sums) in sums.iter_mut().enumerate() {
                for (vector, sum) in sums.iter_mut().enumerate() {
                    *sum = _mm512_ternarylogic_epi64::<EXCLUSIVE_OR_OF_THREE>(
                        *sum,
                        product(one[vector], of_one[output]),
                        product(other[vector], of_other[output]),
                    );
                }
            }
        }
        for (&input, matrices) in odd.iter().zip(odd_matrices) {
            let symbol = load(input);
            for (sums, &matrix) in sums.iter_mut().zip(matrices) {
                for (sum, &symbol) in sums.iter_mut().zip(&symbol) {
                    *sum = _mm512_xor_si512(*sum, product(symbol, matrix));
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
