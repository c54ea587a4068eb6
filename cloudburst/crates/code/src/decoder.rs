//! Puts a message together from whatever datagrams of it arrive.

use core::fmt;

use super::{
    block::{Block, Slot, Symbol},
    cauchy,
    kernel::Simd,
    recovery::recover,
    schedule::{all_of, default_row},
    shape::{Shape, ShapeError},
};
use crate::wire::{Code, Header, HeaderError, Row};

/// Decodes one message at a time, in memory that the caller supplies and that
/// serves the next message too.
///
/// The first datagram fixes which message it is. Work per datagram is bounded:
/// 64 steps on 64-bit rows and one copy; the datagram that completes a block
/// also pays for that block's sums.
pub struct Decoder<B, K> {
    bytes: B,
    blocks: K,
    progress: Progress,
}

/// Counts what a decoder needs to hold for a message: see [`Decoder::new`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The message itself, and as much again for symbols that are not source symbols.
    pub bytes: usize,
    /// One for each block.
    pub blocks: usize,
}

impl Memory {
    /// For a message of this shape.
    pub const fn of(shape: &Shape) -> Self {
        Self {
            bytes: shape
                .message_bytes()
                .saturating_add(shape.symbols().saturating_mul(shape.symbol_bytes())),
            blocks: shape.blocks(),
        }
    }
}

/// Says what became of a datagram that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// It was linearly independent of those before; more are needed.
    More,
    /// With it the message is complete.
    Complete,
}

/// Why a datagram was not taken. The decoder is as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// Nothing new: a duplicate, a sum of what is known, or the message is complete.
    #[error("the symbol tells nothing new")]
    Redundant,
    /// The header is malformed.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// There is no message like that.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The symbol is of another message than the one under way.
    #[error("the symbol is of message {given}, message {expected} is under way")]
    OtherMessage {
        /// The id that it has.
        given: u8,
        /// The id of the message under way.
        expected: u8,
    },
    /// The message under way has another length.
    #[error("the symbol is of a message of {given} bytes, that under way has {expected}")]
    OtherSize {
        /// Bytes that the header states.
        given: usize,
        /// Bytes of the message under way.
        expected: usize,
    },
    /// The message under way comes in symbols of another length.
    #[error("the symbol has {given} bytes, those before had {expected}")]
    OtherLength {
        /// Its length without the header.
        given: usize,
        /// The length that the others have.
        expected: usize,
    },
    /// The message under way comes by another code.
    #[error("the symbol is of another code than those before")]
    OtherCode,
    /// The number of source symbols does not follow from the sizes.
    #[error("the header states a block of {given} symbols, the sizes make it {expected}")]
    WrongCount {
        /// The number that the header states.
        given: usize,
        /// The number it should state; 0 if there is no such block.
        expected: usize,
    },
    /// A set of bits that is empty, or has more than the block.
    #[error("the set {bits:#x} is not one of {symbols} symbols, or is empty")]
    BadRow {
        /// The set of bits.
        bits: u64,
        /// Source symbols of the block.
        symbols: usize,
    },
    /// A Cauchy row beyond the last.
    #[error("there is no row {0}; the last is 255")]
    NoSuchRow(u16),
    /// The message does not fit into this decoder's memory.
    #[error("the message needs {needed} bytes of memory or blocks, the decoder has {given}")]
    OutOfMemory {
        /// Bytes, or blocks, needed.
        needed: usize,
        /// The bytes that there are.
        given: usize,
    },
}

/// All of a decoder but its memory. Not generic, so that it is compiled here,
/// together with what it calls for every datagram.
#[derive(Clone, Copy, Debug)]
struct Progress {
    simd: Simd,
    message: Option<Message>,
}

/// The message under way.
#[derive(Clone, Copy, Debug)]
struct Message {
    id: u8,
    shape: Shape,
    family: Family,
    blocks_left: usize,
}

/// Rows that can be part of the same message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Bits,
    Binary,
    Cauchy,
}

