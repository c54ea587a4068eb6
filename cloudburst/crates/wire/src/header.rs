//! The public part of a datagram: 24 bytes that are authenticated, not encrypted.

/// Bytes of a header.
pub const HEADER_BYTES: usize = 24;
/// The version of the format, in the upper half of a datagram's first byte.
pub const VERSION: u8 = 3;
/// The path id of datagrams that are sent without state about whom they go to:
/// [`Challenge`](super::Challenge) and what an unknown peer is answered. Their
/// sequence numbers are counted together; paths have ids from 1.
pub const STATELESS_PATH: u16 = 0;

/// Header of a datagram, which everyone on the way can see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The kind of the body.
    pub kind: PacketKind,
    /// How it is protected, and what stands between header and body.
    pub form: Form,
    /// Chosen by the sender for this path; never used again in a session.
    pub path: u16,
    /// The sender's clock in µs, modulo 2^32.
    pub sent_us: u32,
    /// Of a plain datagram its sender's session, drawn at random; else the index that the receiver
    /// chose, or, in an offer and in a retry, that of the initiator.
    pub session: u64,
    /// Counted from 0 for each session and path.
    pub sequence: u64,
}

/// Form of a datagram: how it is protected, and what stands between header and body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Form {
    /// Neither encrypted nor authenticated.
    Plain = 0,
    /// Sealed with the keys of an association.
    Data = 1,
    /// An offer, and a body sealed with the early key that is in it.
    Offer = 2,
    /// An acceptance, and a body sealed with the keys that it leads to.
    Acceptance = 3,
    /// A request to make the offer again with this token, from who keeps nothing.
    Retry = 4,
}

impl Form {
    const ALL: [Self; 5] = [
        Self::Plain,
        Self::Data,
        Self::Offer,
        Self::Acceptance,
        Self::Retry,
    ];

    /// Returns whether a body of this form is encrypted.
    pub const fn is_sealed(self) -> bool {
        !matches!(self, Self::Plain | Self::Retry)
    }
}

/// Kind of a datagram's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum PacketKind {
    /// A symbol, which is part of a message.
    Symbol = 1,
    /// A request to send no more of a message.
    Stop = 2,
    /// A query what has arrived of a message.
    Query = 3,
    /// The answer to that while the message is not complete, and to symbols now and then.
    Progress = 4,
    /// There is no capacity for a message now.
    Busy = 5,
    /// A ping, which asks for an answer.
    Ping = 6,
    /// The answer to a ping.
    Pong = 7,
    /// Show that you receive at your address.
    Challenge = 8,
    /// The token that a challenge brought.
    Token = 9,
    /// A request to forget a message that its sender has given up.
    Cancel = 10,
    /// The sender ends: nothing more comes from it.
    Goodbye = 11,
}

impl PacketKind {
    /// All of them, by number.
    pub const ALL: [Self; 11] = [
        Self::Symbol,
        Self::Stop,
        Self::Query,
        Self::Progress,
        Self::Busy,
        Self::Ping,
        Self::Pong,
        Self::Challenge,
        Self::Token,
        Self::Cancel,
        Self::Goodbye,
    ];

    /// Returns whether it answers a datagram, and so names the session that it answers.
    pub const fn is_answer(self) -> bool {
        matches!(
            self,
            Self::Stop | Self::Progress | Self::Busy | Self::Pong | Self::Challenge
        )
    }

    /// Returns whether a plain datagram of it ends with a [`check`](super::check). Symbols do without:
    /// what is wrong with one is found when its message is complete, as what is wrong with the
    /// message as a whole.
    pub const fn is_checked(self) -> bool {
        !matches!(self, Self::Symbol)
    }
}

