//! The two clocks of a kernel program.

use aya_ebpf::helpers::{bpf_jiffies64, bpf_ktime_get_ns};
use splitter_policy::clock::Clock;
use splitter_policy::clock::TickClock;

/// Reads the tick count for coarse time: the verifier inlines that as one load,
/// where every clock helper is a call.
pub struct KernelClock<'a>(pub &'a TickClock);

impl Clock for KernelClock<'_> {
    #[inline(always)]
    fn coarse_ns(&self) -> u64 {
        self.0.at(ticks())
    }

    #[inline(always)]
    fn precise_ns(&self) -> u64 {
        monotonic_ns()
    }
}

/// The kernel's tick count.
#[inline(always)]
pub fn ticks() -> u64 {
    // SAFETY: the helper reads a kernel variable and has no preconditions.
    unsafe { bpf_jiffies64() }
}

/// Reads `CLOCK_MONOTONIC` by a helper call.
#[inline(always)]
pub fn monotonic_ns() -> u64 {
    // SAFETY: the helper reads the clock and has no preconditions.
    unsafe { bpf_ktime_get_ns() }
}
