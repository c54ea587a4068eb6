//! The time that an endpoint lives by.

use std::time::Instant;

use cloudburst_proto::Time;

/// A clock whose origin is the protocol's.
#[derive(Clone, Copy, Debug)]
pub(super) enum Clock {
    /// The system's, which goes on whatever the runtime is told.
    System(Instant),
    /// The runtime's, which tests may stop.
    Runtime(tokio::time::Instant),
}

impl Clock {
    pub(super) fn system() -> Self {
        Self::System(Instant::now())
    }

    pub(super) fn runtime() -> Self {
        Self::Runtime(tokio::time::Instant::now())
    }

    pub(super) fn now(self) -> Time {
        Time::ZERO
            + match self {
                Self::System(start) => start.elapsed(),
                Self::Runtime(start) => start.elapsed(),
            }
    }

    /// What those who know no time of the protocol call it.
    pub(super) fn instant(self, at: Time) -> Instant {
        let start = match self {
            Self::System(start) => start,
            Self::Runtime(start) => start.into_std(),
        };
        start + at.since(Time::ZERO)
    }
}
