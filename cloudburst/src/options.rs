//! Messages with options.

use bytes::Bytes;

use super::{Endpoint, SendError, Sending};
use cloudburst_proto::{MessageKind, PeerId, Receipt, SendOptions};

impl Endpoint {
    /// Sends a message with options and waits until the peer has it, as [`send`](Self::send) does.
    ///
    /// ```no_run
    /// # async fn example(
    /// #     endpoint: cloudburst::Endpoint, peer: cloudburst::PeerId,
    /// # ) -> Result<(), cloudburst::SendError> {
    /// use cloudburst::SendOptions;
    ///
    /// // A reading that does no harm if it is taken twice: it goes on after a restart of its receiver.
    /// let options = SendOptions::new().idempotent(true);
    /// endpoint.send_with(peer, "21.5 C at 12:00:00", options).await?;
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
    /// does.
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
        let message = self.check(message.into())?;
        let permit = Some(self.shared.room.wait(message.len()).await?);
        let kind = (MessageKind::Message, options);
        Ok(self.start_with(peer, kind, message, permit, None).0)
    }
}
