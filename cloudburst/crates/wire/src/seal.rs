//! Encrypting and authenticating datagrams in place: ChaCha20-Poly1305 (RFC 8439). Without a key
//! a check finds accidents.

use std::fmt;

use xxhash_rust::xxh3::xxh3_64;

use super::{
    cipher::{Cipher, NONCE_BYTES},
    field::{BufferTooShort, Written},
    header::{Form, HEADER_BYTES, Header, PacketKind},
    size::{CHECK_BYTES, Framing, TAG_BYTES},
};

/// Bytes of a key that datagrams are sealed with.
pub const KEY_BYTES: usize = 32;

/// Stamp that differs from one datagram of a session to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Our id of the path.
    pub path: u16,
    /// Our clock, µs modulo 2^32.
    pub sent_us: u32,
    /// Number on this path under this session number, from 0. Never the same twice, under any
    /// key: with one key that would give away what both datagrams say, and
    /// would let others forge more.
    pub sequence: u64,
}

/// Seals the datagrams to a peer, or leaves them plain without a key.
pub struct Sealer {
    form: Form,
    session: u64,
    /// Stands between header and body.
    prefix: Box<[u8]>,
    cipher: Option<Cipher>,
}

/// Opens the datagrams of a peer.
pub struct Opener {
    cipher: Option<Cipher>,
}

/// Why a datagram is not opened. It is unchanged then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No capacity for a header and a tag, or a check.
    #[error("a datagram of {0} bytes has no room for header and tag, or check")]
    Truncated(usize),
    /// Plain, and the check does not fit: changed on the way.
    #[error("the datagram was changed on the way: its check does not fit")]
    Damaged,
    /// The tag does not fit: changed on the way, forged, carried from elsewhere, or sealed with
    /// another key.
    #[error("the datagram was not sealed with the key as we have it, or was changed on the way")]
    Forged,
}

impl Sealer {
    /// Leaves datagrams of our session plain.
    pub fn plain(session: u64) -> Self {
        Self {
            form: Form::Plain,
            session,
            prefix: Box::default(),
            cipher: None,
        }
    }

    /// Leaves plain what says to make the offer of this index again.
    pub fn retry(index: u64) -> Self {
        Self {
            form: Form::Retry,
            ..Self::plain(index)
        }
    }

    /// Seals datagrams that the receiver knows by `index`.
    pub fn sealed(index: u64, key: &[u8; KEY_BYTES]) -> Self {
        Self {
            form: Form::Data,
            session: index,
            prefix: Box::default(),
            cipher: Some(Cipher::new(key)),
        }
    }

    /// Puts this between header and body, which makes it a datagram of another form.
    pub fn with_prefix(self, form: Form, prefix: Box<[u8]>) -> Self {
        Self {
            form,
            prefix,
            ..self
        }
    }

    /// Leaves out what stood between header and body: the receiver is known to have it.
    pub fn drop_prefix(&mut self) {
        self.form = Form::Data;
        self.prefix = Box::default();
    }

    /// The session, or the receiver's index, that datagrams state.
    pub const fn session(&self) -> u64 {
        self.session
    }

    /// Returns what its datagrams have besides their bodies.
    pub fn framing(&self) -> Framing {
        match self.cipher {
            Some(_) => Framing::sealed(self.prefix.len() as u16),
            None => Framing::PLAIN,
        }
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
        let reserved = self.framing().trailer_bytes(true);
        self.write_before(reserved, stamp, out, body)
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
        let reserved = self
            .framing()
            .trailer_bytes(PacketKind::Symbol.is_checked());
        self.write_before(reserved, stamp, out, body)
    }

