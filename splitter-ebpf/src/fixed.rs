//! Values that all CPUs share, at addresses that programs know beforehand.
//!
//! A section whose name begins with `.data` is a map of one value to whoever loads it, and a program has the
//! address of that in one instruction, where it has to look the value of other maps up: in five, of which
//! the verifier makes more, and then it has to ask if one was found.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;

/// A value of zeros, which user space or a program makes something else of.
#[repr(transparent)]
pub(crate) struct Fixed<T>(UnsafeCell<MaybeUninit<T>>);

// SAFETY: who takes a reference says why he may.
unsafe impl<T> Sync for Fixed<T> {}

impl<T> Fixed<T> {
    /// The value before anybody has written it.
    pub(crate) const fn zeroed() -> Self {
        Self(UnsafeCell::new(MaybeUninit::zeroed()))
    }

    /// Where the value lies.
    #[inline(always)]
    pub(crate) const fn as_ptr(&self) -> *mut T {
        self.0.get().cast()
    }
}
