//! Numbers of maps that all CPUs share.

use core::intrinsics::{AtomicOrdering, atomic_cxchg, atomic_xadd};

use splitter_policy::cpu_queues::SharedWord;
use splitter_policy::table::Word;

/// A number of a map that all CPUs share.
#[repr(transparent)]
pub struct KernelWord(Word);

const RELAXED: AtomicOrdering = AtomicOrdering::Relaxed;

impl SharedWord for KernelWord {
    #[inline(always)]
    fn get(&self) -> u64 {
        self.0.get()
    }

    #[inline(always)]
    fn exchange(&self, old: u64, new: u64) -> bool {
        // SAFETY: the word is valid and aligned, and is only ever accessed by
        // atomic operations.
        let (found, _) =
            unsafe { atomic_cxchg::<u64, RELAXED, RELAXED>(self.0.as_ptr(), old, new) };
        // Compared here: as a flag, the outcome is first put into a register.
        found == old
    }

    #[inline(always)]
    fn add(&self, amount: u64) -> u64 {
        /// The compiler makes of a relaxed one an addition that does not fetch, and takes what was
        /// added for what was there.
        const FETCHING: AtomicOrdering = AtomicOrdering::SeqCst;
        // SAFETY: as above.
        unsafe { atomic_xadd::<u64, u64, FETCHING>(self.0.as_ptr(), amount) }
    }
}
