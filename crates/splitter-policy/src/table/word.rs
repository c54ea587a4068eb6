//! A word that several CPUs and the agent read and write at once.

use core::sync::atomic::AtomicU64;
#[cfg(not(target_arch = "bpf"))]
use core::sync::atomic::Ordering::Relaxed;

/// Eight bytes that are read and written whole, in no order with others.
#[repr(transparent)]
#[derive(Debug, Default)]
pub struct Word(AtomicU64);

/// A relaxed access is a plain one to the processor, but the compiler for BPF
/// knows none below its fourth instruction set (Linux 6.15); a volatile one is
/// the same there.
#[cfg(target_arch = "bpf")]
#[allow(unsafe_code, reason = "see above; only this type can reach the word")]
impl Word {
    /// Reads the word as it is now.
    #[inline(always)]
    pub fn get(&self) -> u64 {
        // SAFETY: the word is valid and aligned, and eight bytes are one access.
        unsafe { self.0.as_ptr().read_volatile() }
    }

    /// Overwrites the word as a whole.
    #[inline(always)]
    pub fn set(&self, value: u64) {
        // SAFETY: as above.
        unsafe { self.0.as_ptr().write_volatile(value) }
    }

    /// The address of the word, for the target's intrinsics.
    #[inline(always)]
    pub fn as_ptr(&self) -> *mut u64 {
        self.0.as_ptr()
    }
}

#[cfg(not(target_arch = "bpf"))]
impl Word {
    /// Reads the word as it is now.
    #[inline(always)]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Overwrites the word as a whole.
    #[inline(always)]
    pub fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    /// Replaces `old` by `new` in one step; true when `old` was found there.
    #[inline(always)]
    pub fn exchange(&self, old: u64, new: u64) -> bool {
        self.0.compare_exchange(old, new, Relaxed, Relaxed).is_ok()
    }
}
