//! How slow start ends: by a queue that stands, and otherwise beside others than alone.

use core::time::Duration;

use super::{AdaptiveController, INITIAL_DATAGRAMS};
use crate::{Acknowledged, MAX_QUEUES};
use cloudburst_wire::Time;

/// Growth and rounds of slow start when it goes on carefully (RFC 9406 §4.3).
const CAREFUL_GROWTH: f64 = 0.25;
const CAREFUL_ROUNDS: u32 = 5;
/// The share of what gets through that is sent to see whose queue stands, and the rounds that it
/// takes: one to drain it, and one to look.
const DOUBT_SHARE: f64 = 0.85;
const DOUBT_ROUNDS: u32 = 2;
/// Factor by which what stands in queues exceeds what was in flight of ours where it is others'. The rate that it is reckoned by is
/// learnt from trains of datagrams, to which ports of one bottleneck may pass for as many as are told apart at the most.
const OTHERS: f64 = MAX_QUEUES as f64;
/// Smaller windows make a queue come and go by themselves, datagram by datagram.
const LEAST_BESIDE_DATAGRAMS: f64 = 16.0;

/// What slow start has found out of a queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Start {
    /// Only what we send was noticed. What meets no queue makes the window grow.
    Alone,
    /// A queue has stood for a whole round. Less is sent than got through, so that it empties if it
    /// is ours.
    Doubt {
        /// The window before.
        before: f64,
        /// The round after which it is known.
        round: u32,
    },
    /// Others fill queues as well: only one that grows from round to round ends slow start, as with
    /// everybody else (HyStart++, RFC 9406).
    Beside,
    /// Such a queue was seen.
    Careful {
        /// The round that ends slow start.
        until: u32,
        /// A delay of the queue below which it goes on as before.
        baseline: Duration,
    },
}

impl Start {
    /// Goes on carefully with slow start from this round on, however the delay changes: the queue is others'.
    const fn careful_from(round: u32) -> Self {
        Self::Careful {
            until: round.saturating_add(CAREFUL_ROUNDS),
            baseline: Duration::ZERO,
        }
    }
}

impl AdaptiveController {
    /// Tells if more stood in the bottlenecks for all of the last round than was in flight of ours: it needs no looking
    /// then whether it is ours. Says no where nobody knows what the bottlenecks carry.
    fn is_queue_of_others(&self) -> bool {
        let believed = (MAX_QUEUES as f64 / self.bottlenecks).min(1.0);
        let standing = self.rounds.standing().as_secs_f64() * self.carried_bytes_per_s * believed;
        standing > OTHERS * self.rounds.peak()
    }

    /// Datagrams have arrived in slow start.
    pub(super) fn grow_start(&mut self, bytes: f64) {
        let number = self.rounds.number;
        if self.window >= LEAST_BESIDE_DATAGRAMS * self.datagram
            && self.start == Start::Alone
            && self.rounds.has_passed()
        {
            self.start = Start::Beside;
        }
        let growth = match self.start {
            Start::Alone if self.rounds.has_met_queue(self.datagram_time()) => 0.0,
            Start::Alone | Start::Beside => 1.0,
            Start::Doubt { .. } => 0.0,
            Start::Careful { .. } => CAREFUL_GROWTH,
        };
        self.window = (self.window + growth * bytes).min(self.threshold);
        match self.start {
            Start::Beside => {
                if let Some(baseline) = self.rounds.has_risen() {
                    let until = number.saturating_add(CAREFUL_ROUNDS);
                    self.start = Start::Careful { until, baseline };
                }
            }
            Start::Careful { until, .. } if number >= until => self.threshold = self.window,
            Start::Careful { baseline, .. } if self.rounds.is_below(baseline) => {
                self.start = Start::Beside;
            }
            _ => {}
        }
    }

    /// A round of slow start has ended.
    pub(super) fn start_round(&mut self, now: Time, news: &Acknowledged) {
        if !self.is_starting() {
            self.start = Start::Alone;
            return;
        }
        let has_stood = self.rounds.has_stood(self.datagram_time());
        let number = self.rounds.number;
        match self.start {
            // It needs no looking: the queue is others', or slow start has ended once and what is left of the window is no more
            // than got through.
            Start::Alone
                if has_stood
                    && self.is_used()
                    && (self.is_queue_of_others() || self.threshold.is_finite()) =>
            {
                self.start = Start::careful_from(number);
            }
            Start::Alone if has_stood && self.is_used() => {
                self.start = Start::Doubt {
                    before: self.window,
                    round: number.saturating_add(DOUBT_ROUNDS),
                };
                // What got through in a round trip, if nothing stood in the queue.
                let through = self.rounds.empty_share() * news.delivered_since as f64;
                let initial = INITIAL_DATAGRAMS * self.datagram;
                self.window = (DOUBT_SHARE * through).max(initial).min(self.window);
                self.recovery_until = [now; MAX_QUEUES];
            }
            Start::Doubt { before, round } if number >= round => {
                if has_stood {
                    // What gets through stands in a queue still: it is others'.
                    self.window = before;
                    self.start = Start::careful_from(number);
                } else {
                    self.threshold = self.window;
                }
            }
            _ => {}
        }
    }
}
