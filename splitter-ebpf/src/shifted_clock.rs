//! The two clocks of a measurement, which lets hours pass in seconds.
//!
//! User space moves the coarse clock by the settings. The precise one is the kernel's: unless it is moved as far, a
//! flow whose first packet was timed by it is taken for one that has been silent for all that time.

#[path = "clock.rs"]
mod real;

use splitter_policy::clock::{Clock, TickClock};

use crate::fixed::Fixed;
pub use real::{monotonic_ns, ticks};

/// How far the precise clock is ahead of the kernel's. Kept as it is by the attribute: nothing here writes it.
#[used]
#[unsafe(no_mangle)]
#[unsafe(link_section = ".data.shift")]
static SHIFT_NS: Fixed<u64> = Fixed::zeroed();

/// The clocks of the programs that ship, the precise one ahead of the kernel's.
pub struct KernelClock<'a>(pub &'a TickClock);

impl Clock for KernelClock<'_> {
    #[inline(always)]
    fn coarse_ns(&self) -> u64 {
        real::KernelClock(self.0).coarse_ns()
    }

    #[inline(always)]
    fn precise_ns(&self) -> u64 {
        // SAFETY: an integer. User space may write while a program reads, as in any map.
        let shift_ns = unsafe { SHIFT_NS.as_ptr().read_volatile() };
        real::KernelClock(self.0)
            .precise_ns()
            .wrapping_add(shift_ns)
    }
}
