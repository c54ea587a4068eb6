//! Makes the datagrams of a message.

use core::{marker::PhantomData, ops::Range, slice};

use super::{
    cauchy_sum::Sources,
    kernel::{self, MAX_INPUTS, MAX_OUTPUTS, Simd, XorTask},
    schedule::{Schedule, default_row},
    shape::Shape,
};
use crate::wire::{Code, HEADER_BYTES, Header, Row};

/// Makes any datagram of a message, in any order, as often as asked.
///
/// It borrows the message, holds nothing else and never allocates: making one
/// costs nothing, and so does dropping it.
#[derive(Clone, Copy, Debug)]
pub struct Encoder<'m> {
    message: &'m [u8],
    shape: Shape,
    schedule: Schedule,
    id: u8,
    seed: u16,
    simd: Simd,
}

/// All that datagrams depend on besides the message.
#[cfg(feature = "std")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    shape: Shape,
    schedule: Schedule,
    id: u8,
    seed: u16,
}

/// Why a message cannot be encoded so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The shape is that of another message.
    #[error("the message has {given} bytes, its shape is for {expected}")]
    WrongLength {
        /// Bytes of the message.
        given: usize,
        /// Bytes that the shape says.
        expected: usize,
    },
    /// The paper's format has no blocks.
    #[error("the paper's schedule sends up to 64 symbols, the message has {0}")]
    TooManySymbols(usize),
    /// The datagrams do not fit into the buffer.
    #[error("the datagrams take {needed} bytes, the buffer has {given}")]
    BufferTooSmall {
        /// Bytes of all datagrams asked for.
        needed: usize,
        /// Bytes of the buffer.
        given: usize,
    },
}

impl<'m> Encoder<'m> {
    /// Encodes `message`, cut by `shape` and sent by `schedule`.
    ///
    /// `id` tells messages of a sender apart. `seed` should vary from message
    /// to message: losses that fit one message's rows badly do not fit the next
    /// one's too.
    ///
    /// # Errors
    ///
    /// If the shape is not that of a message of this length, or the schedule
    /// cannot send it.
    #[inline]
    pub fn new(
        message: &'m [u8],
        shape: Shape,
        schedule: Schedule,
        id: u8,
        seed: u16,
    ) -> Result<Self, EncodeError> {
        if message.len() != shape.message_bytes() {
            return Err(EncodeError::WrongLength {
                given: message.len(),
                expected: shape.message_bytes(),
            });
        }
        if !schedule.suits(&shape) {
            return Err(EncodeError::TooManySymbols(shape.symbols()));
        }
        Ok(Self {
            message,
            shape,
            schedule,
            id,
            seed,
            simd: Simd::detect(),
        })
    }

    /// Uses `simd` instead of the fastest, if this processor has it: for tests
    /// and measurements.
    #[must_use]
    pub fn with_simd(mut self, simd: Simd) -> Option<Self> {
        self.simd = simd;
        simd.is_available().then_some(self)
    }

    /// How the message is cut.
    pub const fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Encoders of one message with the same make the same datagrams.
    #[cfg(feature = "std")]
    pub(super) const fn layout(&self) -> Layout {
        Layout {
            shape: self.shape,
            schedule: self.schedule,
            id: self.id,
            seed: self.seed,
        }
    }

    /// Length of each datagram: header and symbol.
    pub const fn datagram_bytes(&self) -> usize {
        HEADER_BYTES.saturating_add(self.shape.symbol_bytes())
    }

    /// Writes the datagrams `sequences` one after the other to the beginning of
    /// `out`, and returns how many bytes they take.
    ///
    /// The first [`Shape::symbols`] are the source symbols, unless the schedule
    /// is the paper's. Several at once cost less than one by one.
    ///
    /// # Errors
    ///
    /// If `out` is too small; it is unchanged then.
    pub fn write(&self, sequences: Range<u32>, out: &mut [u8]) -> Result<usize, EncodeError> {
        let needed = sequences.len().saturating_mul(self.datagram_bytes());
        let given = out.len();
        let Some(out) = out.get_mut(..needed) else {
            return Err(EncodeError::BufferTooSmall { needed, given });
        };
        // Of a short message, clearing tables for a long one would be a good part
        // of the work.
        if sequences.len() <= FEW {
            self.write_measured::<FEW>(sequences, out);
        } else {
            self.write_measured::<MAX_OUTPUTS>(sequences, out);
        }
        Ok(needed)
    }

