//! Asking for memory before it is needed.

/// Has the cache line of `value` brought in, without waiting for it.
///
/// Where the next event lies is known while the present one is handled, and that takes about as
/// long as memory does.
#[inline(always)]
pub(crate) fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing into the program and faults on no address, and this one
        // is of a live reference.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
