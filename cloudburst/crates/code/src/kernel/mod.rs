//! The two sums that all time is spent on, for each kind of processor.
//!
//! A kernel computes several outputs from the same inputs, a stretch of bytes
//! at a time, so that the inputs are read from the nearest cache and each
//! output is written once.

#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

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
    /// 128-bit vectors and products by table look-up (AArch64).
    Neon,
    /// Whatever the compiler makes of plain Rust.
    Portable,
}

#[cfg(target_arch = "x86_64")]
cpufeatures::new!(avx512_gfni, "avx512f", "avx512bw", "gfni", "bmi1", "popcnt");
#[cfg(target_arch = "x86_64")]
cpufeatures::new!(avx2, "avx2");

impl Simd {
    /// All there are, the fastest first.
    pub const ALL: [Self; 4] = [Self::Avx512Gfni, Self::Avx2, Self::Neon, Self::Portable];

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
            Self::Neon => cfg!(all(target_arch = "aarch64", target_feature = "neon")),
            Self::Portable => true,
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }

    /// Returns its name on the command line and in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Avx512Gfni => "avx512-gfni",
            Self::Avx2 => "avx2",
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
            #[cfg(target_arch = "aarch64")]
            Simd::Neon => neon::weighted(task, range),
            _ => portable::weighted(task, range),
        }
    }
}

#[cfg(test)]
mod tests;
