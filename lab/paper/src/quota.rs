//! Quotas of what others send.

use cloudburst_proto::{Quotas, Refusals};

/// What incomplete messages take up already.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) messages: usize,
    pub(crate) peer_messages: usize,
    pub(crate) bytes: usize,
    pub(crate) peer_bytes: usize,
    /// Of all peers whose address is not validated, if this is one of them.
    pub(crate) unvalidated_bytes: Option<usize>,
    /// Events that the host has not seen.
    pub(crate) unseen: usize,
    /// Messages that the host has room for, if it is to be asked about this peer.
    pub(crate) host_capacity: Option<usize>,
}

/// Why there is no room for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPlace {
    Messages,
    Bytes,
    /// Room that is for peers alone that have shown a token.
    NotValidated,
}

impl Held {
    /// Whether a message that takes up `bytes` may come in addition; counted if not.
    pub(crate) fn find_place(
        &self,
        quotas: &Quotas,
        bytes: usize,
        refused: &mut Refusals,
    ) -> Result<(), NoPlace> {
        let arriving = self.messages + self.unseen;
        if self.host_capacity.is_some_and(|room| arriving >= room) {
            refused.not_accepting += 1;
            return Err(NoPlace::Messages);
        }
        if self.messages >= quotas.messages || self.peer_messages >= quotas.peer_messages {
            refused.too_many_messages += 1;
            return Err(NoPlace::Messages);
        }
        if self.bytes + bytes > quotas.bytes || self.peer_bytes + bytes > quotas.peer_bytes {
            refused.too_many_bytes += 1;
            return Err(NoPlace::Bytes);
        }
        let unvalidated = self.unvalidated_bytes;
        if unvalidated.is_some_and(|held| held + bytes > quotas.unvalidated_bytes) {
            refused.not_validated += 1;
            return Err(NoPlace::NotValidated);
        }
        Ok(())
    }
}
