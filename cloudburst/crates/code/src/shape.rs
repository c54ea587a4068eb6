//! How a message is cut into symbols, and those into blocks.

use core::ops::Range;

/// Source symbols that a block has at most: as many as a header has bits for.
pub const MAX_BLOCK_SYMBOLS: usize = 64;
/// Blocks that a message has at most.
pub const MAX_BLOCKS: usize = 256;
/// Bytes that a message has at most: what a header can state. Symbols of less
/// than 2 KiB allow for less: [`MAX_BLOCKS`] full blocks.
pub const MAX_MESSAGE_BYTES: usize = (1 << 25) - 1;

/// A message's length and how it is cut.
///
/// Source symbol *i* is the *i*th stretch of `symbol_bytes` of the message, the
/// last filled up with zeros. Up to 64 symbols are one block. More are dealt
/// out to as few blocks as hold them, in turn, so that a run of lost packets
/// hits all blocks alike: symbol *i* is number *i / blocks* of block
/// *i mod blocks*.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    message_bytes: u32,
    symbol_bytes: u32,
    symbols: u32,
    blocks: u32,
}

/// Why a message cannot be cut so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// There is nothing to send.
    #[error("a message of 0 bytes has no symbols")]
    EmptyMessage,
    /// A symbol would hold nothing.
    #[error("symbols of 0 bytes carry nothing")]
    EmptySymbol,
    /// Longer than can be stated or divided.
    #[error(
        "a message of {message_bytes} bytes in symbols of {symbol_bytes} is longer than the {most} that can be sent so"
    )]
    TooLarge {
        /// The length of the message.
        message_bytes: usize,
        /// The bytes that a symbol holds.
        symbol_bytes: usize,
        /// The longest message with such symbols.
        most: usize,
    },
}

impl Shape {
    /// Cuts `message_bytes` into symbols of exactly `symbol_bytes`.
    ///
    /// # Errors
    ///
    /// See [`ShapeError`].
    pub const fn new(message_bytes: usize, symbol_bytes: usize) -> Result<Self, ShapeError> {
        if message_bytes == 0 {
            return Err(ShapeError::EmptyMessage);
        }
        if symbol_bytes == 0 {
            return Err(ShapeError::EmptySymbol);
        }
        let blocks_hold = symbol_bytes.saturating_mul(MAX_BLOCKS * MAX_BLOCK_SYMBOLS);
        let most = if blocks_hold < MAX_MESSAGE_BYTES {
            blocks_hold
        } else {
            MAX_MESSAGE_BYTES
        };
        if message_bytes > most || symbol_bytes > u32::MAX as usize {
            return Err(ShapeError::TooLarge {
                message_bytes,
                symbol_bytes,
                most,
            });
        }
        let symbols = message_bytes.div_ceil(symbol_bytes);
        Ok(Self {
            message_bytes: message_bytes as u32,
            symbol_bytes: symbol_bytes as u32,
            symbols: symbols as u32,
            blocks: symbols.div_ceil(MAX_BLOCK_SYMBOLS) as u32,
        })
    }

    /// Cuts `message_bytes` into as few symbols as have at most
    /// `most_symbol_bytes`, and makes these as short as that number allows, so
    /// that little is spent on zeros.
    ///
    /// # Errors
    ///
    /// See [`ShapeError`].
    pub const fn fitting(
        message_bytes: usize,
        most_symbol_bytes: usize,
    ) -> Result<Self, ShapeError> {
        match Self::new(message_bytes, most_symbol_bytes) {
            Ok(shape) => Self::new(
                message_bytes,
                message_bytes.div_ceil(shape.symbols as usize),
            ),
            error => error,
        }
    }

    /// Length of the message.
    pub const fn message_bytes(&self) -> usize {
        self.message_bytes as usize
    }

    /// Length of each symbol, without its header.
    pub const fn symbol_bytes(&self) -> usize {
        self.symbol_bytes as usize
    }

