//! Options of a message that is sent.

use core::time::Duration;

/// Says how a message is to be treated, besides to whom it goes.
///
/// ```
/// # use std::time::Duration;
/// # use cloudburst_proto::{Priority, SendOptions};
/// // The position of something that moves: of no use a second later, and ahead of all else.
/// let position = SendOptions::new()
///     .with_deadline(Duration::from_secs(1))
///     .with_priority(Priority::Urgent);
/// // A reading that does no harm if it is taken twice.
/// let reading = SendOptions::new().with_idempotent(true);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SendOptions {
    /// Says that to take it twice does no harm. If the receiver is restarted while the message is under
    /// way, it is sent again, though the receiver may have handed it over before; one that is not
    /// idempotent ends as [`Reason::Unknown`](super::Reason::Unknown) then. A host may ask a request again, too,
    /// that was taken by a peer that closed before its reply came. Default false.
    pub idempotent: bool,
    /// Abandons the message when so much time has gone by since the call, whether or not anything of it
    /// was sent by then ([`Reason::TimedOut`](super::Reason::TimedOut)): for what is of no use later. It
    /// comes on top of [`Budget::lifetime`](super::Budget::lifetime), which runs from the first
    /// transmission. Default none.
    pub deadline: Option<Duration>,
    /// Says which messages are sent first while not all can be. Default [`Priority::Normal`].
    pub priority: Priority,
}

/// Priority of a message: while congestion control or the link lets not all messages go, to whichever
/// peers, those of the highest go first, and among them the one with the fewest symbols left.
///
/// The order is strict: as long as there is something to send of a higher priority, nothing is sent of a
/// lower one. What is delayed so is late and not lost, unless its turn does not come for
/// [`MAX_LIFETIME`](super::MAX_LIFETIME), or, once it has begun, not within its lifetime.
/// What the protocol itself says (answers, probes) waits for no message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Priority {
    /// Waits until nothing else has something to send.
    Background,
    /// Goes as most messages do.
    #[default]
    Normal,
    /// Goes before all others.
    Urgent,
}

impl SendOptions {
    /// Returns options that are all at their defaults.
    pub const fn new() -> Self {
        Self {
            idempotent: false,
            deadline: None,
            priority: Priority::Normal,
        }
    }

    /// Sets if the message may be taken twice; see [`Self::idempotent`].
    #[must_use]
    pub const fn with_idempotent(mut self, idempotent: bool) -> Self {
        self.idempotent = idempotent;
        self
    }

    /// Abandons the message so long after the call; see [`Self::deadline`].
    #[must_use]
    pub const fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets which messages it goes before; see [`Self::priority`].
    #[must_use]
    pub const fn with_priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }
}
