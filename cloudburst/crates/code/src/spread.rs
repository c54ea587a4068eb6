//! Rows over GF(2) that tell few losses apart as soon as can be.
//!
//! Random halves leave two lost symbols unresolved with probability 2^-k after
//! k rows. Rows of the parity-check matrix of an extended BCH code (Hocquenghem
//! 1959; Bose, Ray-Chaudhuri 1960) do better: source symbol j is an element x of
//! GF(2^k), and the rows are the bits of x, of x^3 and of x^5. With the row of
//! all symbols in front, the first k of them mend any three losses for certain,
//! 2k any five, and 3k any seven; rows that are lost themselves leave a good
//! code still.
//!
//! Which symbol is which element is drawn for each message, so that a pattern
//! of losses that suits one message badly is a matter of chance in the next. So
//! is which of the rows are complemented: without that, the symbol that is 0
//! would be in no row, and unknown for long when the row of all is lost.

#![cfg_attr(
    not(test),
    expect(
        clippy::arithmetic_side_effects,
        reason = "a block has 1 to 64 symbols, hence 6 stages and 18 rows at most: a row beyond them is not looked up"
    )
)]

use rand_core::Rng;

/// Spread row `index`, if there is one for a block of `n` symbols; it may have
/// bits beyond `n`. `random` begins the random numbers of the message.
pub(super) fn row<R: Rng>(n: usize, index: usize, random: impl FnOnce() -> R) -> Option<u64> {
    let log = n.next_power_of_two().ilog2() as usize;
    let row = *ROWS[log].get(index).filter(|_| index < row_count(log))?;
    let mut random = random();
    let complement = 0u64.wrapping_sub(random.next_u64() >> index & 1);
    Some(permuted(row, log, random) ^ complement)
}

/// The lowest 2^`log` bits in another order: a butterfly network with random
/// switches. It makes not every order, but takes each bit anywhere, and six
/// steps for all 64.
fn permuted(mut bits: u64, log: usize, mut random: impl Rng) -> u64 {
    for (stage, &lower) in LOWER_HALVES[..log].iter().enumerate() {
        let distance = 1 << stage;
        let swapped = (bits >> distance ^ bits) & lower & random.next_u64();
        bits ^= swapped ^ swapped << distance;
    }
    bits
}

/// As many exponents as have rows that are all independent.
const fn row_count(log: usize) -> usize {
    log.div_ceil(2) * log
}

/// By the logarithm of the field's order: the bits of each power in turn.
static ROWS: [[u64; MOST_ROWS]; 7] = [
    rows(0),
    rows(1),
    rows(2),
    rows(3),
    rows(4),
    rows(5),
    rows(6),
];

const MOST_ROWS: usize = row_count(6);

/// Primitive polynomials of degree 1 to 6.
const POLYNOMIALS: [u8; 7] = [0, 0b11, 0b111, 0b1011, 0b1_0011, 0b10_0101, 0b100_0011];

/// Bits whose number has a 0 at the stage's place.
const LOWER_HALVES: [u64; 6] = [
    0x5555_5555_5555_5555,
    0x3333_3333_3333_3333,
    0x0f0f_0f0f_0f0f_0f0f,
    0x00ff_00ff_00ff_00ff,
    0x0000_ffff_0000_ffff,
    0x0000_0000_ffff_ffff,
];

const fn rows(log: usize) -> [u64; MOST_ROWS] {
    let mut rows = [0; MOST_ROWS];
    let mut x = 0;
    while x < 1 << log {
        let square = product(log, x, x);
        let mut power = x;
        let mut row = 0;
        while row < row_count(log) {
            let bit = row % log;
            if row > 0 && bit == 0 {
                power = product(log, power, square);
            }
            rows[row] |= (power as u64 >> bit & 1) << x;
            row += 1;
        }
        x += 1;
    }
    rows
}

/// Of two elements of GF(2^`log`).
const fn product(log: usize, a: u8, b: u8) -> u8 {
    let mut product = 0;
    let mut bit = log;
    while bit > 0 {
        bit -= 1;
        product <<= 1;
        if product >> log & 1 != 0 {
            product ^= POLYNOMIALS[log];
        }
        if b >> bit & 1 != 0 {
            product ^= a;
        }
    }
    product
}

#[cfg(test)]
mod tests {
    use super::{super::schedule::all_of, *};
    use rand_core::SeedableRng;
    use rand_xoshiro::SplitMix64;

    fn of_message(n: usize, seed: u64) -> Vec<u64> {
        let row = |index| row(n, index, || SplitMix64::seed_from_u64(seed));
        (0..).map_while(row).collect()
    }

    /// Whether some of the columns in `lost` add up to nothing.
    fn ambiguous(rows: &[u64], lost: u64) -> bool {
        rows.iter()
            .all(|row| (row & lost).count_ones().is_multiple_of(2))
    }

    #[test]
    fn as_many_as_the_field_has_room_for() {
        let counts = [1, 2, 4, 5, 8, 16, 32, 33, 64].map(|n| of_message(n, 1).len());
        assert_eq!(counts, [0, 1, 2, 6, 6, 8, 15, 18, 18]);
    }

    #[test]
    fn rows_have_about_half() {
        for n in [2, 4, 8, 16, 32, 64] {
            for row in of_message(n, 3) {
                let weight = (row & all_of(n)).count_ones() as usize;
                assert!(weight.abs_diff(n / 2) <= n / 4, "n = {n}: {weight}");
            }
        }
    }

    /// With the row of all: any three losses by k rows, any five by 2k.
    #[test]
    fn few_losses_are_mended_for_certain() {
        let (n, k) = (32, 5);
        let mut rows = of_message(n, 5);
        rows.insert(0, all_of(n));
        let pairs = || (0..n).flat_map(|a| (0..a).map(move |b| 1u64 << a | 1 << b));
        for pair in pairs() {
            assert!(!ambiguous(&rows[..=k], pair));
            for other in pairs().filter(|other| other & pair == 0) {
                assert!(!ambiguous(&rows[..=2 * k], pair | other));
            }
        }
    }

    #[test]
    fn messages_differ() {
        assert_ne!(of_message(64, 1), of_message(64, 2));
        assert_ne!(of_message(8, 1), of_message(8, 2));
    }
}
