//! How the window grows: slow start, beside others, while queues are empty, and where others' queue has
//! kept it small.

use super::{AdaptiveController, SMALL_DATAGRAMS};
use crate::Acknowledged;
use cloudburst_wire::Time;

/// Small windows grow by this share of what larger ones do at least, or they would never be back.
const LEAST_GROWTH: f64 = 1.0 / 24.0;
/// Growth in a round trip while queues are empty, the more the longer they have been.
const CALM_GROWTH: [f64; 3] = [0.0625, 0.125, 0.25];
/// Rounds without a queue before each.
const CALM_ROUNDS: u32 = 2;
const CALM_STEP: u32 = 4;
/// Rounds without a loss after which a window grows as fast that is below what the bottlenecks were
/// seen to carry: a slow start that others' queues ended early takes CUBIC half a minute to make up.
const CLEAN_ROUNDS: u32 = 8;
/// A window that was not used so much of does not grow.
const USED: f64 = 0.75;

impl AdaptiveController {
    /// Returns whether about as much was in flight as may be.
    pub(super) fn is_used(&self) -> bool {
        let peak = self.rounds.peak();
        peak >= USED * self.window || peak + self.datagram > self.window
    }

    /// Datagrams have arrived, and if any was lost, it was by chance.
    pub(super) fn grow(&mut self, now: Time, news: &Acknowledged) {
        let bytes = news.resolved_bytes as f64;
        if !self.is_used() {
            return self.cubic.pause();
        }
        self.is_unvalidated = false;
        if self.is_starting() {
            self.grow_start(bytes);
        } else if let Some(window) = self.flows.grow_to_due(self.window, bytes) {
            self.window = window;
            self.cubic.pause();
        } else if let Some(growth) = self.calm_growth()
            && !self.chance.is_ours(now)
            && now >= self.emptied.0
        {
            self.window += growth * bytes;
            self.cubic.pause();
        } else if let Some(growth) = self.make_up_growth() {
            self.window += growth * bytes;
            self.cubic.pause();
        } else {
            let path = (self.segment(), self.round_trip);
            let grown = self.cubic.grow(now, self.window, bytes, path);
            let share = (self.window / (self.segment() * SMALL_DATAGRAMS)).min(1.0);
            self.window += (grown - self.window) * (share * share).max(LEAST_GROWTH);
        }
    }

    /// Growth in a round trip, if nothing has stood in a queue for some rounds.
    fn calm_growth(&self) -> Option<f64> {
        let step = self.calm.checked_sub(CALM_ROUNDS)? / CALM_STEP;
        let is_empty = self.rounds.is_empty(self.datagram_time());
        let [.., most] = CALM_GROWTH;
        let growth = CALM_GROWTH.get(step as usize).copied();
        is_empty.then_some(growth.unwrap_or(most))
    }

    /// Growth in a round trip, if others' queue has kept the window below what is its due.
    fn make_up_growth(&self) -> Option<f64> {
        let carried = self.carried_bytes_per_s * self.round_trip.as_secs_f64();
        let is_below = self.window < carried && self.clean >= CLEAN_ROUNDS;
        is_below.then_some(CALM_GROWTH[0])
    }
}
