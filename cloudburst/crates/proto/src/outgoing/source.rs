//! The bytes of a message under way.

use crate::{
    envelope::{ENVELOPE_BYTES, Envelope, EnvelopeKind},
    event::{MessageKind, SendId},
    shared_message::SharedMessage,
};

/// A message and its envelope.
#[derive(Debug)]
pub(super) enum Source {
    Own(Vec<u8>),
    /// Other peers are sent it, too.
    Shared(SharedMessage),
}

impl Source {
    /// A copy of a message, with its envelope, in memory that is used again.
    pub(super) fn own(
        (kind, message): (MessageKind, &[u8]),
        id: SendId,
        mut memory: Vec<u8>,
    ) -> Self {
        memory.clear();
        // Exactly: to grow for the envelope would double it.
        memory.reserve_exact(message.len().saturating_add(ENVELOPE_BYTES));
        memory.extend_from_slice(message);
        envelope(kind, id).append_to(&mut memory);
        Self::Own(memory)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Shared(message) => message.bytes(),
        }
    }

    /// What rows are chosen by: another number for each message, and the same for all of a shared one's
    /// peers.
    pub(super) fn seed(&self, id: SendId) -> u64 {
        match self {
            Self::Own(_) => id.as_u64() ^ id.as_u64() >> 16,
            Self::Shared(message) => message.seed().into(),
        }
    }

    pub(super) fn shared_message(&self) -> Option<&SharedMessage> {
        match self {
            Self::Own(_) => None,
            Self::Shared(message) => Some(message),
        }
    }

    pub(super) fn into_memory(self) -> Option<Vec<u8>> {
        match self {
            Self::Own(bytes) => Some(bytes),
            Self::Shared(_) => None,
        }
    }
}

fn envelope(kind: MessageKind, id: SendId) -> Envelope {
    let (kind, correlation) = match kind {
        MessageKind::Message => (EnvelopeKind::Message, 0),
        MessageKind::Request => (EnvelopeKind::Request, id.as_u64()),
        MessageKind::Reply { to } => (EnvelopeKind::Reply, to),
        MessageKind::Failure { to } => (EnvelopeKind::Failure, to),
    };
    Envelope { kind, correlation }
}
