//! 512-bit vectors; products in GF(256) by the bit matrices of GFNI.

use core::{arch::x86_64::*, mem::MaybeUninit, ops::Range};

use super::super::{MAX_INPUTS, WeightedTask, XorTask};
use crate::code::gf256::MATRICES;

const VECTOR: usize = 64;

/// The truth table for a ternary instruction.
const EXCLUSIVE_OR_OF_THREE: i32 = 0x96;

/// Vectors of each input that are summed at once. 64 inputs of so many fit into
/// a first-level cache of 32 KiB, with room for what else is going on.
const WIDE: usize = 5;

/// From so many outputs on, inputs are copied to where no vector of theirs
/// crosses a cache line: such a vector takes two reads, and each input is read
/// for half of the outputs.
const PACKED_OUTPUTS: usize = 6;

/// A stretch of an input.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Packed(#[expect(dead_code, reason = "read by address")] [MaybeUninit<u8>; WIDE * VECTOR]);

/// # Safety
///
/// As of [`super::super::xor`].
#[target_feature(enable = "avx512f,avx512bw")]
pub(in super::super) unsafe fn xor(task: &XorTask<'_>, range: Range<usize>) {
    let packs = task.outputs.len() >= PACKED_OUTPUTS;
    let mut packed = [const { Packed([MaybeUninit::uninit(); WIDE * VECTOR]) }; MAX_INPUTS];
    let mut at = range.start;
    while at < range.end {
        let vectors = (range.end - at).div_ceil(VECTOR).min(WIDE);
        let end = range.end.min(at + vectors * VECTOR);
        let stretch = Stretch {
            task,
            at,
            last: first_bytes(end - at - (vectors - 1) * VECTOR),
        };
        let packed = packs.then_some(&mut packed);
        // SAFETY: the caller vouches for the range, and the stretch lies in it.
        unsafe {
            match vectors {
                5.. => stretch.xor::<5>(packed),
                4 => stretch.xor::<4>(packed),
                3 => stretch.xor::<3>(packed),
                2 => stretch.xor::<2>(packed),
                _ => stretch.xor::<1>(packed),
            }
        }
        at = end;
    }
}

/// Selects the first `count` bytes of a vector.
const fn first_bytes(count: usize) -> __mmask64 {
    !0 >> (VECTOR - count)
}

/// Up to [`WIDE`] vectors at offset `at`, of the last one only the bytes that
/// `last` selects.
struct Stretch<'a> {
    task: &'a XorTask<'a>,
    at: usize,
    last: __mmask64,
}

impl Stretch<'_> {
    /// Sums `VECTORS` vectors for each output, perhaps by way of `packed`.
    ///
    /// # Safety
    ///
    /// As of [`super::super::xor`], for this stretch.
    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    unsafe fn xor<const VECTORS: usize>(&self, packed: Option<&mut [Packed; MAX_INPUTS]>) {
        // SAFETY: the caller vouches for all inputs and outputs that are in masks,
        // and those alone are copied to where they are then read.
        unsafe {
            let input = |index: usize| self.task.inputs.get_unchecked(index).add(self.at).cast();
            match packed {
                None => self.sum::<VECTORS>(input),
                Some(packed) => {
                    let packed: *mut Packed = packed.as_mut_ptr();
                    let outputs = self.task.outputs.iter();
                    let mut rest = outputs.fold(0, |all, (_, mask)| all | mask);
                    while rest != 0 {
                        let index = rest.trailing_zeros() as usize;
                        rest &= rest - 1;
                        let place = packed.add(index).cast::<__m512i>();
                        for vector in 0..VECTORS {
                            let bytes = self.load::<VECTORS>(input(index), vector);
                            _mm512_store_si512(place.add(vector), bytes);
                        }
                    }
                    self.sum::<VECTORS>(|index| packed.add(index).cast_const().cast());
                }
            }
        }
    }

    /// # Safety
    ///
    /// As of [`Self::xor`], with the inputs where `input` says.
    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    unsafe fn sum<const VECTORS: usize>(&self, input: impl Fn(usize) -> *const i8) {
        // SAFETY: the caller vouches for all that is read and written.
        unsafe {
            for &(output, mask) in self.task.outputs {
                let mut sums = [_mm512_setzero_si512(); VECTORS];
                let mut rest = mask;
                if rest.count_ones() % 2 == 1 {
                    let first = input(rest.trailing_zeros() as usize);
                    rest &= rest - 1;
                    for (vector, sum) in sums.iter_mut().enumerate() {
                        *sum = self.load::<VECTORS>(first, vector);
                    }
                }
                while rest != 0 {
                    let one = input(rest.trailing_zeros() as usize);
                    rest &= rest - 1;
                    let other = input(rest.trailing_zeros() as usize);
                    rest &= rest - 1;
                    for (vector, sum) in sums.iter_mut().enumerate() {
                        let one = self.load::<VECTORS>(one, vector);
                        let other = self.load::<VECTORS>(other, vector);
                        *sum = _mm512_ternarylogic_epi64::<EXCLUSIVE_OR_OF_THREE>(*sum, one, other);
                    }
                }
                for (vector, sum) in sums.iter().enumerate() {
                    let output = output.add(self.at + vector * VECTOR).cast::<i8>();
                    _mm512_mask_storeu_epi8(output, self.bytes::<VECTORS>(vector), *sum);
                }
            }
        }
    }

    /// # Safety
    ///
    /// The bytes of this vector behind `input` that the stretch has are readable.
    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    unsafe fn load<const VECTORS: usize>(&self, input: *const i8, vector: usize) -> __m512i {
        // SAFETY: the caller vouches for what is read.
        unsafe {
            _mm512_maskz_loadu_epi8(self.bytes::<VECTORS>(vector), input.add(vector * VECTOR))
        }
    }

    #[inline(always)]
    const fn bytes<const VECTORS: usize>(&self, vector: usize) -> __mmask64 {
        if vector + 1 < VECTORS { !0 } else { self.last }
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