    /// Writes the datagrams to `out`, which is as long as they are, and computes
    /// up to `MOST` at once.
    fn write_measured<const MOST: usize>(&self, sequences: Range<u32>, out: &mut [u8]) {
        let mut repairs = Repairs::<MOST>::new(self, out);
        // Every so many sequence numbers the same block comes up again.
        let stride = self.shape.blocks().max(1);
        for first in sequences.clone().take(stride) {
            for sequence in (first..sequences.end).step_by(stride) {
                let row = self.schedule.row(&self.shape, self.seed, sequence);
                let header = self.header(row).to_bytes();
                let sum = Sum::of(row, &self.shape);
                let index = sequence.wrapping_sub(sequences.start);
                repairs.write(index as usize, &header, sum);
            }
        }
        repairs.compute();
    }

    fn header(&self, row: Row) -> Header {
        let block = match row {
            Row::Bits(_) => 0,
            Row::Named { block, .. } => block.into(),
        };
        Header {
            id: self.id,
            block_symbols: self.shape.block_symbols(block) as u8,
            message_bytes: self.message.len() as u32,
            row,
        }
    }
}

/// Up to so many datagrams at once take smaller tables.
const FEW: usize = 4;

/// What a symbol is made of.
enum Sum {
    /// This source symbol of the message.
    Source(usize),
    /// A sum over a block.
    Repair { block: usize, weights: Weights },
}

#[derive(Clone, Copy)]
enum Weights {
    Bits(u64),
    Cauchy { repair: u8 },
}

impl Sum {
    #[inline]
    fn of(row: Row, shape: &Shape) -> Self {
        let (block, bits) = match row {
            Row::Bits(bits) => (0, bits),
            Row::Named { block, index, .. }
                if usize::from(index) < shape.block_symbols(block.into()) =>
            {
                (block.into(), 1 << index)
            }
            Row::Named {
                code: Code::Binary,
                block,
                index,
                seed,
            } => {
                let block = usize::from(block);
                (block, default_row(shape.block_symbols(block), seed, index))
            }
            Row::Named {
                code: Code::Cauchy,
                block,
                index,
                ..
            } => {
                let block = usize::from(block);
                let repair = usize::from(index).saturating_sub(shape.block_symbols(block));
                let weights = Weights::Cauchy {
                    repair: repair as u8,
                };
                return Self::Repair { block, weights };
            }
        };
        if bits.is_power_of_two() {
            Self::Source(shape.symbol(block, bits.trailing_zeros() as usize))
        } else {
            let weights = Weights::Bits(bits);
            Self::Repair { block, weights }
        }
    }
}

/// Datagrams on their way into the buffer; repair symbols of one block wait to
/// be computed at once.
struct Repairs<'e, 'm, 'o, const MOST: usize> {
    encoder: &'e Encoder<'m>,
    /// The buffer, from which all pointers below come.
    out: *mut u8,
    out_bytes: usize,
    _buffer: PhantomData<&'o mut [u8]>,
    block: usize,
    count: usize,
    outputs: [*mut u8; MOST],
    weights: [Weights; MOST],
}

impl<'e, 'm, 'o, const MOST: usize> Repairs<'e, 'm, 'o, MOST> {
    #[inline]
    fn new(encoder: &'e Encoder<'m>, out: &'o mut [u8]) -> Self {
        Self {
            encoder,
            out_bytes: out.len(),
            out: out.as_mut_ptr(),
            _buffer: PhantomData,
            block: 0,
            count: 0,
            outputs: [core::ptr::null_mut(); MOST],
            weights: [Weights::Bits(0); MOST],
        }
    }

