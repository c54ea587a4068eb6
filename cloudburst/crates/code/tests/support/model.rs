//! What a decoder should know after each symbol, by plain elimination and plain
//! sets that share nothing with the decoder's.

use std::collections::BTreeSet;

use cloudburst_code::wire::{Code, Header, Row};
use cloudburst_code::{Shape, default_row};

/// The rows of one message that have arrived.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    shape: Shape,
    blocks: Vec<Block>,
}

#[derive(Clone, Debug)]
struct Block {
    symbols: usize,
    /// Rows of bits, each the only one with its highest bit.
    basis: [u64; 64],
    rank: usize,
    /// Rows of a code in which any `symbols` different ones suffice.
    cauchy: BTreeSet<u16>,
}

impl Model {
    pub(crate) fn new(shape: &Shape) -> Self {
        let blocks = (0..shape.blocks()).map(|block| Block {
            symbols: shape.block_symbols(block),
            basis: [0; 64],
            rank: 0,
            cauchy: BTreeSet::new(),
        });
        Self {
            shape: *shape,
            blocks: blocks.collect(),
        }
    }

    /// Whether a datagram with this header can be of a message of this shape.
    pub(crate) fn admits(&self, header: &Header, symbol_bytes: usize) -> bool {
        let block = match header.row {
            Row::Bits(_) => 0,
            Row::Named { block, .. } => block.into(),
        };
        let Some(Block { symbols, .. }) = self.blocks.get(block) else {
            return false;
        };
        let is_row = match header.row {
            Row::Bits(bits) => {
                self.blocks.len() == 1 && (1..=u64::MAX >> (64 - symbols)).contains(&bits)
            }
            Row::Named { code, index, .. } => code == Code::Binary || index < 256,
        };
        is_row
            && usize::from(header.block_symbols) == *symbols
            && header.message_bytes as usize == self.shape.message_bytes()
            && symbol_bytes == self.shape.symbol_bytes()
    }

    /// Takes the row that a header names; whether it tells something new.
    pub(crate) fn take(&mut self, header: &Header) -> bool {
        match header.row {
            Row::Bits(bits) => self.blocks[0].take_bits(bits),
            Row::Named {
                code,
                block,
                index,
                seed,
            } => {
                let block = &mut self.blocks[usize::from(block)];
                match code {
                    Code::Binary => block.take_bits(default_row(block.symbols, seed, index)),
                    Code::Cauchy => !block.is_complete() && block.cauchy.insert(index),
                }
            }
        }
    }

    /// Whether the rows determine the message.
    pub(crate) fn is_complete(&self) -> bool {
        self.blocks.iter().all(Block::is_complete)
    }
}

impl Block {
    fn take_bits(&mut self, mut row: u64) -> bool {
        while row != 0 {
            let top = 63 - row.leading_zeros() as usize;
            if self.basis[top] == 0 {
                self.basis[top] = row;
                self.rank += 1;
                return true;
            }
            row ^= self.basis[top];
        }
        false
    }

    fn is_complete(&self) -> bool {
        self.rank.max(self.cauchy.len()) == self.symbols
    }
}
