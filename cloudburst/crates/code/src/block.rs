//! What a decoder knows of one block.

use super::{MAX_BLOCK_SYMBOLS, schedule::all_of};

/// Bookkeeping of one block, 1,080 bytes: which symbols are held, and whether
/// another would tell anything new.
///
/// Elimination works on rows of bits as they arrive; payloads wait until the
/// block is complete, and are then paid for once.
#[derive(Clone, Debug)]
pub struct Block {
    /// Rows held, reduced: the one at `p` has `p` as its lowest bit, or is 0.
    echelon: [u64; MAX_BLOCK_SYMBOLS],
    /// The symbols that are kept aside, in the order in which they came: their
    /// rows, or for Cauchy sums the number of the repair row.
    aside: [u64; MAX_BLOCK_SYMBOLS],
    /// Cauchy repair rows seen.
    repairs: [u64; 4],
    /// Source symbols held as themselves.
    sources: u64,
    /// Those of them that the echelon has as themselves.
    plain: u64,
    symbols: u8,
    aside_len: u8,
}

/// Where to put the payload of a symbol that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// In its place in the message.
    Source(usize),
    /// Aside, at this position.
    Aside(usize),
}

/// A symbol of a block, as its header names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Symbol {
    /// The exclusive or of these source symbols, at least one.
    Bits(u64),
    /// A source symbol of a block with Cauchy sums.
    CauchySource(u8),
    /// A repair symbol of such a block.
    CauchyRepair(u8),
}

impl Default for Block {
    fn default() -> Self {
        Self {
            echelon: [0; MAX_BLOCK_SYMBOLS],
            aside: [0; MAX_BLOCK_SYMBOLS],
            repairs: [0; 4],
            sources: 0,
            plain: 0,
            symbols: 0,
            aside_len: 0,
        }
    }
}

impl Block {
    /// Begins again, with a block of `symbols` source symbols.
    pub(super) fn start(&mut self, symbols: usize) {
        // What is kept aside needs no clearing: only so many are looked at.
        self.echelon[..symbols].fill(0);
        self.repairs = [0; 4];
        (self.sources, self.plain) = (0, 0);
        (self.symbols, self.aside_len) = (symbols as u8, 0);
    }

    /// Source symbols that the block has.
    pub(super) fn symbols(&self) -> usize {
        self.symbols.into()
    }

    /// Whether the symbols held tell all source symbols.
    #[inline]
    pub(super) fn is_complete(&self) -> bool {
        (self.sources.count_ones() as usize).saturating_add(self.aside()) == self.symbols()
    }

    /// Takes a symbol if it tells something new, and says where to put it.
    #[inline]
    pub(super) fn take(&mut self, symbol: Symbol) -> Option<Slot> {
        match symbol {
            _ if self.is_complete() => None,
            Symbol::Bits(bits) => self.take_bits(bits),
            Symbol::CauchySource(index) => {
                let bit = 1 << index;
                let is_new = self.sources & bit == 0;
                self.sources |= bit;
                is_new.then_some(Slot::Source(index.into()))
            }
            Symbol::CauchyRepair(repair) => {
                let word = &mut self.repairs[usize::from(repair / 64)];
                let bit = 1 << (repair % 64);
                let is_new = *word & bit == 0;
                *word |= bit;
                is_new.then(|| self.put_aside(repair.into()))
            }
        }
    }

    #[inline]
    fn take_bits(&mut self, bits: u64) -> Option<Slot> {
        // Reducing by a row that is one source symbol clears its bit alone.
        let mut rest = bits & !self.plain;
        let pivot = loop {
            if rest == 0 {
                return None;
            }
            let lowest = rest.trailing_zeros() as usize;
            match self.echelon[lowest] {
                0 => break lowest,
                row => rest ^= row,
            }
        };
        self.echelon[pivot] = rest;
        if rest.is_power_of_two() {
            self.plain |= rest;
        }
        if bits.is_power_of_two() {
            self.sources |= bits;
            Some(Slot::Source(bits.trailing_zeros() as usize))
        } else {
            Some(self.put_aside(bits))
        }
    }

    fn put_aside(&mut self, row: u64) -> Slot {
        let position = self.aside();
        self.aside[position] = row;
        self.aside_len = self.aside_len.saturating_add(1);
        Slot::Aside(position)
    }

    fn aside(&self) -> usize {
        self.aside_len.into()
    }

    /// The source symbols that are not held as themselves, in order. Once the
    /// block is complete, as many symbols are kept aside; the `k`th of those
    /// takes the place of the `k`th lost one in what [`Self::solve_bits`] tells.
    pub(super) fn lost(&self) -> Lost {
        let mut lost = Lost::default();
        let mut rest = all_of(self.symbols()) & !self.sources;
        while rest != 0 {
            lost.symbols[lost.len] = rest.trailing_zeros() as u8;
            lost.len = lost.len.saturating_add(1);
            rest &= rest.wrapping_sub(1);
        }
        lost
    }