    /// Source symbols of the message: the least that a receiver needs.
    pub const fn symbols(&self) -> usize {
        self.symbols as usize
    }

    /// Blocks of the message.
    pub const fn blocks(&self) -> usize {
        self.blocks as usize
    }

    /// Source symbols of block `block`.
    pub const fn block_symbols(&self, block: usize) -> usize {
        // Dealt out in turn: the first ones have what does not come out even.
        let spare = self.blocks().saturating_sub(1).saturating_sub(block);
        match self
            .symbols()
            .saturating_add(spare)
            .checked_div(self.blocks())
        {
            Some(symbols) => symbols,
            None => 0,
        }
    }

    /// Which of the message's source symbols is number `index` of `block`.
    pub(super) const fn symbol(&self, block: usize, index: usize) -> usize {
        block.saturating_add(index.saturating_mul(self.blocks()))
    }

    /// Where in the message a source symbol lies; the last may be short.
    pub(super) const fn place(&self, symbol: usize) -> Range<usize> {
        let start = symbol.saturating_mul(self.symbol_bytes());
        let end = start.saturating_add(self.symbol_bytes());
        if end < self.message_bytes() {
            start..end
        } else {
            start..self.message_bytes()
        }
    }

    /// The number within `block` of the message's last symbol if that is short,
    /// and its length.
    pub(super) const fn short_symbol(&self, block: usize) -> Option<(usize, usize)> {
        let last = self.symbols().saturating_sub(1);
        let before = last.saturating_mul(self.symbol_bytes());
        let len = self.message_bytes().saturating_sub(before);
        let (Some(index), Some(of)) = (
            last.checked_div(self.blocks()),
            last.checked_rem(self.blocks()),
        ) else {
            return None;
        };
        if len < self.symbol_bytes() && of == block {
            Some((index, len))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_symbol_is_in_one_block(message in 1usize..2_000_000, symbol in 200usize..9_000) {
            let shape = Shape::new(message, symbol).unwrap();
            let mut seen = vec![false; shape.symbols()];
            for block in 0..shape.blocks() {
                prop_assert!((1..=MAX_BLOCK_SYMBOLS).contains(&shape.block_symbols(block)));
                for index in 0..shape.block_symbols(block) {
                    prop_assert!(!std::mem::replace(&mut seen[shape.symbol(block, index)], true));
                }
            }
            prop_assert!(seen.iter().all(|&seen| seen));
            prop_assert_eq!(shape.place(shape.symbols() - 1).end, message);
        }

        #[test]
        fn fitting_needs_no_more_symbols(message in 1usize..2_000_000, most in 200usize..9_000) {
            let plain = Shape::new(message, most).unwrap();
            let fitting = Shape::fitting(message, most).unwrap();
            prop_assert_eq!(fitting.symbols(), plain.symbols());
            prop_assert!(fitting.symbol_bytes() * fitting.symbols() - message < fitting.symbols());
        }
    }

    #[test]
    fn a_mebibyte_fits_an_ethernet_frame() {
        let shape = Shape::fitting(1 << 20, 1440).unwrap();
        assert_eq!((shape.symbols(), shape.blocks()), (729, 12));
    }

    #[test]
    fn what_cannot_be_cut_is_refused() {
        assert_eq!(Shape::new(0, 1), Err(ShapeError::EmptyMessage));
        assert_eq!(Shape::new(1, 0), Err(ShapeError::EmptySymbol));
        assert!(Shape::new(16_384, 1).is_ok());
        let too_large = ShapeError::TooLarge {
            message_bytes: 16_385,
            symbol_bytes: 1,
            most: 16_384,
        };
        assert_eq!(Shape::new(16_385, 1), Err(too_large));
        assert!(Shape::new(MAX_MESSAGE_BYTES, 2_048).is_ok());
        assert!(Shape::new(MAX_MESSAGE_BYTES + 1, usize::MAX).is_err());
    }
}
