//! The time that a host tells.

use core::{fmt, ops, time::Duration};

/// Nanoseconds since an origin that the host chooses, and that stays the same.
///
/// The protocol never asks for the time: with a host that makes it up, a run is
/// the same each time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The origin that all others count from.
    pub const ZERO: Self = Self(0);
    /// Later than any other.
    pub const NEVER: Self = Self(u64::MAX);

    /// So many nanoseconds after the host's origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the host's origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time as it goes over the wire: microseconds, of which the upper bits are lost.
    pub const fn as_wire_micros(self) -> u32 {
        (self.0 / 1_000) as u32
    }

    /// From `earlier` to this, or nothing if that is later: clocks may jump.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl ops::Add<Duration> for Time {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

/// Not before the origin.
impl ops::Sub<Duration> for Time {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(nanos))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:.6} s", self.0 as f64 / 1e9)
    }
}
