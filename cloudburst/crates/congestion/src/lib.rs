//! Congestion control: how much, and how fast, a peer is sent.
//!
//! [`CongestionController`] says what may be sent to a peer now. It is told what was sent, and what
//! its receiver reports; estimates of round trips and losses, and the pacer, stand next to it.

// Peers report what it is fed: nothing may overflow, whatever they say.
// A test that does fails, as it should.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod adaptive;
mod attempts;
mod black_hole;
mod chance;
mod circuit_breaker;
mod congestion_control;
mod cubic;
mod deliveries;
mod ecn;
mod estimate;
mod feedback_pace;
mod in_flight;
mod keepalive;
mod paced_queue;
mod pacer;
mod passing;
mod path_choice;
mod path_mtu;
mod port_rotation;
mod probe_budget;
mod queues;
mod rate_estimator;
mod repeats;
mod reserved;
mod round;
mod shared_bottleneck;
mod silence;
mod spread;
mod timers;

use core::time::Duration;

use cloudburst_wire::Time;

use self::{adaptive::AdaptiveController, reserved::ReservedController};
pub use self::{
    black_hole::{BlackHoleDetector, OtherPaths},
    congestion_control::{CongestionControl, Reservation},
    deliveries::{Deliveries, NewDeliveries},
    ecn::{EcnReport, EcnState, EcnValidation},
    estimate::{
        DEFAULT_INITIAL_ROUND_TRIP, LeastDelay, LossEstimator, MAX_ACK_TIMEOUT, RoundTripEstimator,
    },
    feedback_pace::FeedbackPace,
    in_flight::{InFlight, Resolved, Totals},
    keepalive::{Keepalive, MAX_KEEPALIVE, MIN_KEEPALIVE},
    paced_queue::PacedQueue,
    pacer::Pacer,
    path_choice::{BalancedPaths, Candidate, PathChoice},
    path_mtu::PathMtu,
    port_rotation::{PortRotation, RotationBudget},
    probe_budget::ProbeBudget,
    queues::{MAX_QUEUES, QueueSet, QueueShares, Queues},
    rate_estimator::{RateEstimator, SentDatagram},
    repeats::Repeats,
    shared_bottleneck::{DetectorStep, MAX_PATHS, Phase, SharedBottleneckDetector},
    spread::{ParallelPaths, Spread},
    timers::{Alarm, Timers},
};

/// Length of datagrams that every path carries (RFC 9000 §14).
pub const MIN_DATAGRAM_BYTES: usize = 1_200;

#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "one lies in each peer's queue, and all peers of a transport have the same mode"
)]
enum Controller {
    Adaptive(AdaptiveController),
    Reserved(ReservedController),
}

/// Controller of a peer's congestion: what may be sent to it now.
#[derive(Clone, Copy, Debug)]
pub struct CongestionController(Controller);

/// Measurements of a peer's paths that its rate follows.
#[derive(Clone, Copy, Debug, Default)]
pub struct PathRates {
    /// Bytes per second that all paths carry together, if that is known.
    pub bytes_per_s: Option<f64>,
    /// Our bytes in the emptiest queue, as time.
    pub own_queue: Duration,
    /// The longest datagram that all paths carry.
    pub datagram_bytes: usize,
    /// How long an answer may take that was not lost.
    pub ack_timeout: Duration,
    /// The smoothed round-trip time, if it is known.
    pub round_trip: Option<Duration>,
    /// Bottlenecks that they lead through.
    pub bottlenecks: usize,
    /// Parts of what is sent that go through each queue that is known to be another than the others.
    pub shares: QueueShares,
}

/// Report of an answer on datagrams that were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acknowledged {
    /// Datagrams that are reported on for the first time.
    pub sent: u32,
    /// Those of them that arrived.
    pub received: u32,
    /// Those that were lost, without those that were only overtaken.
    pub lost: u32,
    /// Time since which those were sent among which some were lost, by the queue that they went through: of such groups the
    /// latest.
    pub lost_since: [Option<Time>; MAX_QUEUES],
    /// Queues that they went through.
    pub queues: QueueSet,
    /// Queues that those that were lost went through.
    pub lossy: QueueSet,
    /// Those that arrived with a mark of congestion (ECN).
    pub marked: u32,
    /// Queues that those that were marked went through.
    pub marking: QueueSet,
    /// Bytes of the first.
    pub resolved_bytes: u64,
    /// When the newest of them was sent.
    pub newest_sent_at: Option<Time>,
    /// Bytes that had been sent before, by all paths.
    pub sent_before: u64,
    /// Bytes that were delivered between then and now.
    pub delivered_since: u64,
    /// Bytes by all paths that nothing is heard of yet.
    pub in_flight: u64,
    /// A round-trip time, and the least of late by the same path.
    pub round_trip: Option<(Duration, Duration)>,
}

