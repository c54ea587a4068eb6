//! Attempts to reach a peer of which nothing is heard any more: one datagram after pauses that double.

use core::time::Duration;

use cloudburst_wire::Time;

/// Longest pause between two attempts: messages live for ten seconds by default.
pub(crate) const MOST_PAUSE: Duration = Duration::from_secs(1);
/// Bytes that are credit for one datagram, however long: what is left of a datagram's length is credit for one more.
pub(crate) const ANY: usize = 1;

/// Times at which one datagram each may be sent while nothing is heard (RFC 6298 §5.5).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempts {
    next_at: Time,
    /// How long after the next one that follows may be sent.
    pause: Duration,
}

impl Attempts {
    /// Begins at a time, with a pause after the first.
    pub(crate) const fn new(next_at: Time, pause: Duration) -> Self {
        Self { next_at, pause }
    }

    /// Returns the bytes that may be sent now.
    pub(crate) fn credit(&self, now: Time) -> usize {
        if now >= self.next_at { ANY } else { 0 }
    }

    /// Returns the time of the next attempt.
    pub(crate) const fn next_at(&self) -> Time {
        self.next_at
    }

    /// Puts the next one off for a pause: something else is sent now.
    pub(crate) fn postpone(&mut self, now: Time) {
        self.next_at = now + self.pause;
    }

    /// Returns the pause after it.
    pub(crate) const fn pause(&self) -> Duration {
        self.pause
    }

    /// Counts a datagram that is sent now.
    pub(crate) fn sent(&mut self, now: Time) {
        self.next_at = now + self.pause;
        self.pause = self.pause.saturating_mul(2).min(MOST_PAUSE);
    }
}