    fn write_before<E: From<BufferTooShort>>(
        &self,
        reserved: usize,
        stamp: Stamp,
        out: &mut [u8],
        body: impl FnOnce(&mut [u8]) -> Result<Written, E>,
    ) -> Result<usize, E> {
        let framing = self.framing();
        let start_bytes = framing.start_bytes();
        let no_room = BufferTooShort {
            needed: start_bytes.saturating_add(reserved),
            available: out.len(),
        };
        let available = out.len().checked_sub(reserved).ok_or(no_room)?;
        let body_room = out.get_mut(start_bytes..available).ok_or(no_room)?;
        let written = body(body_room)?;
        let header = Header {
            kind: written.kind(),
            form: self.form,
            path: stamp.path,
            sent_us: stamp.sent_us,
            session: self.session,
            sequence: stamp.sequence,
        };
        out[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
        out[HEADER_BYTES..start_bytes].copy_from_slice(&self.prefix);
        let trailer_bytes = framing.trailer_bytes(written.kind().is_checked());
        let end = start_bytes.saturating_add(written.bytes());
        let sealed_bytes = end.saturating_add(trailer_bytes);
        if out.len() < sealed_bytes {
            return Err(no_room.into());
        }
        let (datagram, trailer) = out.split_at_mut(end);
        match &self.cipher {
            Some(cipher) => {
                let (start, plain) = datagram.split_at_mut(start_bytes);
                trailer[..TAG_BYTES].copy_from_slice(&cipher.seal(nonce(&header), start, plain));
            }
            None if trailer_bytes > 0 => trailer[..CHECK_BYTES].copy_from_slice(&check(datagram)),
            None => {}
        }
        Ok(sealed_bytes)
    }
}

impl Opener {
    /// Opens datagrams that are plain.
    pub const fn plain() -> Self {
        Self { cipher: None }
    }

    /// Opens datagrams that were sealed with this key.
    pub fn sealed(key: &[u8; KEY_BYTES]) -> Self {
        Self {
            cipher: Some(Cipher::new(key)),
        }
    }

    /// Opens the datagram that `header` was read from, in place, and returns its body.
    ///
    /// Without a key every symbol opens, and everything else whose check fits: what anybody
    /// can write. With one, only what the other end of the association has sealed does, but it may
    /// be a copy: ask the [`ReplayWindow`](super::ReplayWindow).
    ///
    /// # Errors
    ///
    /// [`OpenError::Truncated`], [`OpenError::Damaged`] or [`OpenError::Forged`]; the datagram is
    /// unchanged then.
    pub fn open<'d>(&self, header: &Header, datagram: &'d mut [u8]) -> Result<&'d [u8], OpenError> {
        self.open_behind(0, header, datagram)
    }

    /// Opens a datagram like [`Self::open`] that has so many bytes between header and body.
    ///
    /// # Errors
    ///
    /// The same.
    pub fn open_behind<'d>(
        &self,
        prefix_bytes: usize,
        header: &Header,
        datagram: &'d mut [u8],
    ) -> Result<&'d [u8], OpenError> {
        let truncated = OpenError::Truncated(datagram.len());
        let Some(cipher) = &self.cipher else {
            return without_check(header.kind, datagram).ok_or(truncated)?;
        };
        let (start, rest) = datagram
            .split_at_mut_checked(HEADER_BYTES.saturating_add(prefix_bytes))
            .ok_or(truncated)?;
        let (body, tag) = rest.split_last_chunk_mut().ok_or(truncated)?;
        if cipher.open(nonce(header), start, body, tag) {
            Ok(body)
        } else {
            Err(OpenError::Forged)
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

/// Different for every datagram of a direction: path id, two zeros, sequence number. Paths have a
/// number space each, so that each has its replay window
/// (as in draft-ietf-quic-multipath §2.4).
fn nonce(header: &Header) -> [u8; NONCE_BYTES] {
    let mut nonce = [0; NONCE_BYTES];
    nonce[..2].copy_from_slice(&header.path.to_be_bytes());
    nonce[4..].copy_from_slice(&header.sequence.to_be_bytes());
    nonce
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealer({:?}, session {:#018x})", self.form, self.session)
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.cipher.is_some() {
            "Opener(sealed)"
        } else {
            "Opener(plain)"
        })
    }
}
