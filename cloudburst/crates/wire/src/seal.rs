//! Encrypting and authenticating datagrams in place: ChaCha20-Poly1305 (RFC 8439). Without a key
//! a check finds accidents.

use std::fmt;

use chacha20poly1305::{AeadInOut, ChaCha20Poly1305, KeyInit, Nonce, Tag};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    field::{BufferTooShort, Written},
    header::{HEADER_BYTES, Header, PacketKind},
    keyring::SECRET_BYTES,
    size::{CHECK_BYTES, TAG_BYTES},
};

/// Stamp that differs from one datagram of a session to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Our id of the path.
    pub path: u16,
    /// Our clock, µs modulo 2^32.
    pub sent_us: u32,
    /// Number on this path in this session, from 0. Never the same twice, under any
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
    /// No capacity for a header and a tag, or a check.
    #[error("a datagram of {0} bytes has no room for header and tag, or check")]
    Truncated(usize),
    /// Plain, and the check does not fit: changed on the way.
    #[error("the datagram was changed on the way: its check does not fit")]
    Damaged,
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

    /// Returns whether it seals, and so makes datagrams longer by [`TAG_BYTES`].
    pub const fn is_sealing(&self) -> bool {
        self.cipher.is_some()
    }

    /// Writes a datagram to the beginning of `out`: the header, what `body`
    /// writes to the capacity that it is given, and the tag or the check. Returns its length,
    /// which is never above that of `out`: for an answer, pass no more than the
    /// length of what it answers.
    ///
    /// # Errors
    ///
    /// If there is no capacity, or what `body` returns. What is in `out` is undefined then.
    pub fn write<E: From<BufferTooShort>>(
        &self,
        stamp: Stamp,
        out: &mut [u8],
        body: impl FnOnce(&mut [u8]) -> Result<Written, E>,
    ) -> Result<usize, E> {
        self.write_before(self.trailer_bytes(None), stamp, out, body)
    }

    /// Writes a datagram with a [`Symbol`](super::Symbol), which needs no check.
    ///
    /// # Errors
    ///
    /// As above; also if `body` writes something else and there is no capacity for its check.
    pub fn write_symbol<E: From<BufferTooShort>>(
        &self,
        stamp: Stamp,
        out: &mut [u8],
        body: impl FnOnce(&mut [u8]) -> Result<Written, E>,
    ) -> Result<usize, E> {
        self.write_before(
            self.trailer_bytes(Some(PacketKind::Symbol)),
            stamp,
            out,
            body,
        )
    }

    /// How much follows a body of this kind, or of any.
    fn trailer_bytes(&self, kind: Option<PacketKind>) -> usize {
        match (self.is_sealing(), kind) {
            (true, _) => TAG_BYTES,
            (false, Some(kind)) if !kind.is_checked() => 0,
            (false, _) => CHECK_BYTES,
        }
    }

    fn write_before<E: From<BufferTooShort>>(
        &self,
        reserved: usize,
        stamp: Stamp,
        out: &mut [u8],
        body: impl FnOnce(&mut [u8]) -> Result<Written, E>,
    ) -> Result<usize, E> {
        let no_room = BufferTooShort {
            needed: HEADER_BYTES + reserved,
            available: out.len(),
        };
        let available = out.len().checked_sub(reserved).ok_or(no_room)?;
        let body_room = out.get_mut(HEADER_BYTES..available).ok_or(no_room)?;
        let written = body(body_room)?;
        let header = Header {
            kind: written.kind(),
            key_id: self.key_id,
            path: stamp.path,
            sent_us: stamp.sent_us,
            session: self.session,
            sequence: stamp.sequence,
        };
        out[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
        let trailer_bytes = self.trailer_bytes(Some(written.kind()));
        let end = HEADER_BYTES + written.bytes();
        if out.len() < end + trailer_bytes {
            return Err(no_room.into());
        }
        let (datagram, trailer) = out.split_at_mut(end);
        match &self.cipher {
            Some(cipher) => {
                let (start, plain) = datagram.split_at_mut(HEADER_BYTES);
                trailer[..TAG_BYTES].copy_from_slice(&cipher.seal(&header, start, plain));
            }
            None if trailer_bytes > 0 => trailer[..CHECK_BYTES].copy_from_slice(&check(datagram)),
            None => {}
        }
        Ok(end + trailer_bytes)
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
    /// Without a key every symbol opens, and everything else whose check fits: what anybody
    /// can write. With one, only what a holder of the key has sealed does, but it may be a copy: ask the
    /// [`ReplayWindow`](super::ReplayWindow).
    ///
    /// # Errors
    ///
    /// [`OpenError::OtherSession`], [`OpenError::Truncated`], [`OpenError::Damaged`] or
    /// [`OpenError::Forged`]; the datagram is unchanged then.
    pub fn open<'d>(&self, header: &Header, datagram: &'d mut [u8]) -> Result<&'d [u8], OpenError> {
        if (header.key_id, header.session) != (self.key_id, self.session) {
            return Err(OpenError::OtherSession);
        }
        let truncated = OpenError::Truncated(datagram.len());
        let Some(cipher) = &self.cipher else {
            return without_check(header.kind, datagram).ok_or(truncated)?;
        };
        let (start, rest) = datagram
            .split_first_chunk_mut::<HEADER_BYTES>()
            .ok_or(truncated)?;
        let (body, tag) = rest.split_last_chunk_mut().ok_or(truncated)?;
        if cipher.open(header, start, body, tag) {
            Ok(body)
        } else {
            Err(OpenError::Forged(self.key_id))
        }
    }
}

/// Computes what follows a plain datagram that is no symbol: XXH3-64 over header and body. It finds
/// accidents that UDP's checksum lets pass, and stops nobody who means harm.
pub fn check(datagram: &[u8]) -> [u8; CHECK_BYTES] {
    xxh3_64(datagram).to_be_bytes()
}

/// The body of a plain datagram, or nothing if it is too short for one.
fn without_check(kind: PacketKind, datagram: &[u8]) -> Option<Result<&[u8], OpenError>> {
    if !kind.is_checked() {
        return Some(Ok(datagram.get(HEADER_BYTES..)?));
    }
    let (checked, stated) = datagram.split_last_chunk()?;
    let body = checked.get(HEADER_BYTES..)?;
    let is_whole = check(checked) == *stated;
    Some(is_whole.then_some(body).ok_or(OpenError::Damaged))
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
