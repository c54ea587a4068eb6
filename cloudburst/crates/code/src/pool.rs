//! Memory of decoders that are done, for the next ones.

use super::{
    block::Block,
    decoder::{Decoder, Memory},
    shape::Shape,
};

/// Bytes of memory that are kept, at most.
const MAX_POOLED_BYTES: usize = 16 << 20;
/// Sizes of memory, each twice the one before.
const CLASSES: usize = usize::BITS as usize;

/// Pool of memory for decoders, 16 MiB at most. What is in it is made ready once: nothing is cleared
/// between two messages.
#[derive(Debug)]
pub struct DecoderPool {
    /// By size: from 2^n bytes on, below 2^(n+1).
    free: [Vec<DecoderMemory>; CLASSES],
    bytes: usize,
}

type DecoderMemory = (Vec<u8>, Vec<Block>);

impl Default for DecoderPool {
    fn default() -> Self {
        Self {
            free: [const { Vec::new() }; CLASSES],
            bytes: 0,
        }
    }
}

impl DecoderPool {
    /// Bytes that have to be written before a message of this shape can be decoded.
    pub fn cost(&self, shape: &Shape) -> usize {
        let needed = Memory::of(shape);
        let blocks = needed.blocks.saturating_mul(size_of::<Block>());
        match self.fitting(&needed) {
            Some(_) => blocks,
            None => needed.bytes.saturating_add(blocks),
        }
    }

    /// Finds a size of which the memory used last is long enough.
    fn fitting(&self, needed: &Memory) -> Option<usize> {
        let own = class(needed.bytes);
        (own..CLASSES.min(own.saturating_add(2))).find(|&class| {
            let last = self.free[class].last();
            last.is_some_and(|(bytes, _)| bytes.len() >= needed.bytes)
        })
    }

    /// Takes memory for a message of this shape, or makes it.
    pub fn take(&mut self, shape: &Shape) -> Decoder<Vec<u8>, Vec<Block>> {
        let needed = Memory::of(shape);
        let class = self.fitting(&needed);
        let pooled = class.and_then(|class| self.free[class].pop());
        if let Some((bytes, _)) = &pooled {
            self.bytes = self.bytes.saturating_sub(bytes.len());
        }
        let (bytes, mut blocks) = pooled.unwrap_or_else(|| (vec![0; needed.bytes], Vec::new()));
        if blocks.len() < needed.blocks {
            blocks.resize(needed.blocks, Block::default());
        }
        Decoder::new(bytes, blocks)
    }

    /// Gives back the memory of a decoder that is done.
    pub fn give(&mut self, decoder: Decoder<Vec<u8>, Vec<Block>>) {
        let (bytes, blocks) = decoder.into_memory();
        let kept = self.bytes.saturating_add(bytes.len());
        if kept <= MAX_POOLED_BYTES {
            self.bytes = kept;
            self.free[class(bytes.len())].push((bytes, blocks));
        }
    }
}

fn class(bytes: usize) -> usize {
    bytes.max(1).ilog2() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_uncleared_for_what_is_as_long_or_somewhat_shorter() {
        let shape = |bytes| Shape::fitting(bytes, 1_000).unwrap();
        let mut pool = DecoderPool::default();
        let fresh = pool.cost(&shape(20_000));
        assert!(fresh > 40_000);
        let fresh_for_short = pool.cost(&shape(100));
        let decoder = pool.take(&shape(20_000));
        pool.give(decoder);
        assert!(pool.cost(&shape(20_000)) < 2_000);
        assert!(pool.cost(&shape(15_000)) < 2_000);
        let for_short = pool.cost(&shape(100));
        assert_eq!(for_short, fresh_for_short, "it is too long for that");
        assert!(pool.cost(&shape(100_000)) > 200_000);
        let decoder = pool.take(&shape(15_000));
        assert!(pool.cost(&shape(20_000)) > 40_000, "it is in use");
        pool.give(decoder);
        assert!(pool.cost(&shape(20_000)) < 2_000, "it was not cut");
    }

    #[test]
    fn memory_that_is_kept_is_bounded() {
        let mut pool = DecoderPool::default();
        let shape = Shape::fitting(1 << 20, 1_000).unwrap();
        let decoders: Vec<_> = (0..20).map(|_| pool.take(&shape)).collect();
        decoders.into_iter().for_each(|it| pool.give(it));
        assert!(pool.bytes <= MAX_POOLED_BYTES);
        assert!(pool.bytes > MAX_POOLED_BYTES / 2);
    }
}
