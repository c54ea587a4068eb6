//! Encrypting and authenticating datagrams in place: ChaCha20-Poly1305 (RFC 8439).

use std::fmt;

use chacha20poly1305::{AeadInOut, ChaCha20Poly1305, KeyInit, Nonce, Tag};

use super::{
    field::{NoRoom, Written},
    header::{HEADER_BYTES, Header},
    keyring::SECRET_BYTES,
    size::TAG_BYTES,
};

/// What differs from one datagram of a session to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Our id of the route.
    pub path: u16,
    /// Our clock, µs modulo 2^32.
    pub sent_us: u32,
    /// Of this path in this session, from 0. Never the same twice, under any
    /// key: with one key that would give away what both datagrams say, and
    /// would let others forge more.
    pub sequence: u64,
}

/// Seals the datagrams of our session, or leaves them plain without a key.
pub struct Sealer {
    key_id: u8,
    session: u64,
    cipher: Option<Cipher>,
}

/// Opens the datagrams of a peer's session that name one key, or that name none.
pub struct Opener {
    key_id: u8,
    session: u64,
    cipher: Option<Cipher>,
}

/// Why a datagram is not opened. It is unchanged then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Plain, and we have keys.
    #[error("the datagram is not sealed, and there are keys here: give the sender one of them")]
    Unsealed,
    /// Sealed, and we have no keys.
    #[error("the datagram is sealed with key {0}, and there are no keys here")]
    Sealed(u8),
    /// Sealed with a key that we do not have.
    #[error("the datagram is sealed with key {0}, which is not among those here")]
    UnknownKey(u8),
    /// The header is of another session, or names another key, than this opener is for.
    #[error("the datagram is of another session or key than is to be opened")]
    OtherSession,
    /// No room for a header and a tag.
    #[error("a sealed datagram of {0} bytes has no room for header and tag")]
    Truncated(usize),
    /// The tag does not fit: changed on the way, forged, or sealed with another
    /// secret of the same number.
    #[error("the datagram was not sealed with key {0} as we have it, or was changed on the way")]
    Forged(u8),
}

impl Sealer {
    pub(super) fn new(key_id: u8, session: u64, cipher: Option<Cipher>) -> Self {
        Self {
            key_id,
            session,
            cipher,
        }
    }

    /// The session that it seals for.
    pub const fn session(&self) -> u64 {
        self.session
    }

    /// The key that it seals with; 0: none.
    pub const fn key_id(&self) -> u8 {
        self.key_id
    }

    /// Whether it seals, and so makes datagrams longer by [`TAG_BYTES`].
    pub const fn is_sealing(&self) -> bool {
        self.cipher.is_some()
    }

    /// Writes a datagram to the beginning of `out`: the header, what `body`
    /// writes to the room that it is given, and the tag. Returns its length,
    /// which is never above that of `out`: for an answer, pass no more than the
    /// length of what it answers.
    ///
    /// # Errors
    ///
    /// If there is no room, or what `body` returns. What is in `out` is undefined then.
    pub fn write<E: From<NoRoom>>(
        &self,
        stamp: Stamp,
        out: &mut [u8],
        body: impl FnOnce(&mut [u8]) -> Result<Written, E>,
    ) -> Result<usize, E> {
        let tag_bytes = if self.is_sealing() { TAG_BYTES } else { 0 };
        let no_room = NoRoom {
            needed: HEADER_BYTES + tag_bytes,
            room: out.len(),
        };
        let room = out.len().checked_sub(tag_bytes).ok_or(no_room)?;
        let (start, rest) = out.split_first_chunk_mut::<HEADER_BYTES>().ok_or(no_room)?;
        let body_room = room.checked_sub(HEADER_BYTES).ok_or(no_room)?;
        let written = body(&mut rest[..body_room])?;
        let header = Header {
            kind: written.kind(),
            key_id: self.key_id,
            path: stamp.path,
            sent_us: stamp.sent_us,
            session: self.session,
            sequence: stamp.sequence,
        };
        *start = header.to_bytes();
        if let Some(cipher) = &self.cipher {
            let (plain, rest) = rest.split_at_mut(written.bytes());
            rest[..TAG_BYTES].copy_from_slice(&cipher.seal(&header, start, plain));
        }
        Ok(HEADER_BYTES + written.bytes() + tag_bytes)
    }
}

impl Opener {
    pub(super) fn new(key_id: u8, session: u64, cipher: Option<Cipher>) -> Self {
        Self {
            key_id,
            session,
            cipher,
        }
    }

    /// The session whose datagrams it opens.
    pub const fn session(&self) -> u64 {
        self.session
    }

    /// The key of the datagrams that it opens; 0: none.
    pub const fn key_id(&self) -> u8 {
        self.key_id
    }

    /// Opens the datagram that `header` was read from, in place, and returns its body.
    ///
    /// Without a key everything opens. With one, only what a holder of the key
    /// has sealed does, but it may be a copy: ask the
    /// [`ReplayWindow`](super::ReplayWindow).
    ///
    /// # Errors
    ///
    /// [`OpenError::OtherSession`], [`OpenError::Truncated`] or
    /// [`OpenError::Forged`]; the datagram is unchanged then.
    pub fn open<'d>(&self, header: &Header, datagram: &'d mut [u8]) -> Result<&'d [u8], OpenError> {
        if (header.key_id, header.session) != (self.key_id, self.session) {
            return Err(OpenError::OtherSession);
        }
        let truncated = OpenError::Truncated(datagram.len());
        let (start, rest) = datagram
            .split_first_chunk_mut::<HEADER_BYTES>()
            .ok_or(truncated)?;
        let Some(cipher) = &self.cipher else {
            return Ok(rest);
        };
        let (body, tag) = rest.split_last_chunk_mut().ok_or(truncated)?;
        if cipher.open(header, start, body, tag) {
            Ok(body)
        } else {
            Err(OpenError::Forged(self.key_id))
        }
    }
}

/// The cipher of a session, with its key.
pub(super) struct Cipher(ChaCha20Poly1305);

impl Cipher {
    pub(super) fn new(key: &[u8; SECRET_BYTES]) -> Self {
        Self(ChaCha20Poly1305::new(key.into()))
    }

    fn seal(&self, header: &Header, associated: &[u8], body: &mut [u8]) -> [u8; TAG_BYTES] {
        let sealed = self
            .0
            .encrypt_inout_detached(&nonce(header), associated, (&mut *body).into());
        match sealed {
            Ok(tag) => tag.into(),
            // Only of bodies beyond 256 GiB (RFC 8439 §2.8): say nothing rather than all.
            Err(_) => {
                body.fill(0);
                [0; TAG_BYTES]
            }
        }
    }

    /// Whether the tag fits; `body` is decrypted then.
    fn open(
        &self,
        header: &Header,
        associated: &[u8],
        body: &mut [u8],
        tag: &[u8; TAG_BYTES],
    ) -> bool {
        self.0
            .decrypt_inout_detached(&nonce(header), associated, body.into(), &Tag::from(*tag))
            .is_ok()
    }
}

/// Different for every datagram of a session: path id, two zeros, sequence number.
fn nonce(header: &Header) -> Nonce {
    let mut nonce = [0; 12];
    nonce[..2].copy_from_slice(&header.path.to_be_bytes());
    nonce[4..].copy_from_slice(&header.sequence.to_be_bytes());
    nonce.into()
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Sealer(key {}, session {:#018x})",
            self.key_id, self.session
        )
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Opener(key {}, session {:#018x})",
            self.key_id, self.session
        )
    }
}
