//! What is under way to a peer, and whether the peer answers.

use core::time::Duration;

use cloudburst_congestion::Keepalive;

use crate::time::Time;

/// After this long without messages a peer's paths are not probed any more.
const ACTIVE_FOR: Duration = Duration::from_secs(1);
/// So many datagrams without an answer, for so long, let doubt whether anybody is there: more
/// than the pings that may be lost at the end of a conversation.
const SILENT_DATAGRAMS: u32 = 32;
const SILENT_FOR: Duration = Duration::from_secs(1);

/// What is under way to a peer, and whether it answers.
#[derive(Debug)]
pub(super) struct Outbox {
    /// Messages that are not delivered.
    pub(super) messages: usize,
    /// The number of the next one, and of the oldest that is not delivered.
    pub(super) next: u64,
    pub(super) oldest: u64,
    /// Whether it has taken a message of ours.
    pub(super) has_taken_any: bool,
    /// When it last answered, or sent, anything.
    answered_at: Option<Time>,
    /// Datagrams since then that ask for an answer, and when the first of them was sent.
    unanswered: u32,
    unanswered_since: Time,
    /// The last message was abandoned without an answer of its, or the network says that it is not
    /// there.
    pub(super) is_abandoned: bool,
    /// Messages wait until something is heard of it.
    pub(super) has_pending: bool,
    /// When a message was last sent to it.
    pub(super) sent_at: Option<Time>,
    pub(super) keepalive: Keepalive,
    /// It has said that it closes, and was sent nothing since.
    pub(super) is_closed: bool,
    /// The last datagram of it was a goodbye, and the one before.
    goodbyes: [bool; 2],
    /// It closed then, and messages of before wait for it to be back.
    pub(super) closed_at: Option<Time>,
}

impl Outbox {
    pub(super) const fn new(now: Time, first_message: u64) -> Self {
        Self {
            messages: 0,
            next: first_message,
            oldest: first_message,
            has_taken_any: false,
            answered_at: None,
            unanswered: 0,
            unanswered_since: now,
            is_abandoned: false,
            has_pending: false,
            sent_at: None,
            keepalive: Keepalive::new(now),
            is_closed: false,
            goodbyes: [false; 2],
            closed_at: None,
        }
    }

    /// So many datagrams that ask for an answer are sent to it.
    pub(super) fn asked(&mut self, now: Time, datagrams: u32) {
        if self.unanswered == 0 {
            self.unanswered_since = now;
        }
        self.unanswered = self.unanswered.saturating_add(datagrams);
    }

    /// Since when it has answered nothing, if it was asked anything.
    pub(super) fn silent_since(&self) -> Option<Time> {
        (self.unanswered > 0).then_some(self.unanswered_since)
    }

    /// Something was heard of it. Whether messages have waited for that.
    pub(super) fn answered(&mut self, now: Time) -> bool {
        self.answered_at = Some(now);
        self.unanswered = 0;
        self.is_abandoned = false;
        self.goodbyes = [false, self.goodbyes[0]];
        core::mem::take(&mut self.has_pending)
    }

    /// It has closed: its paths are of no interest, and the next message finds out with little whether
    /// it is there again.
    pub(super) fn close(&mut self, now: Time) {
        self.keepalive = Keepalive::new(now);
        self.unanswered = 0;
        self.is_abandoned = true;
        self.is_closed = true;
        self.goodbyes[0] = true;
        self.has_pending = false;
        self.sent_at = None;
    }

    /// Whether it has said nothing since it said that it closes: the last datagram says so by another path.
    pub(super) fn is_closed_already(&self) -> bool {
        self.is_closed || self.goodbyes[1]
    }

    /// Whether it is of interest how its paths are.
    pub(super) fn is_in_use(&self, now: Time) -> bool {
        let is_recent = |at| now.since(at) < ACTIVE_FOR;
        self.messages > 0 || self.sent_at.is_some_and(is_recent)
    }

    /// When it is pinged next for no other reason, if it is there and nothing is under way.
    pub(super) fn next_keepalive(&self, interval: Option<Duration>) -> Option<Time> {
        let (sent_at, heard_at) = self.sent_at.zip(self.answered_at)?;
        if self.messages > 0 || self.is_abandoned {
            return None;
        }
        self.keepalive.next_due(sent_at, heard_at, interval)
    }

    /// A message that was accepted then was not delivered in its time.
    pub(super) fn failed(&mut self, accepted_at: Time) {
        self.is_abandoned |= self.answered_at.is_none_or(|at| at < accepted_at);
    }

    /// Whether nobody may be there: then a message begins with little.
    pub(super) fn is_unresponsive(&self, now: Time) -> bool {
        let is_silent =
            self.unanswered >= SILENT_DATAGRAMS && now.since(self.unanswered_since) >= SILENT_FOR;
        self.is_abandoned || is_silent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    /// A last answer, and pings to 16 paths twice that are not answered, before a pause.
    #[test]
    fn who_has_answered_is_not_doubted_after_a_pause() {
        let mut outbox = Outbox::new(at(0), 0);
        outbox.asked(at(0), 100);
        outbox.answered(at(5));
        outbox.asked(at(10), 31);
        assert!(!outbox.is_unresponsive(at(20_000)));
    }

    #[test]
    fn who_leaves_much_unanswered_for_long_is_doubted_until_it_answers() {
        let mut outbox = Outbox::new(at(0), 0);
        outbox.asked(at(0), 1);
        assert!(!outbox.is_unresponsive(at(20_000)), "one may be lost");
        outbox.asked(at(10), 40);
        assert!(!outbox.is_unresponsive(at(900)), "it may be on its way");
        assert!(outbox.is_unresponsive(at(1_000)));
        outbox.answered(at(1_001));
        assert!(!outbox.is_unresponsive(at(1_002)));
    }
}