    /// For each lost source symbol the symbols whose exclusive or it is, in
    /// `sums`; `MOST` is at least the number of lost ones.
    pub(super) fn solve_bits<const MOST: usize>(&self, lost: &[u8], sums: &mut [u64; MOST]) {
        let mut rows = [0; MOST];
        for (position, &symbol) in lost.iter().enumerate() {
            rows[position] = self.aside[position] & !self.sources;
            sums[position] = self.aside[position] & self.sources | 1 << symbol;
        }
        for (column, &symbol) in lost.iter().enumerate() {
            let has_column = |row: &u64| row >> symbol & 1 == 1;
            let Some(pivot) = rows[column..lost.len()].iter().position(has_column) else {
                unreachable!("rows were taken only if independent");
            };
            let pivot = column.saturating_add(pivot);
            rows.swap(column, pivot);
            sums.swap(column, pivot);
            let (row, sum) = (rows[column], sums[column]);
            for (position, (other, other_sum)) in
                rows[..lost.len()].iter_mut().zip(&mut *sums).enumerate()
            {
                let is_due = *other >> symbol & u64::from(position != column);
                let mask = (is_due & 1).wrapping_neg();
                *other ^= row & mask;
                *other_sum ^= sum & mask;
            }
        }
    }

    /// The repair rows that are kept aside.
    pub(super) fn repairs(&self) -> [u8; MAX_BLOCK_SYMBOLS] {
        self.aside.map(|row| row as u8)
    }
}

/// Source symbols of a block that were lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lost {
    symbols: [u8; MAX_BLOCK_SYMBOLS],
    len: usize,
}

impl Default for Lost {
    fn default() -> Self {
        Self {
            symbols: [0; MAX_BLOCK_SYMBOLS],
            len: 0,
        }
    }
}

impl core::ops::Deref for Lost {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.symbols[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Rank by plain elimination.
    fn rank(rows: &[u64]) -> usize {
        let mut rows = rows.to_vec();
        let mut rank = 0;
        for bit in 0..64 {
            if let Some(pivot) = (rank..rows.len()).find(|&row| rows[row] >> bit & 1 == 1) {
                rows.swap(rank, pivot);
                for row in rank + 1..rows.len() {
                    if rows[row] >> bit & 1 == 1 {
                        rows[row] ^= rows[rank];
                    }
                }
                rank += 1;
            }
        }
        rank
    }

    fn rows() -> impl Strategy<Value = (usize, Vec<u64>)> {
        (1usize..=64).prop_flat_map(|n| {
            let some = (any::<u64>(), any::<u64>()).prop_map(|(a, b)| a & b);
            let one = (0..n).prop_map(|index| 1u64 << index);
            let row = prop_oneof![some, one, any::<u64>()];
            let row = row.prop_map(move |bits| (bits & all_of(n)).max(1));
            (Just(n), prop::collection::vec(row, 0..100))
        })
    }

    proptest! {
        #[test]
        fn takes_what_raises_the_rank((n, rows) in rows()) {
            let mut block = Block::default();
            block.start(n);
            for end in 0..rows.len() {
                let before = rank(&rows[..end]);
                let taken = block.take(Symbol::Bits(rows[end])).is_some();
                prop_assert_eq!(taken, rank(&rows[..=end]) > before);
                prop_assert_eq!(block.is_complete(), before + usize::from(taken) == n);
            }
        }

        #[test]
        fn solution_is_each_lost_symbol((n, rows) in rows()) {
            let mut block = Block::default();
            block.start(n);
            let mut aside = Vec::new();
            for row in rows {
                if let Some(Slot::Aside(_)) = block.take(Symbol::Bits(row)) {
                    aside.push(row);
                }
            }
            if block.is_complete() {
                let lost = block.lost();
                let mut sums = [0; MAX_BLOCK_SYMBOLS];
                block.solve_bits(&lost, &mut sums);
                for (&symbol, &sum) in lost.iter().zip(&sums) {
                    let held = lost.iter().zip(&aside);
                    let stand_ins = held.filter(|&(lost, _)| sum >> lost & 1 == 1);
                    let sources = sum & block.sources;
                    let total = stand_ins.fold(sources, |total, (_, row)| total ^ row);
                    prop_assert_eq!(total, 1 << symbol);
                }
            }
        }
    }

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn size_is_as_documented() {
        assert_eq!(size_of::<Block>(), 1_080);
    }
}
