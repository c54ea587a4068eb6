//! The two clocks of a host: a coarse one that costs nothing, and a precise one.

/// The clock of a host: time since boot, `CLOCK_MONOTONIC`.
pub trait Clock {
    /// Reads the time to a clock tick (1 to 10 ms), in about a nanosecond.
    fn coarse_ns(&self) -> u64;

    /// Reads the time to the nanosecond, at the price of some tens of them.
    fn precise_ns(&self) -> u64;
}

/// The tick clock: how `CLOCK_MONOTONIC` follows from the kernel's tick count, to a tick.
///
/// The tick count is the one clock that a program reads without a call. The
/// agent measures both numbers when it loads the programs.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TickClock {
    /// Length of a tick: 1, 3.333, 4 or 10 ms, as the kernel was built.
    pub tick_ns: u64,
    /// What to add; wraps, because ticks start before zero.
    pub offset_ns: u64,
}

impl TickClock {
    /// Converts the tick count to `CLOCK_MONOTONIC`, to a tick.
    #[inline(always)]
    pub const fn at(&self, ticks: u64) -> u64 {
        ticks
            .wrapping_mul(self.tick_ns)
            .wrapping_add(self.offset_ns)
    }
}

/// Both clocks read at once; what the calibration program leaves behind.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockReading {
    /// The kernel's tick count.
    pub ticks: u64,
    /// `CLOCK_MONOTONIC`.
    pub monotonic_ns: u64,
}
