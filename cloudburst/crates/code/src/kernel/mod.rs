//! The two sums that all time is spent on, for each kind of processor.
//!
//! A kernel computes several outputs from the same inputs, a stretch of bytes
//! at a time, so that the inputs are read from the nearest cache and each
//! output is written once.

#![cfg_attr(
    not(test),
    expect(
        clippy::arithmetic_side_effects,
        reason = "all are places within symbols that a caller has measured, of 64 at most: `Encoder` and `recover` hold no others"
    )
)]

mod grouped;
#[cfg(target_arch = "aarch64")]
mod neon;
mod planes;
mod portable;
mod sliced;
#[cfg(target_pointer_width = "64")]
mod sliced_transform;
mod transform;
mod vector;
#[cfg(target_arch = "x86_64")]
mod x86;

pub(super) use self::transform::{MAX_POINTS, Output, TransformTask};

/// Inputs that a sum can have.
pub(super) const MAX_INPUTS: usize = 64;
/// Outputs that are best computed at once.
pub(super) const MAX_OUTPUTS: usize = 64;

/// Names what a processor has for the work of a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Simd {
    /// 512-bit vectors and products by bit matrices (x86-64: AVX-512BW, GFNI).
    Avx512Gfni,
    /// 256-bit vectors and products by shuffles (x86-64).
    Avx2,
    /// 128-bit vectors and products by shuffles (x86-64 without AVX2).
    Ssse3,
    /// 128-bit vectors and products by table look-up (AArch64).
    Neon,
    /// Whatever the compiler makes of plain Rust.
    Portable,
}

#[cfg(target_arch = "x86_64")]
cpufeatures::new!(avx512_gfni, "avx512f", "avx512bw", "gfni", "bmi1", "popcnt");
#[cfg(target_arch = "x86_64")]
cpufeatures::new!(avx2, "avx2");
#[cfg(target_arch = "x86_64")]
cpufeatures::new!(ssse3, "ssse3");

impl Simd {
    /// All there are, the fastest first.
    pub const ALL: [Self; 5] = [
        Self::Avx512Gfni,
        Self::Avx2,
        Self::Ssse3,
        Self::Neon,
        Self::Portable,
    ];

    /// The fastest that this processor has; asked of it once.
    #[inline]
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if avx512_gfni::get() {
                return Self::Avx512Gfni;
            }
            if avx2::get() {
                return Self::Avx2;
            }
            if ssse3::get() {
                return Self::Ssse3;
            }
        }
        if cfg!(all(target_arch = "aarch64", target_feature = "neon")) {
            return Self::Neon;
        }
        Self::Portable
    }

    /// Returns true where this processor has it.
    pub fn is_available(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Gfni => avx512_gfni::get(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => avx2::get(),
            #[cfg(target_arch = "x86_64")]
            Self::Ssse3 => ssse3::get(),
            Self::Neon => cfg!(all(target_arch = "aarch64", target_feature = "neon")),
            Self::Portable => true,
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }

    /// The time that a product takes in a transform, in hundredths of that in a sum of many;
    /// none where there is no kernel for transforms.
    ///
    /// Measured at n = 64 with 20 repair symbols. Where products cost next to nothing, reading
    /// and writing the points between the layers counts for more.
    pub(super) const fn transform_percent(self) -> Option<usize> {
        match self {
            Self::Avx512Gfni => Some(160),
            Self::Avx2 | Self::Ssse3 | Self::Neon => Some(110),
            // Where there are too few registers, or too little memory for programs.
            Self::Portable if cfg!(target_pointer_width = "64") => Some(110),
            Self::Portable => None,
        }
    }

    /// Returns its name on the command line and in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Avx512Gfni => "avx512-gfni",
            Self::Avx2 => "avx2",
            Self::Ssse3 => "ssse3",
            Self::Neon => "neon",
            Self::Portable => "portable",
        }
    }
}

/// Sums by exclusive or: output `k` is that of the inputs whose bit is set in
/// the `k`th mask.
pub(super) struct XorTask<'a> {
    pub(super) inputs: &'a [*const u8],
    pub(super) outputs: &'a [(*mut u8, u64)],
}

