//! Messages of others, until they are complete.

use cloudburst_code::{
    Block, Decoder, Memory, Received, Refused, Shape, ShapeError,
    wire::{Header, HeaderError},
};
use cloudburst_proto::Time;

/// Memory of decoders that is kept for the next ones, in bytes.
const MAX_POOLED_BYTES: usize = 16 << 20;

/// A message that arrives.
#[derive(Debug)]
pub(crate) struct Incoming {
    decoder: Decoder<Vec<u8>, Vec<Block>>,
    memory_bytes: usize,
    shape: Shape,
    taken: u32,
    /// Symbols that did not fit.
    bad: u32,
    pub(crate) last_at: Time,
}

/// What became of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    More,
    /// The message is complete.
    Complete,
    /// Nothing new.
    Redundant,
    /// It does not fit.
    Bad,
}

/// Length of a message and how it is cut, as a symbol's header tells.
pub(crate) fn shape_of(code: &[u8]) -> Result<(Header, Shape), BadSymbol> {
    let (header, symbol) = Header::parse(code)?;
    let shape = Shape::new(header.message_bytes as usize, symbol.len())?;
    Ok((header, shape))
}

#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(crate) enum BadSymbol {
    #[error(transparent)]
    Header(#[from] HeaderError),
    #[error(transparent)]
    Shape(#[from] ShapeError),
}

/// Bytes that an incomplete message of this shape takes up.
pub(crate) fn memory_bytes(shape: &Shape) -> usize {
    let memory = Memory::of(shape);
    memory.bytes + memory.blocks * size_of::<Block>() + size_of::<Incoming>()
}

impl Incoming {
    pub(crate) fn new(now: Time, shape: Shape, pool: &mut Pool) -> Self {
        Self {
            decoder: pool.take(&shape),
            memory_bytes: memory_bytes(&shape),
            shape,
            taken: 0,
            bad: 0,
            last_at: now,
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    pub(crate) fn take(&mut self, now: Time, code: &[u8]) -> Taken {
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
    pub(crate) fn is_outvoted(&self) -> bool {
        self.bad > self.taken
    }

    /// What was decoded, once it is complete.
    pub(crate) fn message(&self) -> Option<&[u8]> {
        self.decoder.message()
    }

    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }
}

/// Memory of decoders that are done, for the next ones.
#[derive(Debug, Default)]
pub(crate) struct Pool {
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

    pub(crate) fn give(&mut self, incoming: Incoming) {
        let (bytes, blocks) = incoming.decoder.into_memory();
        if self.bytes + bytes.capacity() <= MAX_POOLED_BYTES {
            self.bytes += bytes.capacity();
            self.free.push((bytes, blocks));
        }
    }
}
