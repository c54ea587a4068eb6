//! Files as messages: what `send` writes and `recv` and `serve --mode files` read.
//!
//! ```text
//!  0       4          12       20      28         29     29 + n
//! +-------+----------+--------+-------+----------+------+------+
//! | CBF1  | transfer | offset | total | n (name) | name | data |
//! +-------+----------+--------+-------+----------+------+------+
//! ```
//!
//! Each message says where its data belong, so that they may arrive in any order, and is a
//! request: its [`Answer`] says what became of the data.

mod answer;
mod files;
mod progress;
mod stream;

use std::path::PathBuf;

use serde::{Serialize, Serializer};

use self::files::MAX_OPEN;
pub(crate) use self::{
    answer::Answer,
    files::{Files, IDLE_AT_MOST},
    stream::Stream,
};
use crate::values::MAX_MESSAGE_BYTES;

const MAGIC: &[u8; 4] = b"CBF1";
/// Bytes in front of the name.
const HEADER_BYTES: usize = 29;
/// Longest name, which its length of one byte can state.
const MAX_NAME_BYTES: usize = 255;
/// Most data that a message has capacity for next to header and name.
pub(crate) const MAX_DATA_BYTES: usize = MAX_MESSAGE_BYTES - HEADER_BYTES - MAX_NAME_BYTES;
/// The total of a transfer whose end has not been seen yet.
const UNKNOWN: u64 = u64::MAX;

/// A piece of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk<'a> {
    pub(crate) transfer: u64,
    pub(crate) offset: u64,
    pub(crate) total: Option<u64>,
    pub(crate) name: &'a str,
    pub(crate) data: &'a [u8],
}

/// A file that has arrived.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Arrived {
    pub(crate) file: PathBuf,
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
    #[serde(serialize_with = "as_hex")]
    pub(crate) blake3: blake3::Hash,
}

fn as_hex<S: Serializer>(hash: &blake3::Hash, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&hash.to_hex())
}

/// What arrived is no piece of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message is not from `cloudburst send`, or damaged")]
pub(crate) struct NotAChunk;

/// A piece of a file that is not wanted, which is no reason to end what others send.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotTaken {
    #[error("{MAX_OPEN} files are incomplete already; `{0}` is not taken")]
    TooManyFiles(String),
    #[error("another file comes already; `{0}` is not taken")]
    OneFileOnly(String),
    /// The first piece that could not be stored was reported so.
    #[error("{0}")]
    Failed(String),
}

impl<'a> Chunk<'a> {
    pub(crate) fn to_message(self) -> Vec<u8> {
        let mut ends = (0..=self.name.len().min(MAX_NAME_BYTES)).rev();
        let end = ends.find(|&end| self.name.is_char_boundary(end));
        let name = &self.name.as_bytes()[..end.unwrap_or(0)];
        let mut message = Vec::with_capacity(HEADER_BYTES + name.len() + self.data.len());
        message.extend_from_slice(MAGIC);
        message.extend_from_slice(&self.transfer.to_be_bytes());
        message.extend_from_slice(&self.offset.to_be_bytes());
        message.extend_from_slice(&self.total.unwrap_or(UNKNOWN).to_be_bytes());
        message.push(name.len() as u8);
        message.extend_from_slice(name);
        message.extend_from_slice(self.data);
        message
    }

    pub(crate) fn parse(message: &'a [u8]) -> Result<Self, NotAChunk> {
        let mut rest = message.strip_prefix(MAGIC).ok_or(NotAChunk)?;
        let mut number = || {
            let (number, after) = rest.split_first_chunk().ok_or(NotAChunk)?;
            rest = after;
            Ok(u64::from_be_bytes(*number))
        };
        let (transfer, offset, total) = (number()?, number()?, number()?);
        let (&name_bytes, rest) = rest.split_first().ok_or(NotAChunk)?;
        let (name, data) = rest
            .split_at_checked(usize::from(name_bytes))
            .ok_or(NotAChunk)?;
        let total = (total != UNKNOWN).then_some(total);
        let end = offset.checked_add(data.len() as u64).ok_or(NotAChunk)?;
        if total.is_some_and(|total| end > total) {
            return Err(NotAChunk);
        }
        Ok(Self {
            transfer,
            offset,
            total,
            name: std::str::from_utf8(name).map_err(|_| NotAChunk)?,
            data,
        })
    }
}

/// A name that stays in its directory, is not hidden, and does nothing to a terminal.
fn harmless(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let name = without_controls(last.trim_start_matches('.')).replace(':', "_");
    if name.is_empty() {
        "unnamed".to_owned()
    } else {
        name
    }
}

/// Text of others that does nothing to a terminal.
fn without_controls(text: &str) -> String {
    let shown = |it: char| if it.is_control() { '_' } else { it };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const CHUNK: Chunk<'_> = Chunk {
        transfer: 7,
        offset: 3,
        total: Some(6),
        name: "name",
        data: b"abc",
    };

    pub(super) fn somebody() -> cloudburst::PeerId {
        use cloudburst_proto::{FourTuple, SocketId, Time, Transport, TransportConfig};
        let four_tuple = FourTuple::new(SocketId(0), ([127, 0, 0, 1], 9).into());
        let mut endpoint =
            Transport::deterministic(TransportConfig::unprotected(), [0; 32], Time::ZERO).unwrap();
        endpoint.connect(Time::ZERO, &[four_tuple], None).unwrap()
    }

    #[test]
    fn chunks_are_read_as_they_were_written() {
        let message = CHUNK.to_message();
        assert_eq!(Chunk::parse(&message), Ok(CHUNK));
        let open = Chunk {
            total: None,
            data: b"",
            ..CHUNK
        };
        assert_eq!(Chunk::parse(&open.to_message()), Ok(open));
        for end in 0..HEADER_BYTES + 4 {
            assert_eq!(Chunk::parse(&message[..end]), Err(NotAChunk), "{end}");
        }
    }

    #[test]
    fn chunks_that_contradict_themselves_are_refused() {
        let beyond = Chunk { offset: 4, ..CHUNK };
        assert_eq!(Chunk::parse(&beyond.to_message()), Err(NotAChunk));
        let beyond = Chunk {
            offset: u64::MAX,
            total: None,
            ..CHUNK
        };
        assert_eq!(Chunk::parse(&beyond.to_message()), Err(NotAChunk));
    }

    #[test]
    fn names_stay_in_their_directory() {
        for (name, expected) in [
            ("a.txt", "a.txt"),
            ("../../etc/passwd", "passwd"),
            ("c:\\x\\y", "y"),
            ("..", "unnamed"),
            (".bashrc", "bashrc"),
            ("a\u{1b}[2J", "a_[2J"),
            ("", "unnamed"),
        ] {
            assert_eq!(harmless(name), expected);
        }
    }
}