/// Sums over GF(256): output `k` has input `i` with the weight
/// `weights[k * inputs.len() + i]`.
pub(super) struct WeightedTask<'a> {
    pub(super) inputs: &'a [*const u8],
    pub(super) outputs: &'a [*mut u8],
    pub(super) weights: &'a [u8],
}

/// Computes the bytes `range` of all outputs.
///
/// # Safety
///
/// - `simd` is available;
/// - every mask has bits only below `inputs.len()`;
/// - of each input that some mask asks for, the bytes `range` are readable;
/// - of each output, they are writable, and no other output and no such input
///   overlaps them.
#[inline]
pub(super) unsafe fn xor(simd: Simd, task: &XorTask<'_>, range: core::ops::Range<usize>) {
    debug_assert!(simd.is_available());
    // SAFETY: the caller vouches for the pointers, and for the instructions.
    unsafe {
        match simd {
            #[cfg(target_arch = "x86_64")]
            Simd::Avx512Gfni => x86::avx512::xor(task, range),
            #[cfg(target_arch = "x86_64")]
            Simd::Avx2 => x86::avx2::xor(task, range),
            #[cfg(target_arch = "aarch64")]
            Simd::Neon => neon::xor(task, range),
            _ => portable::xor(task, range),
        }
    }
}

/// Computes the bytes `range` of all outputs.
///
/// # Safety
///
/// - `simd` is available;
/// - there are weights for each input and output;
/// - of each input the bytes `range` are readable; an input whose weights are
///   all zero is read too;
/// - of each output, they are writable, and no other output and no input
///   overlaps them.
#[inline]
pub(super) unsafe fn weighted(simd: Simd, task: &WeightedTask<'_>, range: core::ops::Range<usize>) {
    debug_assert!(simd.is_available());
    debug_assert!(task.weights.len() >= task.inputs.len() * task.outputs.len());
    // SAFETY: the caller vouches for the pointers, and for the instructions.
    unsafe {
        match simd {
            #[cfg(target_arch = "x86_64")]
            Simd::Avx512Gfni => x86::avx512::weighted(task, range),
            #[cfg(target_arch = "x86_64")]
            Simd::Avx2 => x86::avx2::weighted(task, range),
            #[cfg(target_arch = "x86_64")]
            Simd::Ssse3 => x86::ssse3::weighted(task, range),
            #[cfg(target_arch = "aarch64")]
            Simd::Neon => neon::weighted(task, range),
            _ => portable::weighted(task, range),
        }
    }
}

/// Computes the bytes `range` of all outputs.
///
/// # Safety
///
/// - `simd` is available and [has](Simd::transform_percent) this kernel;
/// - `log` is 4 to 6, and there are 1 to 2 to its power inputs;
/// - the coset begins at a multiple of that power that is not 0, and only its points have outputs;
/// - of each input that is not null the bytes `range` are readable;
/// - of each output, they are writable, and readable if it is added to; no other output and no
///   input overlaps them.
#[inline]
pub(super) unsafe fn transform(
    simd: Simd,
    task: &TransformTask<'_>,
    range: core::ops::Range<usize>,
) {
    debug_assert!(simd.is_available());
    debug_assert!((4..=6).contains(&task.log) && (1..=1 << task.log).contains(&task.inputs.len()));
    // SAFETY: the caller vouches for the pointers, and for the instructions.
    unsafe {
        match simd {
            #[cfg(target_arch = "x86_64")]
            Simd::Avx512Gfni => x86::avx512::transform(task, range),
            #[cfg(target_arch = "x86_64")]
            Simd::Avx2 => x86::avx2::transform(task, range),
            #[cfg(target_arch = "x86_64")]
            Simd::Ssse3 => x86::ssse3::transform(task, range),
            #[cfg(target_arch = "aarch64")]
            Simd::Neon => neon::transform(task, range),
            #[cfg(target_pointer_width = "64")]
            Simd::Portable => sliced_transform::transform(task, range),
            _ => unreachable!("{simd:?} has no transform"),
        }
    }
}

#[cfg(test)]
mod tests;
