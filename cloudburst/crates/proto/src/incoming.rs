//! Messages of others, until they are complete.

use super::{
    envelope::{self, Envelope, EnvelopeError},
    event::MessageKind,
    time::Time,
};
use cloudburst_code::{
    Block, Decoder, DecoderPool, Memory, Received, Refused, Shape, ShapeError,
    wire::{Header, HeaderError},
};

/// Bytes of memory that a symbol makes ready for each byte of its own, at most. What a symbol
/// declares costs nothing: until enough of a message has come its symbols are kept as they are.
const READY_FACTOR: usize = 32;

/// A message that arrives.
#[derive(Debug)]
pub(super) struct Incoming {
    stage: Stage,
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

/// A message is decoded once so much of it has come that it is worth the memory.
#[derive(Debug)]
enum Stage {
    /// The symbols as they came, one after the other.
    Early(Vec<u8>),
    Decoding(Decoder<Vec<u8>, Vec<Block>>),
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
    let blocks = memory.blocks.saturating_mul(size_of::<Block>());
    let own = blocks.saturating_add(size_of::<Incoming>());
    memory.bytes.saturating_add(own)
}

impl Incoming {
    pub(super) fn new(now: Time, header: &Header, shape: Shape) -> Self {
        Self {
            stage: Stage::Early(Vec::new()),
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

    pub(super) fn take(&mut self, now: Time, code: &[u8], pool: &mut DecoderPool) -> Taken {
        if let Stage::Early(symbols) = &mut self.stage {
            if !is_of(code, self.generation, &self.shape) {
                self.bad = self.bad.saturating_add(1);
                return Taken::Bad;
            }
            let bytes = symbols.len().saturating_add(code.len());
            if bytes.saturating_mul(READY_FACTOR) < pool.cost(&self.shape) {
                symbols.extend_from_slice(code);
                self.taken = self.taken.saturating_add(1);
                self.last_at = now;
                return Taken::More;
            }
            self.begin_decoding(now, code.len(), pool);
        }
        self.decode(now, code)
    }

    /// Decodes what has come so far, in symbols of so many bytes.
    fn begin_decoding(&mut self, now: Time, code_bytes: usize, pool: &mut DecoderPool) {
        let stage = Stage::Decoding(pool.take(&self.shape));
        if let Stage::Early(symbols) = core::mem::replace(&mut self.stage, stage) {
            self.taken = 0;
            for code in symbols.chunks(code_bytes) {
                self.decode(now, code);
            }
        }
    }

    fn decode(&mut self, now: Time, code: &[u8]) -> Taken {
        let Stage::Decoding(decoder) = &mut self.stage else {
            return Taken::Redundant;
        };
        let taken = match decoder.receive(code) {
            Ok(Received::More) => Taken::More,
            Ok(Received::Complete) => Taken::Complete,
            Err(Refused::Redundant) => return Taken::Redundant,
            Err(_) => {
                self.bad = self.bad.saturating_add(1);
                return Taken::Bad;
            }
        };
        self.taken = self.taken.saturating_add(1);
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
        let Stage::Decoding(decoder) = &self.stage else {
            return None;
        };
        let decoded = decoder.message()?;
        let opened = Envelope::open(decoded);
        Some(opened.map(|(envelope, message)| (kind(envelope), message)))
    }

    /// It was spoilt: begins again.
    pub(super) fn restart(&mut self) {
        match &mut self.stage {
            Stage::Early(symbols) => symbols.clear(),
            Stage::Decoding(decoder) => decoder.reset(),
        }
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

    /// Gives its memory to the next ones.
    pub(super) fn recycle(self, pool: &mut DecoderPool) {
        if let Stage::Decoding(decoder) = self.stage {
            pool.give(decoder);
        }
    }

    /// Whether it waits to be handed over.
    pub(super) fn is_complete(&self) -> bool {
        matches!(&self.stage, Stage::Decoding(decoder) if decoder.message().is_some())
    }

    /// From the first symbol to the last that was taken.
    pub(super) fn spread_us(&self) -> u32 {
        u32::try_from(self.last_at.since(self.first_at).as_micros()).unwrap_or(u32::MAX)
    }
}

/// Whether a symbol is of a message of this shape, as it was first segmented.
fn is_of(code: &[u8], generation: u8, shape: &Shape) -> bool {
    let parsed = Header::parse(code);
    parsed.is_ok_and(|(header, symbol)| {
        header.id == generation
            && header.message_bytes as usize == shape.message_bytes()
            && symbol.len() == shape.symbol_bytes()
    })
}

fn kind(envelope: Envelope) -> MessageKind {
    match envelope.kind {
        envelope::EnvelopeKind::Message => MessageKind::Message,
        envelope::EnvelopeKind::Request => MessageKind::Request,
        envelope::EnvelopeKind::Reply => MessageKind::Reply {
            to: envelope.correlation,
        },
        envelope::EnvelopeKind::Failure => MessageKind::Failure {
            to: envelope.correlation,
        },
    }
}