/// Why bytes are no datagram of this format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// Fewer bytes than a header has.
    #[error("a datagram of {0} bytes has no room for a header of {HEADER_BYTES}")]
    Truncated(usize),
    /// The version is not spoken here.
    #[error(
        "version {0} is not known, only {VERSION}; the sender may be of a later version, or in paper mode"
    )]
    Version(u8),
    /// There is no such kind.
    #[error("kind {0} is not known; the sender may be of a later version")]
    PacketKind(u8),
    /// There is no such form.
    #[error("form {0} is not known; the sender may be of a later version")]
    Form(u8),
    /// What stands between header and body is none of this form.
    #[error("what follows the header is no {0:?}")]
    Prefix(Form),
    /// The body is not as long as one of its kind.
    #[error("a body of {bytes} bytes is no {kind:?}")]
    Length {
        /// The kind that the header says.
        kind: PacketKind,
        /// How long it is.
        bytes: usize,
    },
    /// A code that has no meaning in a body of this kind.
    #[error("code {code} means nothing in a {kind:?}; the sender may be of a later version")]
    Code {
        /// The kind that the header says.
        kind: PacketKind,
        /// The byte that means nothing.
        code: u8,
    },
    /// An answer to somebody else, or to who was here before the last start.
    #[error("the answer is to session {0:#018x}, which is not this one")]
    OtherSession(u64),
}

impl Header {
    /// Reads the header at the beginning of a datagram.
    ///
    /// # Errors
    ///
    /// [`Malformed::Truncated`], [`Malformed::Version`], [`Malformed::PacketKind`] or
    /// [`Malformed::Form`].
    pub fn parse(datagram: &[u8]) -> Result<Self, Malformed> {
        let bytes: &[u8; HEADER_BYTES] = datagram
            .first_chunk()
            .ok_or(Malformed::Truncated(datagram.len()))?;
        let (version, kind) = (bytes[0] >> 4, bytes[0] & 15);
        if version != VERSION {
            return Err(Malformed::Version(version));
        }
        let index = usize::from(kind).wrapping_sub(1);
        let kind = *PacketKind::ALL
            .get(index)
            .ok_or(Malformed::PacketKind(kind))?;
        let [_, form, p0, p1, t0, t1, t2, t3, numbers @ ..] = *bytes;
        let known = Form::ALL.get(usize::from(form));
        let form = *known.ok_or(Malformed::Form(form))?;
        let numbers = u128::from_be_bytes(numbers);
        Ok(Self {
            kind,
            form,
            path: u16::from_be_bytes([p0, p1]),
            sent_us: u32::from_be_bytes([t0, t1, t2, t3]),
            session: (numbers >> 64) as u64,
            sequence: numbers as u64,
        })
    }

    /// Returns the header's bytes.
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = VERSION << 4 | self.kind as u8;
        bytes[1] = self.form as u8;
        bytes[2..4].copy_from_slice(&self.path.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.sent_us.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.session.to_be_bytes());
        bytes[16..].copy_from_slice(&self.sequence.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn headers_come_back(
            kind in proptest::sample::select(&PacketKind::ALL[..]),
            form in proptest::sample::select(&Form::ALL[..]),
            path: u16, sent_us: u32, session: u64, sequence: u64,
        ) {
            let header = Header { kind, form, path, sent_us, session, sequence };
            prop_assert_eq!(Header::parse(&header.to_bytes()), Ok(header));
        }

        #[test]
        fn whatever_parses_is_written_alike(first in 0x30u8..0x40, mut bytes: [u8; HEADER_BYTES]) {
            bytes[0] = first;
            if let Ok(header) = Header::parse(&bytes) {
                prop_assert_eq!(header.to_bytes(), bytes);
            }
        }
    }

    #[test]
    fn what_is_not_known_is_refused() {
        assert_eq!(Header::parse(&[0x31; 23]), Err(Malformed::Truncated(23)));
        assert_eq!(Header::parse(&[0x21; 24]), Err(Malformed::Version(2)));
        assert_eq!(Header::parse(&[0x30; 24]), Err(Malformed::PacketKind(0)));
        assert_eq!(Header::parse(&[0x3c; 24]), Err(Malformed::PacketKind(12)));
        assert_eq!(Header::parse(&[0x31; 24]), Err(Malformed::Form(0x31)));
    }
}