impl<B: AsRef<[u8]> + AsMut<[u8]>, K: AsMut<[Block]>> Decoder<B, K> {
    /// With this memory: [`Memory`] tells how much a message needs. It need not
    /// be cleared, and more than needed does no harm.
    pub fn new(bytes: B, blocks: K) -> Self {
        Self {
            bytes,
            blocks,
            progress: Progress {
                simd: Simd::detect(),
                message: None,
            },
        }
    }

    /// The memory, for the next decoder.
    pub fn into_memory(self) -> (B, K) {
        (self.bytes, self.blocks)
    }

    /// Uses `simd` instead of the fastest, if this processor has it: for tests
    /// and measurements.
    #[must_use]
    pub fn with_simd(mut self, simd: Simd) -> Option<Self> {
        self.progress.simd = simd;
        simd.is_available().then_some(self)
    }

    /// Forgets the message; the next datagram begins another.
    pub fn reset(&mut self) {
        self.progress.message = None;
    }

    /// The message, once it is complete.
    pub fn message(&self) -> Option<&[u8]> {
        let message = self.progress.message.as_ref()?;
        let bytes = &self.bytes.as_ref()[..message.shape.message_bytes()];
        (message.blocks_left == 0).then_some(bytes)
    }

    /// The shape of the message under way.
    pub fn shape(&self) -> Option<&Shape> {
        let message = self.progress.message.as_ref();
        message.map(|message| &message.shape)
    }

    /// Takes a datagram: header and symbol.
    ///
    /// # Errors
    ///
    /// Says why the datagram was not taken; nothing has changed then.
    #[inline]
    pub fn receive(&mut self, datagram: &[u8]) -> Result<Received, Refused> {
        let (bytes, blocks) = (self.bytes.as_mut(), self.blocks.as_mut());
        self.progress.receive(bytes, blocks, datagram)
    }
}

impl Progress {
    fn receive(
        &mut self,
        bytes: &mut [u8],
        blocks: &mut [Block],
        datagram: &[u8],
    ) -> Result<Received, Refused> {
        let (header, symbol) = Header::parse(datagram)?;
        let family = Family::of(header.row);
        match &self.message {
            Some(message) => message.check(&header, symbol, family)?,
            None => self.message = Some(begin(bytes, blocks, &header, symbol, family)?),
        }
        self.take(bytes, blocks, &header, symbol)
    }

    fn take(
        &mut self,
        bytes: &mut [u8],
        blocks: &mut [Block],
        header: &Header,
        payload: &[u8],
    ) -> Result<Received, Refused> {
        let Some(message) = &mut self.message else {
            return Err(Refused::Redundant);
        };
        let shape = message.shape;
        let (index, symbol) = message.symbol(header)?;
        let block = &mut blocks[index];
        let slot = block.take(symbol).ok_or(Refused::Redundant)?;
        match slot {
            Slot::Source(number) => {
                let place = shape.place(shape.symbol(index, number));
                let len = place.len();
                bytes[place].copy_from_slice(&payload[..len]);
            }
            Slot::Aside(position) => {
                let start = aside(&shape, index, position);
                let end = start.saturating_add(payload.len());
                bytes[start..end].copy_from_slice(payload);
            }
        }
        if !block.is_complete() {
            return Ok(Received::More);
        }
        recover(self.simd, &shape, message.family, index, block, bytes);
        message.blocks_left = message.blocks_left.saturating_sub(1);
        Ok(if message.blocks_left == 0 {
            Received::Complete
        } else {
            Received::More
        })
    }
}

/// Makes ready for the message that this symbol is of, if it is one.
fn begin(
    bytes: &[u8],
    blocks: &mut [Block],
    header: &Header,
    symbol: &[u8],
    family: Family,
) -> Result<Message, Refused> {
    let shape = Shape::new(header.message_bytes as usize, symbol.len())?;
    let message = Message {
        id: header.id,
        shape,
        family,
        blocks_left: shape.blocks(),
    };
    message.symbol(header)?;
    let memory = Memory::of(&shape);
    let given = bytes.len();
    if given < memory.bytes {
        let needed = memory.bytes;
        return Err(Refused::OutOfMemory { needed, given });
    }
    let given = blocks.len();
    let Some(blocks) = blocks.get_mut(..memory.blocks) else {
        let needed = memory.blocks;
        return Err(Refused::OutOfMemory { needed, given });
    };
    for (index, block) in blocks.iter_mut().enumerate() {
        block.start(shape.block_symbols(index));
    }
    Ok(message)
}

