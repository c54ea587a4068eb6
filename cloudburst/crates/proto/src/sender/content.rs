//! What a message is made of.

use crate::{event::MessageKind, shared_message::SharedMessage};

/// Content of a message that is to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Content<'m> {
    /// One peer's, of which a copy is kept.
    Own(MessageKind, &'m [u8]),
    /// Other peers are sent it, too.
    Shared(&'m SharedMessage),
}

impl Content<'_> {
    /// Bytes of the message.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::Own(_, message) => message.len(),
            Self::Shared(message) => message.message_bytes(),
        }
    }

    pub(super) const fn is_request(self) -> bool {
        matches!(self, Self::Own(MessageKind::Request, _))
    }
}
