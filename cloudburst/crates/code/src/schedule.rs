//! Which row is sent when.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::SplitMix64;

use super::{cauchy, shape::Shape, spread};
use crate::wire::{Code, Row};

/// Decides what is sent, in which order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Schedule {
    /// The source symbols, then the exclusive or of all, then that of halves,
    /// the first few chosen and the others random: see [`default_row`]. Without
    /// end, and the cheapest to compute. A receiver needs 1.6 symbols more than
    /// there are source symbols on average if many are lost, fewer if few are,
    /// and none if none or one is.
    #[default]
    Default,
    /// The source symbols, then their exclusive or, then Cauchy sums over
    /// GF(256). Any `n` different symbols of a block suffice, up to 256; then
    /// they come again. Costs about twice the work.
    Mds,
    /// The paper's Luby transform code with a degree drawn or fixed: for
    /// comparison with the paper and with what speaks its format. One block.
    Paper(PaperDegree),
}

/// Degree of packets of the paper's code: how many source symbols each is the sum of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PaperDegree {
    /// Five picks, with replacement: what §IV-A recommends.
    #[default]
    Fixed,
    /// One to five different symbols, each number as likely; at most `n`.
    Uniform,
}

impl PaperDegree {
    /// The paper's degree (§IV-A).
    pub const DEGREE: u32 = 5;
}

impl Schedule {
    /// Whether it can send a message of this shape.
    pub(super) const fn suits(self, shape: &Shape) -> bool {
        !matches!(self, Self::Paper(_)) || shape.blocks() == 1
    }

    /// The row that is sent as number `sequence`, counted from 0.
    pub(super) fn row(self, shape: &Shape, seed: u16, sequence: u32) -> Row {
        match self {
            Self::Paper(degree) => Row::Bits(paper_row(shape.symbols(), degree, seed, sequence)),
            Self::Default if shape.blocks() == 1 => {
                let (_, index) = position(shape, sequence, DISTINCT_BINARY_ROWS);
                Row::Bits(default_row(shape.symbols(), seed, index))
            }
            Self::Default => named(shape, Code::Binary, seed, sequence, DISTINCT_BINARY_ROWS),
            Self::Mds => named(shape, Code::Cauchy, 0, sequence, cauchy::MAX_ROWS.into()),
        }
    }
}

const DISTINCT_BINARY_ROWS: u32 = 1 << 16;

fn named(shape: &Shape, code: Code, seed: u16, sequence: u32, rows: u32) -> Row {
    let (block, index) = position(shape, sequence, rows);
    Row::Named {
        code,
        block,
        index,
        seed,
    }
}

/// Block and index of the row that is sent as number `sequence`: source symbols
/// in the order of the message, then rows of each block in turn; after `rows`
/// of a block it begins again.
fn position(shape: &Shape, sequence: u32, rows: u32) -> (u8, u16) {
    let (symbols, blocks) = (shape.symbols() as u32, shape.blocks() as u32);
    // There is at least one block, and at least one row.
    let dealt = |number: u32| {
        let block = number.checked_rem(blocks).unwrap_or(0);
        (block, number.checked_div(blocks).unwrap_or(0))
    };
    let Some(repair) = sequence.checked_sub(symbols) else {
        let (block, index) = dealt(sequence);
        return (block as u8, index as u16);
    };
    let (block, turn) = dealt(repair);
    let sources = shape.block_symbols(block as usize) as u32;
    let index = sources.saturating_add(turn).checked_rem(rows);
    (block as u8, index.unwrap_or(0) as u16)
}

/// Row `index` of the default schedule for a block of `n` source symbols, as a
/// set of bits: the source symbols, all of them, then rows of an extended BCH
/// code's parity checks so that few losses need few rows, 18 at most, then
/// random halves. All are drawn by SplitMix64 (Steele, Lea, Flood 2014) from
/// `seed` and `index` alone.
///
/// `n` is 1 to 64.
pub fn default_row(n: usize, seed: u16, index: u16) -> u64 {
    let all = all_of(n);
    let index = usize::from(index);
    if index < n {
        return 1 << index;
    }
    let Some(spread) = index.checked_sub(n).and_then(|it| it.checked_sub(1)) else {
        return all;
    };
    // All spread rows of a message go through one permutation.
    if let Some(bits) = spread::row(n, spread, || random(seed, n as u32)) {
        let bits = bits & all;
        return if bits == 0 { all } else { bits };
    }
    let mut random = random(seed, index as u32);
    loop {
        let bits = random.next_u64() & all;
        if bits != 0 {
            return bits;
        }
    }
}

/// The lowest `n` bits; `n` is 1 to 64.
#[inline(always)]
pub(super) const fn all_of(n: usize) -> u64 {
    !0 >> 64usize.saturating_sub(n)
}

fn paper_row(n: usize, degree: PaperDegree, seed: u16, sequence: u32) -> u64 {
    let mut random = random(seed, sequence);
    let mut pick = |among: usize| {
        let picked = random.next_u64().checked_rem(among as u64);
        picked.unwrap_or(0) as u32
    };
    match degree {
        PaperDegree::Fixed => (0..PaperDegree::DEGREE).fold(0, |bits, _| bits | 1 << pick(n)),
        PaperDegree::Uniform => {
            let degree = pick(n.min(PaperDegree::DEGREE as usize)).saturating_add(1);
            let mut bits = 0u64;
            while bits.count_ones() < degree {
                bits |= 1 << pick(n);
            }
            bits
        }
    }
}

fn random(seed: u16, index: u32) -> SplitMix64 {
    let state = u64::from(seed) << 32 | u64::from(index);
    SplitMix64::from_seed(state.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ends draw rows by themselves: they may never change.
    #[test]
    fn rows_are_those_of_the_first_version() {
        let rows = [(64, 0, 65), (64, 3, 70), (64, 3, 83), (11, 9, 13)];
        let rows = rows.map(|(n, seed, index)| default_row(n, seed, index));
        assert_eq!(
            rows,
            [
                0x99824b786785f2ec,
                0x2e889d46d17762b9,
                0x6ff0a0a17589d488,
                0x44e
            ]
        );
    }

    #[test]
    fn rows_have_bits_of_the_block_alone() {
        for n in 1..=64 {
            for index in 0..300 {
                for bits in [
                    default_row(n, 7, index),
                    paper_row(n, PaperDegree::Fixed, 7, index.into()),
                    paper_row(n, PaperDegree::Uniform, 7, index.into()),
                ] {
                    assert!(bits != 0 && bits & !all_of(n) == 0, "n = {n}: {bits:b}");
                }
            }
        }
    }

    #[test]
    fn paper_degrees() {
        for sequence in 0..1_000 {
            let fixed = paper_row(64, PaperDegree::Fixed, 1, sequence);
            assert!((1..=5).contains(&fixed.count_ones()));
            let uniform = paper_row(3, PaperDegree::Uniform, 1, sequence);
            assert!((1..=3).contains(&uniform.count_ones()));
        }
    }

    #[test]
    fn rows_of_all_blocks_in_turn() {
        let shape = Shape::new(130, 1).unwrap();
        assert_eq!(shape.blocks(), 3);
        let position = |sequence| position(&shape, sequence, 256);
        assert_eq!(position(0), (0, 0));
        assert_eq!(position(4), (1, 1));
        assert_eq!(position(129), (0, 43));
        assert_eq!(position(130), (0, 44));
        assert_eq!(position(131), (1, 43));
        assert_eq!(position(133), (0, 45));
        // Row 255 of block 0 is followed by its source symbols.
        assert_eq!(position(130 + 3 * 212), (0, 0));
    }
}
