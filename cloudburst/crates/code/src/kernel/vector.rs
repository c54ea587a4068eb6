//! What the kernels that are written once for all processors need of one.

/// Bytes that are worked on at once, in registers.
///
/// All functions are inlined into one that has the instructions enabled.
///
/// # Safety
///
/// Whoever calls any of them vouches that the processor has the instructions.
pub(super) trait Vector: Copy {
    /// How many bytes of a symbol it holds.
    const BYTES: usize;

    /// Zeros.
    unsafe fn zero() -> Self;

    /// Reads [`Self::BYTES`] bytes.
    ///
    /// # Safety
    ///
    /// They are readable.
    unsafe fn load(from: *const u8) -> Self;

    /// Writes them.
    ///
    /// # Safety
    ///
    /// They are writable.
    unsafe fn store(self, to: *mut u8);

    /// The sum in any field of characteristic 2.
    unsafe fn xor(self, other: Self) -> Self;

    /// The product of each byte with `factor`.
    unsafe fn times(self, factor: u8) -> Self;

    /// Reads `len` bytes, at most [`Self::BYTES`]; the rest is arbitrary.
    ///
    /// # Safety
    ///
    /// So many are readable.
    #[inline(always)]
    unsafe fn load_part(from: *const u8, len: usize) -> Self {
        let mut bytes = Scratch([0; SCRATCH_BYTES]);
        const { assert!(Self::BYTES <= SCRATCH_BYTES) };
        debug_assert!(len <= Self::BYTES);
        // SAFETY: the caller vouches for what is read.
        unsafe {
            core::ptr::copy_nonoverlapping(from, bytes.0.as_mut_ptr(), len);
            Self::load(bytes.0.as_ptr())
        }
    }

    /// Writes the first `len` bytes, at most [`Self::BYTES`].
    ///
    /// # Safety
    ///
    /// So many are writable.
    #[inline(always)]
    unsafe fn store_part(self, to: *mut u8, len: usize) {
        let mut bytes = Scratch([0; SCRATCH_BYTES]);
        debug_assert!(len <= Self::BYTES);
        // SAFETY: the caller vouches for what is written.
        unsafe {
            self.store(bytes.0.as_mut_ptr());
            core::ptr::copy_nonoverlapping(bytes.0.as_ptr(), to, len);
        }
    }
}

/// The longest vector.
const SCRATCH_BYTES: usize = 256;

#[repr(align(64))]
struct Scratch([u8; SCRATCH_BYTES]);
