//! What became of a piece of a file.
//!
//! ```text
//!  0       4   5
//! +-------+---+---------------------------------+
//! | CBA1  | 0 |                                 |    taken
//! | CBA1  | 1 | bytes, 8 | BLAKE3 of the file   |    stored
//! | CBA1  | 2 | why, as text                    |    refused
//! +-------+---+---------------------------------+
//! ```

use super::without_controls;

const MAGIC: &[u8; 4] = b"CBA1";
const TAKEN: u8 = 0;
const STORED: u8 = 1;
const REFUSED: u8 = 2;

/// What a receiver of files answers to each [`Chunk`](super::Chunk).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The piece is written; others are missing.
    Taken,
    /// The file is complete and has its name.
    Stored { bytes: u64, blake3: blake3::Hash },
    /// The file will not be stored.
    Refused(String),
}

/// What arrived is no answer: whoever sent it stores no files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the peer answers, but does not say that it stores files; it must be `cloudburst recv` or `cloudburst serve --mode files`, of this version"
)]
pub(crate) struct NotAnAnswer;

impl Answer {
    pub(crate) fn to_message(&self) -> Vec<u8> {
        let mut message = MAGIC.to_vec();
        match self {
            Self::Taken => message.push(TAKEN),
            Self::Stored { bytes, blake3 } => {
                message.push(STORED);
                message.extend_from_slice(&bytes.to_be_bytes());
                message.extend_from_slice(blake3.as_bytes());
            }
            Self::Refused(why) => {
                message.push(REFUSED);
                message.extend_from_slice(why.as_bytes());
            }
        }
        message
    }

    pub(crate) fn parse(message: &[u8]) -> Result<Self, NotAnAnswer> {
        let rest = message.strip_prefix(MAGIC).ok_or(NotAnAnswer)?;
        match rest.split_first().ok_or(NotAnAnswer)? {
            (&TAKEN, []) => Ok(Self::Taken),
            (&STORED, stored) => {
                let (bytes, hash) = stored.split_first_chunk().ok_or(NotAnAnswer)?;
                Ok(Self::Stored {
                    bytes: u64::from_be_bytes(*bytes),
                    blake3: blake3::Hash::from_slice(hash).map_err(|_| NotAnAnswer)?,
                })
            }
            (&REFUSED, why) => {
                let why = String::from_utf8_lossy(why);
                Ok(Self::Refused(without_controls(&why)))
            }
            _ => Err(NotAnAnswer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_as_they_were_written() {
        let stored = Answer::Stored {
            bytes: 5,
            blake3: blake3::hash(b"abcde"),
        };
        for answer in [Answer::Taken, stored, Answer::Refused("disk full".into())] {
            assert_eq!(Answer::parse(&answer.to_message()), Ok(answer));
        }
    }

    #[test]
    fn an_echo_is_no_answer() {
        let echoed = super::super::tests::CHUNK.to_message();
        for message in [&echoed[..], b"", b"CBA1", b"CBA1\x01short", b"CBA1\x07"] {
            assert_eq!(Answer::parse(message), Err(NotAnAnswer));
        }
    }
}
