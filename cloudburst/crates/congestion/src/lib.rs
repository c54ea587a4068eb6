//! Congestion control: how much, and how fast, a peer is sent.

mod adaptive;
mod chance;
mod circuit_breaker;
mod cubic;
mod reserved;
mod round;

use core::time::Duration;

use self::{adaptive::AdaptiveController, reserved::ReservedController};
use super::{congestion_control::CongestionControl, time::Time};

/// Congestion control of a peer: what may be sent to it now.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "one lies in each peer's queue, and all peers of a transport have the same mode"
)]
pub(super) enum CongestionController {
    Adaptive(AdaptiveController),
    Reserved(ReservedController),
}

/// Measurements of a peer's paths that its rate follows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PathRates {
    /// Bytes per second that all paths carry together, if that is known.
    pub(super) bytes_per_s: Option<f64>,
    /// Our bytes in the emptiest queue, as time.
    pub(super) own_queue: Duration,
    /// The longest datagram that all paths carry.
    pub(super) datagram_bytes: usize,
    /// How long an answer may take that was not lost.
    pub(super) ack_timeout: Duration,
    /// The smoothed round-trip time, if it is known.
    pub(super) round_trip: Option<Duration>,
    /// Bottlenecks that they lead through.
    pub(super) bottlenecks: usize,
}

/// What an answer says of datagrams that were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Acknowledged {
    /// Datagrams that are reported on for the first time, and those of them that arrived.
    pub(super) sent: u32,
    pub(super) received: u32,
    /// Those that were lost, without those that were only overtaken.
    pub(super) lost: u32,
    /// Bytes of the first.
    pub(super) resolved_bytes: u64,
    /// When the newest of them was sent.
    pub(super) newest_sent_at: Option<Time>,
    /// Bytes that were delivered between then and now.
    pub(super) delivered_since: u64,
    /// Bytes by all paths that nothing is heard of yet.
    pub(super) in_flight: u64,
    /// A round-trip time, and the least of late by the same path.
    pub(super) round_trip: Option<(Duration, Duration)>,
}

impl CongestionController {
    pub(super) fn new(now: Time, control: &CongestionControl, round_trip: Duration) -> Self {
        match control {
            CongestionControl::Adaptive => Self::Adaptive(AdaptiveController::new(now, round_trip)),
            CongestionControl::Reserved(it) => Self::Reserved(ReservedController::new(now, it)),
        }
    }

    /// Bytes that may be sent now.
    pub(super) fn credit(&self, now: Time) -> usize {
        match self {
            Self::Adaptive(it) => it.credit(now),
            Self::Reserved(it) => it.credit(now),
        }
    }

    /// The time at which something may be sent again.
    pub(super) fn ready_at(&self) -> Time {
        match self {
            Self::Adaptive(it) => it.ready_at(),
            Self::Reserved(it) => it.ready_at(),
        }
    }

    pub(super) fn sent(&mut self, now: Time, bytes: usize) {
        match self {
            Self::Adaptive(it) => it.sent(now, bytes),
            Self::Reserved(it) => it.sent(now, bytes),
        }
    }

    /// Nothing was sent until now: the silence before does not tell of a rate.
    pub(super) fn restart_measuring(&mut self, now: Time) {
        match self {
            Self::Adaptive(it) => it.restart(now),
            Self::Reserved(it) => it.restart_measuring(now),
        }
    }

    /// What was lost was refused by the receiver, and tells nothing of the paths.
    pub(super) fn discount_losses(&mut self, now: Time) {
        match self {
            Self::Adaptive(_) => {}
            Self::Reserved(it) => it.discount_losses(now),
        }
    }

    /// The peer has reported on datagrams. Returns the share that was lost too long, if the circuit
    /// breaker trips with that.
    pub(super) fn acknowledged(
        &mut self,
        now: Time,
        news: &Acknowledged,
        paths: &PathRates,
    ) -> Option<f64> {
        match self {
            Self::Adaptive(it) => {
                it.acknowledged(now, news, paths);
                None
            }
            Self::Reserved(it) => it.acknowledged(now, news.sent, news.received, paths),
        }
    }

    /// Whether the circuit breaker has tripped.
    pub(super) fn is_broken(&self) -> bool {
        match self {
            Self::Adaptive(_) => false,
            Self::Reserved(it) => it.is_broken(),
        }
    }

    /// Nothing was heard of what was sent for longer than an answer takes, by no path.
    pub(super) fn timed_out(&mut self, now: Time, paths: &PathRates) {
        match self {
            Self::Adaptive(it) => it.timed_out(now, paths),
            Self::Reserved(_) => {}
        }
    }

    /// So many bytes are in flight: paths have died, or were replaced.
    pub(super) fn set_in_flight(&mut self, bytes: u64) {
        if let Self::Adaptive(it) = self {
            it.set_in_flight(bytes);
        }
    }

    #[cfg(test)]
    pub(super) fn set_rate(&mut self, now: Time, bytes_per_s: f64) {
        if let Self::Reserved(it) = self {
            it.set_rate(now, bytes_per_s);
        }
    }
}
