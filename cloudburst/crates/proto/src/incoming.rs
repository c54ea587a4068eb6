//! Messages of others, until they are complete.

use super::{
    envelope::{self, Envelope, EnvelopeError},
    event::MessageKind,
    time::Time,
};
use cloudburst_code::{
    Block, Decoder, Memory, Received, Refused, Shape, ShapeError,
    wire::{Header, HeaderError},
};

/// Memory of decoders that is kept for the next ones, in bytes.
const MAX_POOLED_BYTES: usize = 16 << 20;

/// A message that arrives.
#[derive(Debug)]
pub(super) struct Incoming {
    decoder: Decoder<Vec<u8>, Vec<Block>>,
    /// How often its sender has segmented it again.
    generation: u8,
    memory_bytes: usize,
    shape: Shape,
    taken: u32,
    /// Symbols that did not fit.
    bad: u32,
    first_at: Time,
    pub(super) last_at: Time,
}

/// What became of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    More,
    /// The message is complete.
    Complete,
    /// Nothing new.
    Redundant,
    /// It does not fit.
    Bad,
}

/// Length of a message and how it is cut, as a symbol's header tells.
pub(super) fn shape_of(code: &[u8]) -> Result<(Header, Shape), BadSymbol> {
    let (header, symbol) = Header::parse(code)?;
    let shape = Shape::new(header.message_bytes as usize, symbol.len())?;
    Ok((header, shape))
}

#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(super) enum BadSymbol {
    #[error(transparent)]
    Header(#[from] HeaderError),
    #[error(transparent)]
    Shape(#[from] ShapeError),
}

/// Bytes that an incomplete message of this shape takes up.
pub(super) fn memory_bytes(shape: &Shape) -> usize {
    let memory = Memory::of(shape);
    memory.bytes + memory.blocks * size_of::<Block>() + size_of::<Incoming>()
}

impl Incoming {
    pub(super) fn new(now: Time, header: &Header, shape: Shape, pool: &mut Pool) -> Self {
        Self {
            decoder: pool.take(&shape),
            generation: header.id,
            memory_bytes: memory_bytes(&shape),
            shape,
            taken: 0,
            bad: 0,
            first_at: now,
            last_at: now,
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Whether a symbol is of a way of cutting that came later than this one's.
    pub(super) fn is_outdated_by(&self, header: &Header) -> bool {
        header.id.wrapping_sub(self.generation).cast_signed() > 0
    }

    pub(super) fn take(&mut self, now: Time, code: &[u8]) -> Taken {
        let taken = match self.decoder.receive(code) {
            Ok(Received::More) => Taken::More,
            Ok(Received::Complete) => Taken::Complete,
            Err(Refused::Redundant) => return Taken::Redundant,
            Err(_) => {
                self.bad = self.bad.saturating_add(1);
                return Taken::Bad;
            }
        };
        self.taken += 1;
        self.last_at = now;
        taken
    }

    /// Whether more symbols did not fit than did: then it was the first that was
    /// spoilt, on which it depends what fits.
    pub(super) fn is_outvoted(&self) -> bool {
        self.bad > self.taken
    }

    /// The message, once it is complete.
    pub(super) fn open(&self) -> Option<Result<(MessageKind, &[u8]), EnvelopeError>> {
        let decoded = self.decoder.message()?;
        let opened = Envelope::open(decoded);
        Some(opened.map(|(envelope, message)| (kind(envelope), message)))
    }

    /// It was spoilt: begins again.
    pub(super) fn restart(&mut self) {
        self.decoder.reset();
        self.taken = 0;
    }

    pub(super) fn taken(&self) -> u32 {
        self.taken
    }

    /// Independent symbols that are needed still, at least.
    pub(super) fn missing(&self) -> u32 {
        (self.shape.symbols() as u32)
            .saturating_sub(self.taken)
            .max(1)
    }

    pub(super) fn spread_us(&self, now: Time) -> u32 {
        u32::try_from(now.since(self.first_at).as_micros()).unwrap_or(u32::MAX)
    }
}

fn kind(envelope: Envelope) -> MessageKind {
    match envelope.kind {
        envelope::EnvelopeKind::Message => MessageKind::Message,
        envelope::EnvelopeKind::Request => MessageKind::Request,
        envelope::EnvelopeKind::Reply => MessageKind::Reply {
            to: envelope.correlation,
        },
    }
}

/// Memory of decoders that are done, for the next ones.
#[derive(Debug, Default)]
pub(super) struct Pool {
    free: Vec<(Vec<u8>, Vec<Block>)>,
    bytes: usize,
}

impl Pool {
    fn take(&mut self, shape: &Shape) -> Decoder<Vec<u8>, Vec<Block>> {
        let (mut bytes, mut blocks) = self.free.pop().unwrap_or_default();
        self.bytes -= bytes.capacity();
        let memory = Memory::of(shape);
        bytes.resize(memory.bytes, 0);
        blocks.resize(memory.blocks, Block::default());
        Decoder::new(bytes, blocks)
    }

    pub(super) fn give(&mut self, incoming: Incoming) {
        let (bytes, blocks) = incoming.decoder.into_memory();
        if self.bytes + bytes.capacity() <= MAX_POOLED_BYTES {
            self.bytes += bytes.capacity();
            self.free.push((bytes, blocks));
        }
    }
}
