//! Reductions: how far losses and marks reduce the congestion window, and what it may be set to again.

use core::time::Duration;

use super::{
    AdaptiveController, BETA, CHANCE_DATAGRAMS, EMPTIED_ROUNDS, LEAST_DATAGRAMS, UNUSED_DATAGRAMS,
    flows::untouched_part, share, start::Start,
};
use crate::{Acknowledged, QueueSet, cubic::MARK_BETA};
use cloudburst_wire::Time;

/// A larger share of losses says that much less gets through than before.
const MUCH_LOSS: f64 = 0.1;
/// A window of which so much was not in flight was not filled, and what got through tells nothing of it.
const FILLED: f64 = 0.75;

/// Congestion that a report tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// Datagrams were lost, and not by chance.
    Loss,
    /// Datagrams were marked (ECN): a queue stands, and nothing has to be sent again.
    Mark,
}

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

    /// Datagrams are lost or marked that were sent after the last reduction; so much was in flight before that was known.
    pub(super) fn reduce(
        &mut self,
        now: Time,
        news: &Acknowledged,
        (signal, in_flight): (Signal, f64),
    ) {
        let (lost, sent) = self.rounds.loss();
        let prior = self.window;
        // At the end of a message rounds are of few datagrams, or of a ping that has found a loss.
        let share = share(lost, sent.max((prior / self.datagram) as u32));
        let is_mark = signal == Signal::Mark;
        let is_queue = is_mark || self.rounds.has_queue();
        let has_met = is_mark || self.rounds.has_met(8, Duration::ZERO);
        // Where most is lost, little is in flight for that.
        let (was_starting, was_used) = (self.is_starting(), self.is_used() || self.is_hopeless());
        let (queues, beta) = match signal {
            Signal::Loss => (congested(news), BETA),
            // The window of slow start has doubled since (RFC 8511 is of congestion avoidance).
            Signal::Mark if was_starting => (news.marking, BETA),
            Signal::Mark => (news.marking, MARK_BETA),
        };
        if is_mark {
            // A queue stands, whatever delays say: no trial gives back what marks have taken.
            self.chance.forget(now);
        }
        let kept = self.take_congestion(now, news, (queues, beta), is_queue || has_met);
        self.cubic.reduced(prior, kept, beta);
        let mut window = prior * kept;
        let is_blind = was_starting && self.start == Start::Alone;
        let is_much = !is_mark && share > MUCH_LOSS;
        if is_blind || is_queue && (self.is_unvalidated || is_much) {
            let through = self.through(now, news, in_flight);
            // What goes through other queues says nothing of these, nor these of that.
            window = window.min(through.max(prior * untouched_part(kept, beta)));
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
        if is_queue || has_met {
            let path = (self.segment(), self.round_trip);
            let until = now + self.cubic.recovery(self.window, path);
            self.emptied = (until, self.rounds.number.saturating_add(EMPTIED_ROUNDS));
        }
        (self.calm, self.clean) = (0, 0);
    }

    /// So much goes through in a round trip; the window before was only hoped for.
    fn through(&self, now: Time, news: &Acknowledged, in_flight: f64) -> f64 {
        let through = news.delivered_since as f64;
        if in_flight < FILLED * self.window {
            // Hardly anything was sent: a ping, say, that finds out what a burst has lost.
            through.max(self.rounds.through(now))
        } else {
            through
        }
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

/// The queues in which something was lost, and those in which something was marked beside that: a loss here is no reason to
/// pass over a mark there.
fn congested(news: &Acknowledged) -> QueueSet {
    let mut queues = QueueSet::default();
    for queue in news.lossy.iter() {
        queues.insert(queue);
    }
    if news.marked > 0 {
        for queue in news.marking.iter() {
            queues.insert(queue);
        }
    }
    queues
}