impl CongestionController {
    /// Begins with a peer of which nothing is known but how long a round trip may take.
    pub fn new(now: Time, control: &CongestionControl, round_trip: Duration) -> Self {
        Self(match control {
            CongestionControl::Adaptive => {
                Controller::Adaptive(AdaptiveController::new(now, round_trip))
            }
            CongestionControl::Reserved(it) => {
                Controller::Reserved(ReservedController::new(now, it))
            }
        })
    }

    /// Returns the bytes that may leave by one path in a row though others are as fast; nothing where they are to leave
    /// by all in turn, a few by each.
    pub fn train_bytes(&self) -> Option<usize> {
        match &self.0 {
            Controller::Adaptive(it) => it.train_bytes(),
            Controller::Reserved(_) => None,
        }
    }

    /// Returns the bytes that may be sent now.
    pub fn credit(&self, now: Time) -> usize {
        match &self.0 {
            Controller::Adaptive(it) => it.credit(now),
            Controller::Reserved(it) => it.credit(now),
        }
    }

    /// Returns how many datagrams may be in flight, at least one.
    pub fn window_datagrams(&self) -> usize {
        match &self.0 {
            Controller::Adaptive(it) => it.window_datagrams(),
            Controller::Reserved(_) => usize::MAX,
        }
    }

    /// Returns the bytes per second that are sent while there is something to send.
    pub fn bytes_per_s(&self) -> f64 {
        match &self.0 {
            Controller::Adaptive(it) => it.bytes_per_s(),
            Controller::Reserved(it) => it.bytes_per_s(),
        }
    }

    /// Returns the time at which something may be sent again.
    pub fn ready_at(&self) -> Time {
        match &self.0 {
            Controller::Adaptive(it) => it.ready_at(),
            Controller::Reserved(it) => it.ready_at(),
        }
    }

    /// Counts what is sent now.
    pub fn sent(&mut self, now: Time, bytes: usize) {
        match &mut self.0 {
            Controller::Adaptive(it) => it.sent(now, bytes),
            Controller::Reserved(it) => it.sent(now, bytes),
        }
    }

    /// Measures anew: nothing was sent until now, and the silence before does not tell of a rate.
    pub fn restart_measuring(&mut self, now: Time) {
        match &mut self.0 {
            Controller::Adaptive(it) => it.restart(now),
            Controller::Reserved(it) => it.restart_measuring(now),
        }
    }

    /// Takes losses of late for what the receiver refused, which tells nothing of the paths.
    pub fn discount_losses(&mut self, now: Time) {
        match &mut self.0 {
            Controller::Adaptive(it) => it.discount_losses(now),
            Controller::Reserved(it) => it.discount_losses(now),
        }
    }

    /// Takes back what a silence of the peer has cost, of which it has proved that it was its own: it was restarted.
    pub fn discount_silence(&mut self, now: Time) {
        match &mut self.0 {
            Controller::Adaptive(it) => it.discount_silence(now),
            Controller::Reserved(it) => it.end_silence(now),
        }
    }

    /// Takes what the peer has reported on datagrams. Returns the share that was lost too long, if the circuit
    /// breaker trips with that.
    pub fn acknowledged(
        &mut self,
        now: Time,
        news: &Acknowledged,
        paths: &PathRates,
    ) -> Option<f64> {
        match &mut self.0 {
            Controller::Adaptive(it) => {
                it.acknowledged(now, news, paths);
                None
            }
            Controller::Reserved(it) => it.acknowledged(now, news, paths),
        }
    }

    /// Returns true if the circuit breaker has tripped.
    pub fn is_broken(&self) -> bool {
        match &self.0 {
            Controller::Adaptive(_) => false,
            Controller::Reserved(it) => it.is_broken(),
        }
    }

    /// Notes that nothing was heard of what was sent for longer than an answer takes, by no path.
    pub fn timed_out(&mut self, now: Time, paths: &PathRates) {
        match &mut self.0 {
            Controller::Adaptive(it) => it.timed_out(now, paths),
            Controller::Reserved(it) => it.timed_out(now, paths),
        }
    }

    /// Sets how many bytes are in flight: paths have died, or were replaced.
    pub fn set_in_flight(&mut self, bytes: u64) {
        if let Controller::Adaptive(it) = &mut self.0 {
            it.set_in_flight(bytes);
        }
    }

    /// Sets the rate of a reservation, for tests.
    #[doc(hidden)]
    pub fn set_rate(&mut self, now: Time, bytes_per_s: f64) {
        if let Controller::Reserved(it) = &mut self.0 {
            it.set_rate(now, bytes_per_s);
        }
    }
}