    /// Writes the `index`th datagram of the buffer, its symbol perhaps later.
    #[inline]
    fn write(&mut self, index: usize, header: &[u8; HEADER_BYTES], sum: Sum) {
        let bytes = self.encoder.datagram_bytes();
        let start = index.saturating_mul(bytes);
        assert!(
            start.saturating_add(bytes) <= self.out_bytes,
            "the buffer was measured"
        );
        // SAFETY: the datagram lies in the buffer, which is borrowed for as long
        // as this lives; each datagram is written once, so that no other
        // reference to it and no pointer among the outputs is at work.
        let datagram = unsafe { slice::from_raw_parts_mut(self.out.add(start), bytes) };
        let (head, symbol) = datagram.split_at_mut(HEADER_BYTES);
        head.copy_from_slice(header);
        match sum {
            Sum::Source(source) => {
                let place = self.encoder.shape.place(source);
                let source = &self.encoder.message[place];
                let (bytes, padding) = symbol.split_at_mut(source.len());
                bytes.copy_from_slice(source);
                padding.fill(0);
            }
            Sum::Repair { block, weights } => {
                if block != self.block || self.count == MOST {
                    self.compute();
                    self.block = block;
                }
                self.outputs[self.count] = symbol.as_mut_ptr();
                self.weights[self.count] = weights;
                self.count = self.count.saturating_add(1);
            }
        }
    }

    /// Computes the symbols that wait.
    fn compute(&mut self) {
        if self.count == 0 {
            return;
        }
        let Encoder { message, shape, .. } = *self.encoder;
        let n = shape.block_symbols(self.block);
        let mut inputs = [core::ptr::null(); MAX_INPUTS];
        for (index, input) in inputs[..n].iter_mut().enumerate() {
            *input = message[shape.place(shape.symbol(self.block, index))].as_ptr();
        }
        let symbol_bytes = shape.symbol_bytes();
        match shape.short_symbol(self.block) {
            None => self.compute_range(&inputs[..n], 0..symbol_bytes),
            Some((short, bytes)) => {
                self.compute_range(&inputs[..n], 0..bytes);
                // What is missing of the short symbol counts as zeros, and must not be read.
                inputs[short] = core::ptr::null();
                self.compute_range(&inputs[..n], bytes..symbol_bytes);
            }
        }
        self.count = 0;
    }

    /// The bytes `range` of all symbols that wait; an input that is null counts as zeros.
    fn compute_range(&self, inputs: &[*const u8], range: Range<usize>) {
        let (outputs, weights) = (&self.outputs[..self.count], &self.weights[..self.count]);
        let simd = self.encoder.simd;
        if let Weights::Cauchy { .. } = weights[0] {
            let mut repairs = [0; MOST];
            for (repair, weights) in repairs.iter_mut().zip(weights) {
                if let Weights::Cauchy { repair: number } = *weights {
                    *repair = number;
                }
            }
            let repairs = &repairs[..self.count];
            let sources = Sources {
                simd,
                symbols: inputs,
            };
            // SAFETY: inputs are symbols of the message, whole or of at least `range`, or null;
            // outputs are symbols of the buffer, each its own.
            unsafe { sources.sum::<MOST>(repairs, outputs, range) };
            return;
        }
        let readable = inputs
            .iter()
            .enumerate()
            .filter(|(_, input)| !input.is_null());
        let readable = readable.fold(0, |mask, (index, _)| mask | 1 << index);
        let mut masked = [(core::ptr::null_mut(), 0); MOST];
        for ((masked, &output), weights) in masked.iter_mut().zip(outputs).zip(weights) {
            if let Weights::Bits(bits) = *weights {
                *masked = (output, bits & readable);
            }
        }
        let task = XorTask {
            inputs,
            outputs: &masked[..self.count],
        };
        // SAFETY: as above; no mask asks for what is null.
        unsafe { kernel::xor(simd, &task, range) };
    }
}
