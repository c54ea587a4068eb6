//! Fields in network byte order, read and written without ever going beyond the end.

use super::{
    header::{Malformed, PacketKind},
    report::Reports,
};

/// A body that has been written: which, and how long.
///
/// Only writing one makes it, so that a datagram's header never tells another
/// kind than its body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    kind: PacketKind,
    bytes: usize,
}

impl Written {
    /// Returns the kind of what was written.
    pub const fn kind(self) -> PacketKind {
        self.kind
    }

    /// How long it is.
    pub const fn bytes(self) -> usize {
        self.bytes
    }
}

/// The memory is too small for what is to be written there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{needed} bytes are to be written where {available} are left")]
pub struct BufferTooShort {
    /// How many bytes it takes at least.
    pub needed: usize,
    /// How many there are.
    pub available: usize,
}

/// What is left to read of a body.
pub(super) struct Reader<'d> {
    kind: PacketKind,
    bytes: usize,
    rest: &'d [u8],
}

impl<'d> Reader<'d> {
    pub(super) fn new(kind: PacketKind, body: &'d [u8]) -> Self {
        Self {
            kind,
            bytes: body.len(),
            rest: body,
        }
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (first, rest) = self.rest.split_first_chunk().ok_or(self.bad_length())?;
        self.rest = rest;
        Ok(*first)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(u8::from_be_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_be_bytes)
    }

    pub(super) fn bad_code(&self, code: u8) -> Malformed {
        let kind = self.kind;
        Malformed::Code { kind, code }
    }

    /// All that is left.
    pub(super) fn rest(&self) -> &'d [u8] {
        self.rest
    }

    /// Nothing but whole reports.
    pub(super) fn reports(&self) -> Result<Reports<'d>, Malformed> {
        Reports::of(self.rest).ok_or(self.bad_length())
    }

    pub(super) fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(self.bad_length())
        }
    }

    pub(super) fn at_least(&self, bytes: usize) -> Result<(), Malformed> {
        if self.bytes >= bytes {
            Ok(())
        } else {
            Err(self.bad_length())
        }
    }

    fn bad_length(&self) -> Malformed {
        let (kind, bytes) = (self.kind, self.bytes);
        Malformed::Length { kind, bytes }
    }
}

/// A body in the making.
pub(super) struct Writer<'o> {
    kind: PacketKind,
    out: &'o mut [u8],
    bytes: usize,
}

impl<'o> Writer<'o> {
    /// # Errors
    ///
    /// If there is no capacity for `least` bytes; nothing is written then.
    pub(super) fn new(
        kind: PacketKind,
        out: &'o mut [u8],
        least: usize,
    ) -> Result<Self, BufferTooShort> {
        let available = out.len();
        if available < least {
            return Err(BufferTooShort {
                needed: least,
                available,
            });
        }
        let bytes = 0;
        Ok(Self { kind, out, bytes })
    }

    pub(super) fn available(&self) -> usize {
        self.out.len().saturating_sub(self.bytes)
    }

    /// Writes a field. The caller has asked for capacity: what goes beyond it is
    /// left out rather than written elsewhere.
    pub(super) fn put(&mut self, field: &[u8]) {
        let end = self.bytes.saturating_add(field.len());
        debug_assert!(end <= self.out.len(), "a body's least length is too small");
        if let Some(place) = self.out.get_mut(self.bytes..end) {
            place.copy_from_slice(field);
            self.bytes = end;
        }
    }

    /// Zeros to the end of the capacity.
    pub(super) fn fill(&mut self) {
        self.out[self.bytes..].fill(0);
        self.bytes = self.out.len();
    }

    /// The next so many bytes, or those there are, for somebody else to write.
    pub(super) fn take(&mut self, bytes: usize) -> &mut [u8] {
        let start = self.bytes;
        self.bytes = self.out.len().min(start.saturating_add(bytes));
        &mut self.out[start..self.bytes]
    }

    pub(super) fn finish(self) -> Written {
        Written {
            kind: self.kind,
            bytes: self.bytes,
        }
    }
}
