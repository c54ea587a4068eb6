//! The experiment behind both halves of Cloudburst's figure 7: messages of `n`
//! symbols, packets of fixed degree `d`, decoded as they come.

use cloudburst_code::PaperDegree;
use flow_report::Summary;
use rand::{Rng, RngExt};

use crate::{
    elimination::{Elimination, SymbolSet, peeling_operations},
    trials,
};

/// Source symbols of a message.
pub const SYMBOLS: [usize; 7] = [8, 16, 32, 64, 128, 256, 512];

/// Degrees that are measured.
pub const DEGREES: std::ops::RangeInclusive<usize> = 1..=10;

/// The degree that the paper recommends, which is the crate's.
pub const RECOMMENDED_DEGREE: usize = PaperDegree::DEGREE as usize;

/// Measurements for one `n` and `d`.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    /// Source symbols of a message.
    pub n: usize,
    /// Picks, with replacement, that make a packet's set.
    pub degree: usize,
    /// Packets until the message could be decoded.
    pub needed: Summary,
    /// XOR operations on payloads, by [`Accounting`].
    operations: [Summary; Accounting::ALL.len()],
}

/// Ways to count XOR operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accounting {
    /// Rows first, payloads last: each symbol is the sum of so many packets.
    Sums,
    /// Every operation on a row is done on its payload at once.
    Elimination,
    /// Elimination, and so for packets that turn out to be of no use.
    EveryPacket,
    /// Peeling as far as it goes, then elimination of what is left.
    Peeling,
    /// Elimination, and what the sender spent on the packets.
    WithEncoding,
}

impl Accounting {
    /// All, that of the headline first.
    pub const ALL: [Self; 5] = [
        Self::Sums,
        Self::Elimination,
        Self::EveryPacket,
        Self::Peeling,
        Self::WithEncoding,
    ];

    /// Its name in tables and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sums => "sums",
            Self::Elimination => "elimination",
            Self::EveryPacket => "every_packet",
            Self::Peeling => "peeling",
            Self::WithEncoding => "with_encoding",
        }
    }
}

impl Cell {
    /// Packets needed for each source symbol.
    pub fn overhead(&self) -> f64 {
        self.needed.mean() / self.n as f64
    }

    /// XOR operations by that accounting.
    pub fn operations(&self, accounting: Accounting) -> &Summary {
        &self.operations[accounting as usize]
    }
}

/// All cells, by `n` and then by `d`.
#[derive(Clone, Debug)]
pub struct Sweep {
    cells: Vec<Cell>,
}

impl Sweep {
    /// Decodes `trials` messages in each cell; `done` hears of every cell.
    pub fn measure(trials: u64, seed: u64, done: impl Fn()) -> Self {
        let mut cells = Vec::new();
        for n in SYMBOLS {
            for degree in DEGREES {
                cells.push(measure(n, degree, trials, seed));
                done();
            }
        }
        Self { cells }
    }

    /// How many cells there are.
    pub fn cell_count() -> usize {
        SYMBOLS.len() * DEGREES.count()
    }

    /// Returns all of the cells.
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// The cells of messages of `n` symbols, by degree.
    pub fn of_size(&self, n: usize) -> &[Cell] {
        let Some(place) = SYMBOLS.iter().position(|it| *it == n) else {
            return &[];
        };
        let degrees = DEGREES.count();
        &self.cells[place * degrees..][..degrees]
    }

    /// One of [`SYMBOLS`] and of [`DEGREES`].
    pub fn cell(&self, n: usize, degree: usize) -> &Cell {
        &self.of_size(n)[degree - DEGREES.start()]
    }
}

fn measure(n: usize, degree: usize, trials: u64, seed: u64) -> Cell {
    let decode = |decoded: &mut Vec<Decoded>, trial| {
        let mut random = trials::random(seed, [n as u32, degree as u32], trial);
        decoded.push(decode_one(n, degree, &mut random));
    };
    let decoded = trials::run(trials, Vec::new, decode, |all, more| all.extend(more));
    let summary =
        |value: &dyn Fn(&Decoded) -> u64| Summary::new(decoded.iter().map(|it| value(it) as f64));
    Cell {
        n,
        degree,
        needed: summary(&|it| it.needed),
        operations: Accounting::ALL.map(|it| summary(&|decoded| decoded.operations[it as usize])),
    }
}

/// One message that was decoded.
struct Decoded {
    /// Packets until it was decoded.
    needed: u64,
    /// XOR operations, by [`Accounting`].
    operations: [u64; Accounting::ALL.len()],
}

fn decode_one(n: usize, degree: usize, random: &mut impl Rng) -> Decoded {
    let mut elimination = Elimination::new(n);
    let mut packets = Vec::new();
    let mut encoding = 0;
    while !elimination.is_complete() {
        let mut packet = SymbolSet::new(n);
        for _ in 0..degree {
            packet.insert(random.random_range(0..n));
        }
        encoding += packet.len() - 1;
        elimination.receive(&packet);
        packets.push(packet);
    }
    let solution = elimination.solve();
    let operations = |accounting| match accounting {
        Accounting::Sums => solution.sums,
        Accounting::Elimination => solution.operations,
        Accounting::EveryPacket => solution.with_redundant,
        Accounting::Peeling => peeling_operations(n, &packets),
        Accounting::WithEncoding => solution.operations + encoding,
    };
    Decoded {
        needed: packets.len() as u64,
        operations: Accounting::ALL.map(operations),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn degree_one_collects_coupons() {
        let cell = measure(8, 1, 2_000, 1);
        // 8 (1 + 1/2 + ... + 1/8) = 21.74
        assert!((cell.needed.mean() - 21.74).abs() < 0.6, "{cell:?}");
        for accounting in Accounting::ALL {
            // A coupon drawn again is subtracted from itself.
            let operations = match accounting {
                Accounting::EveryPacket => cell.needed.mean() - 8.0,
                _ => 0.0,
            };
            assert_eq!(cell.operations(accounting).mean(), operations);
        }
    }

    #[test]
    fn even_degrees_decode_thanks_to_repeated_picks() {
        let cell = measure(8, 2, 50, 1);
        assert!(cell.overhead() > 1.0 && cell.overhead() < 4.0);
    }
}
