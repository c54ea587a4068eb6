//! What the receiver's answers make of a message under way: how much more is sent, and when.

use core::time::Duration;

use cloudburst_congestion::{LossEstimator, RoundTripEstimator};

use super::{super::time::Time, Outgoing, QUERY_PAUSE};

/// What is sent after an answer, at most: this part of the message or so many
/// symbols, and so many times those that have come since the answer before.
const CAREFUL_PART: u32 = 8;
const CAREFUL_LEAST: u32 = 4;
const CAREFUL_GROWTH: u32 = 4;

/// How often pauses are doubled at most: before a busy receiver is tried again,
/// and before symbols are sent again that may be under way still.
const MOST_DOUBLINGS: u8 = 5;

impl Outgoing {
    /// The receiver misses so many symbols.
    pub(in super::super) fn missing(
        &mut self,
        now: Time,
        ack_timeout: Duration,
        missing: u32,
        loss: &LossEstimator,
    ) {
        // No more than all, whatever it says.
        let missing = missing.min(self.symbols());
        let have = self.symbols().saturating_sub(missing);
        let is_progress = self.have.is_none_or(|before| have > before);
        let report = have.saturating_sub(self.have.unwrap_or(0));
        self.have = Some(have);
        if have > 0 {
            self.was_busy = false;
            self.busies = 0;
        }
        self.queries = 0;
        self.reserve = 0;
        if self.is_spent() && !is_progress {
            self.last_reports = self.last_reports.saturating_add(1);
        }
        // What is not there yet may be in a queue that the question overtook.
        self.stalls = if is_progress { 0 } else { self.stalls };
        // More than half was lost, or nobody would have asked. Perhaps a queue
        // overflows: then all at once would be lost again, and the budget with it.
        let part = (self.symbols() / CAREFUL_PART).max(CAREFUL_LEAST);
        let careful = report.saturating_mul(CAREFUL_GROWTH).saturating_add(part);
        let more = missing.saturating_add(loss.repeated_redundancy(missing));
        let more = more.max(self.for_each_block());
        self.resend(now, ack_timeout, is_progress, more.min(careful));
    }

    /// Whether symbols may be in flight that were sent after the datagram that an answer answers, or
    /// by other paths that are slower.
    pub(in super::super) fn is_in_flight(
        &self,
        now: Time,
        answered_us: u32,
        round_trip: &RoundTripEstimator,
    ) -> bool {
        let since = answered_us.wrapping_sub(self.last_sent_at.as_wire_micros());
        let is_slower = self.paths.count_ones() > 1 && now < self.answered_by(round_trip);
        self.remaining() > 0 || since.cast_signed() < 0 || is_slower
    }

    /// The receiver misses so many symbols, some of which may be in flight.
    pub(in super::super) fn note_missing(&mut self, missing: u32) {
        let have = self.symbols().saturating_sub(missing);
        self.have = self.have.max(Some(have));
        if have > 0 {
            self.was_busy = false;
            self.busies = 0;
        }
    }

    /// Answers do not tell which blocks miss something, and symbols are of all in
    /// turn; two of a block, as one may tell nothing new.
    fn for_each_block(&self) -> u32 {
        match self.shape.blocks() {
            1 => 0,
            blocks => (blocks as u32).saturating_mul(2),
        }
    }

    /// What was sent so far was not taken, for want of a token. All of it is sent
    /// again, but once only: nobody may ask for all of the budget.
    pub(in super::super) fn again(
        &mut self,
        now: Time,
        ack_timeout: Duration,
        loss: &LossEstimator,
    ) {
        let all = self.symbols();
        if core::mem::replace(&mut self.was_again, true) {
            self.missing(now, ack_timeout, all, loss);
        } else {
            self.have = Some(0);
            self.queries = 0;
            let more = all.saturating_add(loss.repeated_redundancy(all));
            self.send_more(now, ack_timeout, more);
        }
        self.tails = 0;
    }

    /// Sends more, unless what was sent last may still be under way.
    fn resend(&mut self, now: Time, ack_timeout: Duration, is_progress: bool, more: u32) {
        if self.remaining() == 0 && (is_progress || now >= self.again_at) {
            self.send_more(now, ack_timeout, more);
        }
    }

    fn send_more(&mut self, now: Time, ack_timeout: Duration, more: u32) {
        let pause = ack_timeout.saturating_mul(1_u32.wrapping_shl(self.stalls.into()));
        self.again_at = now + pause.min(ack_timeout.max(QUERY_PAUSE));
        self.stalls = self.stalls.saturating_add(1).min(MOST_DOUBLINGS);
        self.want(more);
    }

    /// The receiver has no capacity for so long.
    pub(in super::super) fn hold(&mut self, now: Time, pause: Duration) -> Time {
        if !self.is_busy || self.busies == 0 {
            self.busies = self.busies.saturating_add(1).min(MOST_DOUBLINGS);
        }
        self.is_busy = true;
        self.was_busy = true;
        self.goal = self.sent;
        let doublings = self.busies.saturating_sub(1);
        (now + pause.saturating_mul(1_u32.wrapping_shl(doublings.into()))).min(self.ends)
    }
}
