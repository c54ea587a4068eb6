//! Messages with options.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::{Closed, Endpoint, SendError, Sending, outgoing::Permit};
use cloudburst_proto::{MessageKind, PeerId, Reason, Receipt, SendOptions, Undelivered};

/// Options of a message whose deadline has been running since it was given.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallOptions {
    options: SendOptions,
    expires: Option<Instant>,
}

impl CallOptions {
    /// Options of a call that is made now.
    pub(super) fn begin(options: SendOptions) -> Self {
        let deadline = options.deadline;
        let expires = deadline.and_then(|it| Instant::now().checked_add(it));
        Self { options, expires }
    }

    /// Options with a deadline that runs from now on, and is no later than so.
    pub(super) fn remaining(self, most: Option<Duration>) -> SendOptions {
        let mut options = self.options;
        let expires = self.expires;
        let remaining = expires.map(|at| at.saturating_duration_since(Instant::now()));
        options.deadline = remaining.into_iter().chain(most).min();
        options
    }

    pub(super) const fn is_idempotent(&self) -> bool {
        self.options.idempotent
    }
}

impl Endpoint {
    /// Sends a message with options and waits until the peer has it, as [`send`](Self::send) does.
    ///
    /// ```no_run
    /// # async fn example(
    /// #     endpoint: cloudburst::Endpoint, peer: cloudburst::PeerId,
    /// # ) -> Result<(), cloudburst::SendError> {
    /// use std::time::Duration;
    /// use cloudburst::{Priority, SendOptions};
    ///
    /// // A reading that does no harm if it is taken twice: it goes on after a restart of its receiver.
    /// let options = SendOptions::new().with_idempotent(true);
    /// endpoint.send_with(peer, "21.5 C at 12:00:00", options).await?;
    /// // A position that is of no use a second later.
    /// let options = SendOptions::new()
    ///     .with_deadline(Duration::from_secs(1))
    ///     .with_priority(Priority::Urgent);
    /// endpoint.send_with(peer, "52.52 N 13.40 E", options).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// A [`SendError`] when it was not taken, or was abandoned.
    pub async fn send_with(
        &self,
        peer: PeerId,
        message: impl Into<Bytes>,
        options: SendOptions,
    ) -> Result<Receipt, SendError> {
        self.enqueue_with(peer, message, options).await?.await
    }

    /// Waits for capacity and starts to send a message with options, as [`enqueue`](Self::enqueue)
    /// does. A deadline runs meanwhile.
    ///
    /// # Errors
    ///
    /// A [`SendError`] when it is not taken.
    pub async fn enqueue_with(
        &self,
        peer: PeerId,
        message: impl Into<Bytes>,
        options: SendOptions,
    ) -> Result<Sending, SendError> {
        let options = CallOptions::begin(options);
        let message = self.check(message.into())?;
        let permit = Some(self.capacity(message.len(), options).await?);
        let kind = (MessageKind::Message, options);
        Ok(self.start(peer, kind, message, permit, None).0)
    }

    /// Options of messages that are given none of their own.
    pub(super) fn default_options(&self) -> CallOptions {
        CallOptions::begin(self.shared.send_options)
    }

    /// Waits for capacity, until the message's deadline.
    pub(super) async fn capacity(
        &self,
        bytes: usize,
        options: CallOptions,
    ) -> Result<Permit, SendError> {
        let permit = self.shared.room.wait(bytes);
        self.until_deadline(options, permit).await
    }

    /// Waits for something until a message's deadline.
    pub(super) async fn until_deadline<T>(
        &self,
        options: CallOptions,
        waiting: impl Future<Output = Result<T, Closed>>,
    ) -> Result<T, SendError> {
        let Some(expires) = options.expires else {
            return Ok(waiting.await?);
        };
        match tokio::time::timeout_at(expires, waiting).await {
            Ok(waited) => Ok(waited?),
            Err(_) => Err(Undelivered::new(Reason::TimedOut, 0, 0).into()),
        }
    }
}
