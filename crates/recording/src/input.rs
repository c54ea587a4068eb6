//! Bytes as they come in, with their checksum.

use std::io::{self, ErrorKind, Read};

use super::ReadError;

/// Reads bytes and keeps the checksum of all it has handed out.
#[derive(Debug)]
pub(crate) struct Input<R> {
    source: R,
    /// Handed out, and not yet part of the checksum.
    pending: Vec<u8>,
    checksum: crc32fast::Hasher,
}

/// Bytes are hashed by so many at a time.
const HASHED_BYTES: usize = 4_096;

impl<R: Read> Input<R> {
    /// Reads from a source, which should be buffered.
    pub(crate) fn new(source: R) -> Self {
        Self {
            source,
            pending: Vec::with_capacity(HASHED_BYTES),
            checksum: crc32fast::Hasher::new(),
        }
    }

    /// Fills `to`; a source that ends is [`ReadError::Truncated`] after `flows` flows.
    pub(crate) fn fill(&mut self, flows: u64, to: &mut [u8]) -> Result<(), ReadError> {
        self.source
            .read_exact(to)
            .map_err(|error| ended(error, flows))?;
        self.pending.extend_from_slice(to);
        if self.pending.len() >= HASHED_BYTES {
            self.hash();
        }
        Ok(())
    }

    pub(crate) fn byte(&mut self, flow: u64) -> Result<u8, ReadError> {
        let mut byte = [0];
        self.fill(flow, &mut byte)?;
        Ok(byte[0])
    }

    /// Reads a number of variable length; one that does not fit into 64 bits, or takes more bytes than it
    /// needs, is none.
    pub(crate) fn number(&mut self, flow: u64) -> Result<u64, ReadError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte(flow)?;
            let bits = u64::from(byte & 0x7f);
            let is_wrong = (bits << shift) >> shift != bits || (byte == 0 && shift > 0);
            if is_wrong {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        let problem = "a number that is malformed";
        Err(ReadError::Flow { flow, problem })
    }

    /// Checks that the checksum of all so far follows, and nothing else.
    pub(crate) fn finish(&mut self, flows: u64) -> Result<(), ReadError> {
        self.hash();
        let expected = self.checksum.clone().finalize();
        let mut stated = [0; 4];
        self.source
            .read_exact(&mut stated)
            .map_err(|error| ended(error, flows))?;
        if u32::from_le_bytes(stated) != expected {
            return Err(ReadError::Checksum);
        }
        match self.source.read_exact(&mut [0]) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(()),
            Err(error) => Err(error.into()),
            Ok(()) => Err(ReadError::Trailing),
        }
    }

    fn hash(&mut self) {
        self.checksum.update(&self.pending);
        self.pending.clear();
    }
}

fn ended(error: io::Error, flows: u64) -> ReadError {
    match error.kind() {
        ErrorKind::UnexpectedEof => ReadError::Truncated { flows },
        _ => error.into(),
    }
}
