//! Reading a recording, one flow after the other.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use super::input::Input;
use super::{FlowRecord, Header, MAGIC, MAX_HEADER_BYTES, ReadError, VERSION};

/// Reads the flows of a recording in the order of their starts, in memory that does not grow with it.
///
/// It ends after the last flow, or after the first error. That a file is whole is known when all of it
/// was read.
#[derive(Debug)]
pub struct Reader<R> {
    input: Input<R>,
    header: Header,
    read: u64,
    last_us: u64,
    has_ended: bool,
}

impl Reader<BufReader<File>> {
    /// Opens a file that holds a recording.
    ///
    /// # Errors
    /// When it cannot be read, or does not begin as a recording does.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        Self::new(BufReader::with_capacity(1 << 16, File::open(path)?))
    }
}

impl<R: Read> Reader<R> {
    /// Reads from a source, which should be buffered.
    ///
    /// # Errors
    /// When it does not begin as a recording does.
    pub fn new(source: R) -> Result<Self, ReadError> {
        let mut input = Input::new(source);
        let mut magic = [0; MAGIC.len()];
        let begins = input.fill(0, &mut magic);
        match begins {
            // What is shorter is none either.
            Err(ReadError::Truncated { .. }) => return Err(ReadError::NotARecording),
            Err(error) => return Err(error),
            Ok(()) if magic != MAGIC => return Err(ReadError::NotARecording),
            Ok(()) => {}
        }
        let mut version = [0; 2];
        input.fill(0, &mut version)?;
        let found = u16::from_le_bytes(version);
        if found != VERSION {
            return Err(ReadError::Version { found });
        }
        let mut length = [0; 4];
        input.fill(0, &mut length)?;
        let bytes = u32::from_le_bytes(length);
        if bytes > MAX_HEADER_BYTES {
            return Err(ReadError::HeaderTooLong { bytes });
        }
        let mut text = vec![0; bytes as usize];
        input.fill(0, &mut text)?;
        let header: Header = serde_json::from_slice(&text)?;
        if let Some(problem) = header.problem() {
            return Err(ReadError::HeaderNumber { problem });
        }
        Ok(Self {
            input,
            header,
            read: 0,
            last_us: 0,
            has_ended: false,
        })
    }

    /// Returns what holds for all of it.
    pub fn header(&self) -> &Header {
        &self.header
    }

    fn read(&mut self) -> Result<Option<FlowRecord>, ReadError> {
        if self.read == self.header.flows {
            self.has_ended = true;
            return self.input.finish(self.read).map(|()| None);
        }
        let flow = FlowRecord::decode(self.last_us, self.read, &mut self.input)?;
        self.last_us = flow.start_us;
        self.read += 1;
        Ok(Some(flow))
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<FlowRecord, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let read = self.read();
        self.has_ended |= read.is_err();
        read.transpose()
    }
}
