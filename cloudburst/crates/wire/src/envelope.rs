//! Envelope of a message: 17 bytes behind it that are coded with it.
//!
//! ```text
//!  0           m      m + 1         m + 9     m + 17
//! +-----------+------+-------------+---------+
//! | message   | kind | correlation | xxh3    |
//! +-----------+------+-------------+---------+
//! ```
//!
//! In network byte order. The hash is over all before it: it finds what no
//! datagram's checksum can, a message put together from symbols of two. It is
//! no protection against who means harm; sealed datagrams are.

use xxhash_rust::xxh3::xxh3_64;

use cloudburst_code::MAX_MESSAGE_BYTES;

/// Bytes of an envelope.
pub const ENVELOPE_BYTES: usize = KIND_BYTES + NUMBER_BYTES + NUMBER_BYTES;
/// Bytes that a message has at most: what the code carries, less the envelope.
pub const MAX_ENVELOPED_BYTES: usize = MAX_MESSAGE_BYTES - ENVELOPE_BYTES;

const KIND_BYTES: usize = 1;
const NUMBER_BYTES: usize = 8;

/// Says what a message is to its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EnvelopeKind {
    /// A message that is complete in itself.
    Message = 0,
    /// A request that wants a reply.
    Request = 1,
    /// The reply to a request.
    Reply = 2,
    /// A [`Failure`](super::Failure), which a request is answered with where there is no reply.
    Failure = 3,
}

/// Envelope that goes with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Envelope {
    /// The kind of the message.
    pub kind: EnvelopeKind,
    /// Chosen by who requests; the reply has the same. Without meaning in a
    /// [`EnvelopeKind::Message`].
    pub correlation: u64,
}

/// Why what was decoded is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum EnvelopeError {
    /// Shorter than an envelope.
    #[error("{0} bytes have no room for an envelope of {ENVELOPE_BYTES}")]
    Truncated(usize),
    /// Put together from parts of several messages, or spoilt.
    #[error("the hash {stated:#018x} is not that of what was decoded, {computed:#018x}")]
    Hash {
        /// The hash in the envelope.
        stated: u64,
        /// The hash of what arrived.
        computed: u64,
    },
    /// There is no such kind.
    #[error("kind {0} of message is not known; the sender may be of a later version")]
    EnvelopeKind(u8),
}

impl Envelope {
    /// Appends the envelope to its message: what is to be coded.
    pub fn append_to(&self, message: &mut Vec<u8>) {
        message.reserve(ENVELOPE_BYTES);
        message.push(self.kind as u8);
        message.extend_from_slice(&self.correlation.to_be_bytes());
        let hash = xxh3_64(message);
        message.extend_from_slice(&hash.to_be_bytes());
    }

    /// Reads what was decoded, and returns the message in it.
    ///
    /// # Errors
    ///
    /// See [`EnvelopeError`].
    pub fn open(decoded: &[u8]) -> Result<(Self, &[u8]), EnvelopeError> {
        let truncated = EnvelopeError::Truncated(decoded.len());
        let (hashed, stated) = decoded.split_last_chunk().ok_or(truncated)?;
        let (rest, correlation) = hashed.split_last_chunk().ok_or(truncated)?;
        let (kind, message) = rest.split_last().ok_or(truncated)?;
        let (stated, computed) = (u64::from_be_bytes(*stated), xxh3_64(hashed));
        if stated != computed {
            return Err(EnvelopeError::Hash { stated, computed });
        }
        let kind = match kind {
            0 => EnvelopeKind::Message,
            1 => EnvelopeKind::Request,
            2 => EnvelopeKind::Reply,
            3 => EnvelopeKind::Failure,
            &unknown => return Err(EnvelopeError::EnvelopeKind(unknown)),
        };
        let correlation = u64::from_be_bytes(*correlation);
        Ok((Self { kind, correlation }, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KINDS: [EnvelopeKind; 4] = [
        EnvelopeKind::Message,
        EnvelopeKind::Request,
        EnvelopeKind::Reply,
        EnvelopeKind::Failure,
    ];

    proptest! {
        #[test]
        fn messages_come_back(
            message: Vec<u8>, kind in proptest::sample::select(&KINDS[..]), correlation: u64,
        ) {
            let envelope = Envelope { kind, correlation };
            let mut coded = message.clone();
            envelope.append_to(&mut coded);
            prop_assert_eq!(coded.len(), message.len() + ENVELOPE_BYTES);
            prop_assert_eq!(Envelope::open(&coded), Ok((envelope, &message[..])));
        }

        #[test]
        fn a_changed_bit_is_found(message: Vec<u8>, bit: proptest::sample::Index) {
            let mut coded = message;
            Envelope { kind: EnvelopeKind::Request, correlation: 1 }.append_to(&mut coded);
            let bit = bit.index(8 * coded.len());
            coded[bit / 8] ^= 1 << (bit % 8);
            let refused = matches!(Envelope::open(&coded), Err(EnvelopeError::Hash { .. }));
            prop_assert!(refused);
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = Envelope::open(&bytes);
        }
    }

    #[test]
    fn what_is_no_envelope_is_refused() {
        assert_eq!(Envelope::open(&[0; 16]), Err(EnvelopeError::Truncated(16)));
        let mut coded = vec![4; 9];
        coded.extend_from_slice(&xxh3_64(&[4; 9]).to_be_bytes());
        assert_eq!(Envelope::open(&coded), Err(EnvelopeError::EnvelopeKind(4)));
    }
}
