//! A message or request that has arrived, as an endpoint hands it over.

use std::time::Instant;

use bytes::Bytes;
use cloudburst_proto::{FourTuple, PeerId, PublicKey};

#[cfg(doc)]
use super::Endpoint;
use super::pending_request::PendingRequest;

/// A message that arrived.
///
/// A request that is dropped without a [`reply`](Endpoint::reply) is answered that there is none
/// ([`RequestError::Failed`](super::RequestError::Failed)), so that its sender does not wait.
#[derive(Debug)]
#[non_exhaustive]
pub struct Received {
    /// The peer that sent it.
    pub peer: PeerId,
    /// Its public key, where key pairs say who it is.
    pub identity: Option<PublicKey>,
    /// The message as its sender gave it to [`Endpoint::send`], `request` or `reply`, under the name that it
    /// has there. It can be kept, cut and sent on without a copy.
    pub message: Bytes,
    /// The time at which it was complete; at endpoints [in memory](super::memory) by the clock of
    /// tokio.
    pub received_at: Instant,
    /// The path by which the datagram came that completed it.
    pub path: FourTuple,
    pub(super) request: Option<PendingRequest>,
}

impl Received {
    /// Returns true where its sender waits for a [`reply`](Endpoint::reply).
    pub const fn is_request(&self) -> bool {
        self.request.is_some()
    }

    /// Returns true where this is a request that its sender has given up: no reply is waited for.
    pub fn is_cancelled(&self) -> bool {
        let request = self.request.as_ref();
        request.is_some_and(PendingRequest::is_cancelled)
    }

    /// Resolves when the sender of a request has given it up, or is gone; for a message never.
    pub async fn cancelled(&self) {
        match &self.request {
            Some(request) => request.cancelled().await,
            None => std::future::pending().await,
        }
    }
}