impl Message {
    fn check(&self, header: &Header, symbol: &[u8], family: Family) -> Result<(), Refused> {
        if header.id != self.id {
            let (given, expected) = (header.id, self.id);
            return Err(Refused::OtherMessage { given, expected });
        }
        let (given, expected) = (header.message_bytes as usize, self.shape.message_bytes());
        if given != expected {
            return Err(Refused::OtherSize { given, expected });
        }
        let (given, expected) = (symbol.len(), self.shape.symbol_bytes());
        if given != expected {
            return Err(Refused::OtherLength { given, expected });
        }
        if family != self.family {
            return Err(Refused::OtherCode);
        }
        Ok(())
    }

    /// The block that a header speaks of, and the symbol within it.
    #[inline]
    fn symbol(&self, header: &Header) -> Result<(usize, Symbol), Refused> {
        let block = match header.row {
            Row::Bits(_) => 0,
            Row::Named { block, .. } => usize::from(block),
        };
        let given = usize::from(header.block_symbols);
        let has_blocks = match self.family {
            Family::Bits => 1,
            Family::Binary | Family::Cauchy => self.shape.blocks(),
        };
        let n = if block < has_blocks && has_blocks == self.shape.blocks() {
            self.shape.block_symbols(block)
        } else {
            0
        };
        if given != n {
            return Err(Refused::WrongCount { given, expected: n });
        }
        let symbol = match header.row {
            Row::Bits(bits) if bits == 0 || bits & !all_of(n) != 0 => {
                return Err(Refused::BadRow { bits, symbols: n });
            }
            Row::Bits(bits) => Symbol::Bits(bits),
            Row::Named {
                code: Code::Binary,
                index,
                seed,
                ..
            } => Symbol::Bits(default_row(n, seed, index)),
            Row::Named {
                code: Code::Cauchy,
                index,
                ..
            } => match index.checked_sub(n as u16) {
                _ if index >= cauchy::MAX_ROWS => return Err(Refused::NoSuchRow(index)),
                None => Symbol::CauchySource(index as u8),
                Some(repair) => Symbol::CauchyRepair(repair as u8),
            },
        };
        Ok((block, symbol))
    }
}

impl Family {
    #[inline]
    const fn of(row: Row) -> Self {
        match row {
            Row::Bits(_) => Self::Bits,
            Row::Named { code, .. } => match code {
                Code::Binary => Self::Binary,
                Code::Cauchy => Self::Cauchy,
            },
        }
    }
}

/// Where a symbol of `block` that is kept aside lies: behind the message, the
/// blocks one after the other.
pub(super) fn aside(shape: &Shape, block: usize, position: usize) -> usize {
    let (symbols, blocks) = (shape.symbols(), shape.blocks());
    // The first blocks have one symbol more than the others.
    let each = symbols.checked_div(blocks).unwrap_or(0);
    let more = symbols.checked_rem(blocks).unwrap_or(0);
    let before = block.saturating_mul(each).saturating_add(block.min(more));
    let bytes = before
        .saturating_add(position)
        .saturating_mul(shape.symbol_bytes());
    shape.message_bytes().saturating_add(bytes)
}

#[cfg(feature = "std")]
impl Decoder<Vec<u8>, Vec<Block>> {
    /// With memory of its own, enough for messages of this shape.
    pub fn for_shape(shape: &Shape) -> Self {
        let memory = Memory::of(shape);
        Self::new(vec![0; memory.bytes], vec![Block::default(); memory.blocks])
    }
}

impl<B, K> fmt::Debug for Decoder<B, K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Decoder")
            .field("progress", &self.progress)
            .finish_non_exhaustive()
    }
}
