//! A message to several peers, encoded once.

use core::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use cloudburst_code::{EncodeError, Encoder, RepairCache};

use super::envelope::{ENVELOPE_BYTES, Envelope, EnvelopeKind};

/// A message that several peers are to have, of which all that is the same for them is done once.
///
/// Its bytes are copied, hashed and kept once, and each of the first 32 symbols beyond the message's own is
/// computed once for all peers whose datagrams are of one length, when the first of them needs it. Sealing is
/// each peer's own. It is a handle, cheap to clone; see
/// [`Transport::send_shared`](super::Transport::send_shared).
///
/// Memory: the message, and for each of up to 4 lengths of datagrams up to 32 symbols, until the last handle
/// is dropped and the last of its peers has it.
#[derive(Clone)]
pub struct SharedMessage(Arc<Shared>);

struct Shared {
    /// The message and its envelope.
    bytes: Vec<u8>,
    repairs: Mutex<RepairCache>,
}

impl SharedMessage {
    /// Takes a copy of a message.
    pub fn new(message: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(message.len().saturating_add(ENVELOPE_BYTES));
        bytes.extend_from_slice(message);
        let envelope = Envelope {
            kind: EnvelopeKind::Message,
            correlation: 0,
        };
        envelope.append_to(&mut bytes);
        let repairs = Mutex::default();
        Self(Arc::new(Shared { bytes, repairs }))
    }

    /// Returns the length of the message.
    pub fn message_bytes(&self) -> usize {
        self.0.bytes.len().saturating_sub(ENVELOPE_BYTES)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0.bytes
    }

    /// Tells it apart from others that are under way.
    pub(super) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// What rows are chosen by, the same for all peers: its hash, which differs from message to message.
    pub(super) fn seed(&self) -> u16 {
        let hash = self.0.bytes.last_chunk();
        hash.map_or(0, |hash| u16::from_be_bytes(*hash))
    }

    /// Writes a peer's next symbol, by an encoder of this message; what others need, too, is computed once.
    pub(super) fn write(
        &self,
        encoder: &Encoder<'_>,
        sequence: u32,
        out: &mut [u8],
    ) -> Result<usize, EncodeError> {
        if !RepairCache::may_keep(encoder, sequence) {
            return encoder.write(sequence..sequence.saturating_add(1), out);
        }
        // Symbols are kept whole, whoever has panicked.
        let repairs = self.0.repairs.lock();
        let mut repairs = repairs.unwrap_or_else(PoisonError::into_inner);
        repairs.write(encoder, sequence, out)
    }

    #[cfg(test)]
    pub(super) fn kept_bytes(&self) -> usize {
        self.0.repairs.lock().unwrap().bytes()
    }
}

impl fmt::Debug for SharedMessage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SharedMessage")
            .field("bytes", &self.message_bytes())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_chosen_by_what_a_message_says() {
        let seeds = [b"one", b"two", b"one"].map(|it| SharedMessage::new(it).seed());
        assert_ne!(seeds[0], seeds[1]);
        assert_eq!(seeds[0], seeds[2]);
    }
}
