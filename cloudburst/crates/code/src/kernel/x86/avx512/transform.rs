//! The transform with the bit matrices of GFNI.

use core::{arch::x86_64::*, ops::Range};

use super::{VECTOR, first_bytes};
use crate::gf256::MATRICES;
use crate::kernel::transform::{self, TransformTask};
use crate::kernel::vector::Vector;

/// # Safety
///
/// As of [`crate::kernel::transform`].
#[target_feature(enable = "avx512f,avx512bw,gfni")]
pub(in crate::kernel) unsafe fn transform(task: &TransformTask<'_>, range: Range<usize>) {
    // SAFETY: the caller vouches for it.
    unsafe { transform::transform::<Wide<2>, Wide<1>>(task, range) };
}

/// So many vectors of 64 bytes.
#[derive(Clone, Copy)]
struct Wide<const VECTORS: usize>([__m512i; VECTORS]);

impl<const VECTORS: usize> Vector for Wide<VECTORS> {
    const BYTES: usize = VECTORS * VECTOR;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller has the instructions.
        Self([unsafe { _mm512_setzero_si512() }; VECTORS])
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller vouches for what is read.
        unsafe {
            let mut vectors = Self::zero();
            for (number, vector) in vectors.0.iter_mut().enumerate() {
                *vector = _mm512_loadu_si512(from.add(number * VECTOR).cast());
            }
            vectors
        }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        for (number, vector) in self.0.into_iter().enumerate() {
            // SAFETY: the caller vouches for what is written.
            unsafe { _mm512_storeu_si512(to.add(number * VECTOR).cast(), vector) };
        }
    }

    #[inline(always)]
    unsafe fn xor(mut self, other: Self) -> Self {
        for (vector, other) in self.0.iter_mut().zip(other.0) {
            // SAFETY: the caller has the instructions.
            *vector = unsafe { _mm512_xor_si512(*vector, other) };
        }
        self
    }

    #[inline(always)]
    unsafe fn times(mut self, factor: u8) -> Self {
        // SAFETY: the caller has the instructions.
        unsafe {
            let matrix = _mm512_set1_epi64(MATRICES[usize::from(factor)].cast_signed());
            for vector in &mut self.0 {
                *vector = _mm512_gf2p8affine_epi64_epi8::<0>(*vector, matrix);
            }
        }
        self
    }

    #[inline(always)]
    unsafe fn load_part(from: *const u8, len: usize) -> Self {
        // SAFETY: the caller vouches for what is read.
        unsafe {
            let mut vectors = Self::zero();
            for (number, vector) in vectors.0.iter_mut().enumerate() {
                let at = number * VECTOR;
                *vector = _mm512_maskz_loadu_epi8(bytes_of(len, at), from.add(at).cast());
            }
            vectors
        }
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut u8, len: usize) {
        for (number, vector) in self.0.into_iter().enumerate() {
            let at = number * VECTOR;
            // SAFETY: the caller vouches for what is written.
            unsafe { _mm512_mask_storeu_epi8(to.add(at).cast(), bytes_of(len, at), vector) };
        }
    }
}

/// Selects the bytes of a vector at `at` that lie below `len`.
#[inline(always)]
const fn bytes_of(len: usize, at: usize) -> u64 {
    match len.saturating_sub(at) {
        0 => 0,
        VECTOR.. => !0,
        bytes => first_bytes(bytes),
    }
}
