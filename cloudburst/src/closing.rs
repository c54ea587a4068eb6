//! The end of an endpoint: how long it is waited for, and what has become of what was under way.

use std::time::Duration;

use cloudburst_proto::{Reason, Time, Undelivered};
use tokio::sync::oneshot;

/// Counts what has become of messages that were under way when an endpoint began to close.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CloseReport {
    /// Messages that their receivers have.
    pub delivered: ClosedMessages,
    /// Messages that their receivers do not have: nothing of them was sent, or they were refused.
    pub lost: ClosedMessages,
    /// Messages that were sent, and of which nobody has said that they arrived.
    pub unknown: ClosedMessages,
}

/// Counts messages in a [`CloseReport`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClosedMessages {
    /// How many messages they are.
    pub messages: u64,
    /// The bytes of these messages.
    pub bytes: u64,
}

/// How long goodbyes may take: longer than to all peers that the default quota allows.
const GOODBYES_WITHIN: Duration = Duration::from_secs(4);

/// An endpoint's goodbyes to its peers, when all else is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Farewell {
    pub(super) report: CloseReport,
    pub(super) ends: Time,
}

impl Farewell {
    pub(super) fn new(now: Time, report: CloseReport) -> Self {
        let ends = now + GOODBYES_WITHIN;
        Self { report, ends }
    }
}

impl CloseReport {
    pub(super) fn abandoned(&mut self, bytes: usize, failure: &Undelivered) {
        let is_lost = failure.sent == 0 || failure.reason == Reason::Refused;
        let counter = match is_lost {
            true => &mut self.lost,
            false => &mut self.unknown,
        };
        counter.add(bytes);
    }
}

impl ClosedMessages {
    pub(super) fn add(&mut self, bytes: usize) {
        self.messages += 1;
        self.bytes += bytes as u64;
    }
}

/// An endpoint that closes.
#[derive(Debug)]
pub(super) struct Closing {
    pub(super) deadline: Time,
    pub(super) done: Vec<oneshot::Sender<CloseReport>>,
    pub(super) report: CloseReport,
}
