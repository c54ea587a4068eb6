//! Gaussian elimination on the fly over GF(2), for any number of symbols.
//!
//! The instrument for figures that go beyond the 64 symbols of the wire. It
//! knows no payloads, but counts what work they would be.

/// A set of symbols.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SymbolSet {
    words: Box<[u64]>,
}

impl SymbolSet {
    /// An empty set, for symbols below `n`.
    pub fn new(n: usize) -> Self {
        Self {
            words: vec![0; n.div_ceil(64)].into(),
        }
    }

    /// All symbols below `n`.
    pub fn all(n: usize) -> Self {
        let mut all = Self::new(n);
        (0..n).for_each(|symbol| all.insert(symbol));
        all
    }

    /// Adds a symbol; one that is there already stays.
    pub fn insert(&mut self, symbol: usize) {
        self.words[symbol / 64] |= 1 << (symbol % 64);
    }

    /// Returns whether the symbol is there.
    pub fn contains(&self, symbol: usize) -> bool {
        self.words[symbol / 64] >> (symbol % 64) & 1 != 0
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.words
            .iter()
            .map(|word| u64::from(word.count_ones()))
            .sum()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.lowest().is_none()
    }

    /// Returns the lowest symbol.
    pub fn lowest(&self) -> Option<usize> {
        let word = self.words.iter().position(|word| *word != 0)?;
        Some(word * 64 + self.words[word].trailing_zeros() as usize)
    }

    /// Returns the intersection with `other`.
    pub fn and(&self, other: &Self) -> Self {
        let both = self.words.iter().zip(&other.words).map(|(a, b)| a & b);
        Self {
            words: both.collect(),
        }
    }

    /// Takes out what is in both, and puts in what is in `other` alone.
    pub fn xor(&mut self, other: &Self) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word ^= other;
        }
    }
}

/// Rows in echelon form, each with the packets that it is the sum of.
#[derive(Clone, Debug)]
pub struct Elimination {
    n: usize,
    /// The row at `p` has `p` as its lowest symbol.
    rows: Vec<Option<Row>>,
    rank: usize,
    operations: u64,
    redundant_operations: u64,
}

#[derive(Clone, Debug)]
struct Row {
    symbols: SymbolSet,
    /// Numbers of packets that were of use, in the order of their arrival.
    packets: SymbolSet,
}

impl Elimination {
    /// For a message of `n` symbols.
    pub fn new(n: usize) -> Self {
        Self {
            n,
            rows: vec![None; n],
            rank: 0,
            operations: 0,
            redundant_operations: 0,
        }
    }

    /// Packets that were of use.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Returns whether all symbols follow from the packets.
    pub fn is_complete(&self) -> bool {
        self.rank == self.n
    }

    /// Takes a packet, and says whether it is of use.
    pub fn receive(&mut self, set: &SymbolSet) -> bool {
        let mut symbols = set.clone();
        let mut packets = SymbolSet::new(self.n);
        let mut operations = 0;
        while let Some(pivot) = symbols.lowest() {
            match &self.rows[pivot] {
                Some(row) => {
                    symbols.xor(&row.symbols);
                    packets.xor(&row.packets);
                    operations += 1;
                }
                None => {
                    packets.insert(self.rank);
                    self.rows[pivot] = Some(Row { symbols, packets });
                    self.rank += 1;
                    self.operations += operations;
                    return true;
                }
            }
        }
        self.redundant_operations += operations;
        false
    }

    /// Solves for the symbols by substitution from the last one back.
    pub fn solve(mut self) -> Solution {
        for pivot in (0..self.n).rev() {
            let (before, after) = self.rows.split_at_mut(pivot + 1);
            let Some(row) = &mut before[pivot] else {
                continue;
            };
            for (above, other) in (pivot + 1..).zip(after.iter()) {
                let Some(other) = other.as_ref().filter(|_| row.symbols.contains(above)) else {
                    continue;
                };
                row.symbols.xor(&other.symbols);
                row.packets.xor(&other.packets);
                self.operations += 1;
            }
        }
        let sums = self.rows.iter().flatten().map(|row| row.packets.len());
        Solution {
            operations: self.operations,
            with_redundant: self.operations + self.redundant_operations,
            sums: sums.map(|packets| packets - 1).sum(),
        }
    }
}

