//! Loss recovery: how far the congestion window is reduced, and what it may be set to again.

use core::time::Duration;

use super::{
    AdaptiveController, CHANCE_DATAGRAMS, EMPTIED_ROUNDS, LEAST_DATAGRAMS, UNUSED_DATAGRAMS, share,
    start::Start,
};
use crate::Acknowledged;
use cloudburst_wire::Time;

/// A larger share of losses says that much less gets through than before.
const MUCH_LOSS: f64 = 0.1;
/// A window of which so much was not in flight was not filled, and what got through tells nothing of it.
const FILLED: f64 = 0.75;

/// Counts what gets through of the datagrams that were in flight when the window was reduced: if they
/// have left in bursts, little of it is known with the first loss.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recovery {
    /// Bytes so far.
    through: f64,
    /// The window that a few losses would have left, if it is less than that.
    most: f64,
}

impl AdaptiveController {
    /// Takes what a report tells of datagrams from before the last reduction. With the first one from
    /// after it, it is known how much of them got through, which may have been more than seemed so.
    pub(super) fn recover(&mut self, is_new: bool, news: &Acknowledged) {
        if is_new {
            let Recovery { through, most } = core::mem::take(&mut self.recovery);
            let found = through.min(most);
            if found > self.window && self.back_off.is_none() {
                self.threshold = self.threshold.max(found);
                self.window = found;
            }
        } else {
            let lost = share(news.lost, news.sent);
            self.recovery.through += news.resolved_bytes as f64 * (1.0 - lost);
        }
    }

    /// Datagrams are lost that were sent after the last reduction; so much was in flight before that was known.
    pub(super) fn reduce(&mut self, now: Time, news: &Acknowledged, in_flight: f64) {
        let (lost, sent) = self.rounds.loss();
        let prior = self.window;
        // At the end of a message rounds are of few datagrams, or of a ping that has found a loss.
        let share = share(lost, sent.max((prior / self.datagram) as u32));
        let kept = self.take_losses(now, news);
        self.cubic.reduced(prior, kept);
        let mut window = prior * kept;
        // Where most is lost, little is in flight for that.
        let (was_starting, was_used) = (self.is_starting(), self.is_used() || self.is_hopeless());
        let is_blind = was_starting && self.start == Start::Alone;
        let is_queue = self.rounds.has_queue();
        if is_blind || is_queue && (self.is_unvalidated || share > MUCH_LOSS) {
            // So much goes through in a round trip; the window before was only hoped for.
            let mut through = news.delivered_since as f64;
            if in_flight < FILLED * prior {
                // Hardly anything was sent: a ping, say, that finds out what a burst has lost.
                through = through.max(self.rounds.through());
            }
            window = window.min(through);
        }
        let least = self.least_window(was_used, is_queue);
        self.window = window.max((least * self.datagram).min(prior));
        let is_less = window < prior * kept;
        self.flows.reduced(kept, self.window, is_less);
        self.recovery = Recovery {
            through: 0.0,
            most: prior * kept,
        };
        // A window that was not used may be right still: it is found again quickly.
        let is_known = !was_used || self.is_unvalidated && !was_starting;
        self.threshold = if is_known {
            // Of losses that follow each other the first knew what was used.
            let is_sought = was_starting && self.threshold.is_finite();
            let found = if is_sought { self.threshold } else { prior };
            found * kept
        } else {
            self.window
        };
        self.start = Start::Alone;
        if is_queue || self.rounds.has_met(8, Duration::ZERO) {
            let path = (self.segment(), self.round_trip);
            let until = now + self.cubic.recovery(self.window, path);
            self.emptied = (until, self.rounds.number.saturating_add(EMPTIED_ROUNDS));
        }
        (self.calm, self.clean) = (0, 0);
    }

    /// The least window that losses leave, in datagrams, whether it was used or not; they may be those of a queue.
    fn least_window(&self, was_used: bool, is_queue: bool) -> f64 {
        if !was_used {
            UNUSED_DATAGRAMS
        } else if is_queue {
            LEAST_DATAGRAMS
        } else {
            let [least, most] = CHANCE_DATAGRAMS;
            self.bottlenecks.clamp(least, most)
        }
    }
}
