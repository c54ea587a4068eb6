//! Symbols of a message that leave together.

use core::ops::Range;

use cloudburst_code::Encoder;

use crate::{
    packet::{BufferTooShort, Symbol, Written},
    shared_message::SharedMessage,
};

/// Symbols for one path in a row, at most: a train that the kernel cuts (GSO) has
/// up to 64 datagrams, and other messages should not have to wait for long.
const MAX_TRAIN: usize = 16;

/// Symbols of a message that may be sent now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Burst {
    pub(crate) datagram_bytes: usize,
    pub(crate) remaining: u32,
    /// Those that were sent before.
    pub(crate) sent: u32,
    pub(super) most: u32,
}

impl Burst {
    /// How many go by a path whose share is this, into a buffer of so many bytes.
    pub(crate) fn train(&self, share: u32, buffer_bytes: usize) -> u32 {
        let fitting = buffer_bytes.checked_div(self.datagram_bytes);
        let fitting = fitting.unwrap_or(1).min(MAX_TRAIN) as u32;
        share.clamp(1, fitting).min(self.most)
    }
}

/// Writes the next symbols of a message.
pub(crate) struct Symbols<'m> {
    pub(super) encoder: Encoder<'m>,
    /// The message, if other peers are sent it, too.
    pub(super) shared: Option<&'m SharedMessage>,
    pub(super) code_bytes: usize,
    pub(super) message: u64,
    pub(crate) sequences: Range<u32>,
}

impl Symbols<'_> {
    pub(crate) fn write(&self, sequence: u32, body: &mut [u8]) -> Result<Written, BufferTooShort> {
        Symbol::write_with(self.message, body, self.code_bytes, |code| {
            let next = sequence.saturating_add(1);
            let written = match self.shared {
                None => self.encoder.write(sequence..next, code),
                Some(message) => message.write(&self.encoder, sequence, code),
            };
            written.map(drop).map_err(|_| BufferTooShort {
                needed: self.code_bytes,
                available: code.len(),
            })
        })
    }
}