/// Cost of computing the symbols, in XOR operations on whole symbols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Solution {
    /// If each operation on a row that was of use is done on its payload too.
    pub operations: u64,
    /// If those on rows that turn out to be of no use are done on payloads too.
    pub with_redundant: u64,
    /// If each symbol is computed as a sum of packets once it is known of which.
    pub sums: u64,
}

/// XOR operations on payloads of a decoder that peels as far as it gets and
/// eliminates only among what is left then.
pub fn peeling_operations(n: usize, packets: &[SymbolSet]) -> u64 {
    let mut unknown = SymbolSet::all(n);
    let mut operations = 0;
    let mut progress = true;
    while progress {
        progress = false;
        for packet in packets {
            let rest = packet.and(&unknown);
            if rest.len() == 1 {
                operations += packet.len() - 1;
                unknown.xor(&rest);
                progress = true;
            }
        }
    }
    let mut elimination = Elimination::new(n);
    for packet in packets {
        let rest = packet.and(&unknown);
        if elimination.receive(&rest) {
            // What is known is taken out of the payloads that are kept.
            operations += packet.len() - rest.len();
        }
    }
    operations + elimination.solve().operations
}

#[cfg(test)]
mod tests {
    use cloudburst_code::{
        Decoder, Received, Shape,
        wire::{Header, Row},
    };
    use rand::RngExt;

    use super::*;
    use crate::trials;

    fn set(n: usize, symbols: &[usize]) -> SymbolSet {
        let mut set = SymbolSet::new(n);
        symbols.iter().for_each(|symbol| set.insert(*symbol));
        set
    }

    fn solved(n: usize, packets: &[SymbolSet]) -> Solution {
        let mut elimination = Elimination::new(n);
        for packet in packets {
            elimination.receive(packet);
        }
        assert!(elimination.is_complete());
        elimination.solve()
    }

    #[test]
    fn a_chain_is_counted_by_hand() {
        // a, a+b, b+c: b and c cost one operation each as they are peeled.
        let packets = [set(3, &[0]), set(3, &[0, 1]), set(3, &[1, 2])];
        assert_eq!(peeling_operations(3, &packets), 2);
        // c is the sum of all three packets.
        let solution = Solution {
            operations: 2,
            with_redundant: 2,
            sums: 3,
        };
        assert_eq!(solved(3, &packets), solution);
        // a+b once more is reduced by both rows to nothing.
        let packets = [&packets[..2], &packets[1..]].concat();
        let with_redundant = solution.with_redundant + 2;
        let expected = Solution {
            with_redundant,
            ..solution
        };
        assert_eq!(solved(3, &packets), expected);
    }

    #[test]
    fn what_peeling_cannot_do_is_eliminated() {
        let packets = [set(3, &[0, 1]), set(3, &[1, 2]), set(3, &[0, 1, 2])];
        let eliminated = solved(3, &packets).operations;
        assert_eq!(peeling_operations(3, &packets), eliminated);
    }

    #[test]
    fn sets_of_more_than_a_word() {
        let mut elimination = Elimination::new(130);
        assert!(elimination.receive(&set(130, &[5, 129])));
        assert!(elimination.receive(&set(130, &[5, 64])));
        assert!(
            !elimination.receive(&set(130, &[64, 129])),
            "the sum of both"
        );
        assert_eq!(elimination.rank(), 2);
        assert_eq!(SymbolSet::all(130).len(), 130);
        assert!(SymbolSet::new(130).is_empty());
    }

    /// Rows that complete a message here do so in the crate's decoder.
    #[test]
    fn agrees_with_the_decoder_on_the_wire() {
        for n in [1, 2, 3, 7, 8, 33, 64] {
            for trial in 0..50 {
                let mut random = trials::random(1, [n as u32, 0], trial);
                let mut elimination = Elimination::new(n);
                let mut decoder = Decoder::for_shape(&Shape::new(n, 1).unwrap());
                while !elimination.is_complete() {
                    let mut symbols = SymbolSet::new(n);
                    for _ in 0..random.random_range(1..6) {
                        symbols.insert(random.random_range(0..n));
                    }
                    let header = Header {
                        id: 0,
                        block_symbols: n as u8,
                        message_bytes: n as u32,
                        row: Row::Bits(symbols.words[0]),
                    };
                    let datagram = [&header.to_bytes()[..], &[0]].concat();
                    let received = decoder.receive(&datagram);
                    assert_eq!(received.is_ok(), elimination.receive(&symbols));
                    let complete = received == Ok(Received::Complete);
                    assert_eq!(complete, elimination.is_complete());
                }
            }
        }
    }
}
