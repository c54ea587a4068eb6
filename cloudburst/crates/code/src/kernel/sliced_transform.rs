//! The additive Fourier transform on [bit planes](super::planes), for processors without tables in registers: see
//! [`crate::additive`].
//!
//! Each factor of a product has a function of its own: which planes are added to which is in its instructions. With
//! eight planes in registers a product takes 32 exclusive ors in the mean, or 25 where pairs of planes are added
//! up first that several rows have. These functions take 160 kB, which a processor of 32 bits may
//! not have, nor the registers.

use core::ops::Range;

use super::planes::{self, AT_ONCE, Plane, Planes};
use super::transform::{MAX_POINTS, Output, TransformTask};
use crate::additive::SCALED;
use crate::gf256::MATRICES;

/// Words of a plane. The planes of all points fit the nearest cache.
const WORDS: usize = 8;

/// Bytes of a symbol that are worked on at once.
const STRETCH: usize = 64 * WORDS;

type Point = Planes<WORDS>;

const ZEROS: Point = [[0; WORDS]; 8];

/// Computes the bytes `range`.
///
/// # Safety
///
/// As of [`super::transform`], except that no instructions are asked for.
pub(super) unsafe fn transform(task: &TransformTask<'_>, range: Range<usize>) {
    let mut points = [ZEROS; MAX_POINTS];
    let points = &mut points[..1 << task.log];
    let wanted = wanted(task.outputs);
    for at in range.clone().step_by(STRETCH) {
        // SAFETY: the caller vouches for the range, which has these bytes.
        unsafe {
            if range.end - at >= STRETCH {
                // Said here, so that it is known where bytes are copied.
                compute(task, points, wanted, (at, STRETCH));
            } else {
                compute(task, points, wanted, (at, range.end - at));
            }
        }
    }
}

/// Computes `len` bytes from `at` on.
///
/// # Safety
///
/// As of [`transform`], for these bytes.
#[inline(always)]
unsafe fn compute(
    task: &TransformTask<'_>,
    points: &mut [Point],
    wanted: u64,
    (at, len): (usize, usize),
) {
    for (number, point) in points.iter_mut().enumerate() {
        let input = task.inputs.get(number).filter(|input| !input.is_null());
        *point = match input {
            // SAFETY: the caller vouches for what is read.
            Some(input) => unsafe { planes::load(input.add(at), len) },
            None => ZEROS,
        };
    }
    inverse(points, task.inputs.len());
    // Of the last coefficient, which is the sum of all source symbols.
    let sum = points[points.len() - 1];
    forward(points, task.coset, wanted);
    for (point, output) in points.iter().zip(task.outputs) {
        if output.to.is_null() {
            continue;
        }
        let mut value = sum;
        ADD_PRODUCT[usize::from(output.factor)](&mut value, point);
        planes::transpose(&mut value);
        // SAFETY: the caller vouches for what is read, where it is added to, and written; nothing that is
        // borrowed overlaps it.
        unsafe {
            let to = output.to.add(at);
            if task.add {
                planes::add(&mut value, &planes::load(to, len));
            }
            planes::store(&value, to, len);
        }
    }
}

/// Which points have outputs, a bit each.
fn wanted(outputs: &[Output; MAX_POINTS]) -> u64 {
    let outputs = outputs.iter().enumerate();
    outputs.fold(0, |wanted, (point, output)| {
        wanted | u64::from(!output.to.is_null()) << point
    })
}

/// From the bytes of `n` source symbols to the polynomial's coefficients.
fn inverse(points: &mut [Point], n: usize) {
    points[..n].iter_mut().for_each(planes::transpose);
    let layers = SCALED.iter().take(points.len().ilog2() as usize);
    for (layer, factors) in layers.enumerate() {
        let distance = 1 << layer;
        // What is beyond the source symbols is zero still.
        for block in (0..n).step_by(2 * distance) {
            let factor = factors[block];
            let (lower, upper) = points[block..block + 2 * distance].split_at_mut(distance);
            for (lower, upper) in lower.iter_mut().zip(upper) {
                planes::add(upper, lower);
                if factor != 0 {
                    ADD_PRODUCT[usize::from(factor)](lower, upper);
                }
            }
        }
    }
}

/// From the coefficients to the values at a coset, of which those of the points in `wanted` are right then.
fn forward(points: &mut [Point], coset: u8, wanted: u64) {
    for layer in (0..points.len().ilog2() as usize).rev() {
        let distance = 1 << layer;
        let has_wanted = |first: usize| wanted >> first & (!0 >> (64 - distance)) != 0;
        for block in (0..points.len()).step_by(2 * distance) {
            let is_upper_wanted = has_wanted(block + distance);
            if !is_upper_wanted && !has_wanted(block) {
                continue;
            }
            let factor = SCALED[layer][usize::from(coset) + block];
            let (lower, upper) = points[block..block + 2 * distance].split_at_mut(distance);
            for (lower, upper) in lower.iter_mut().zip(upper) {
                ADD_PRODUCT[usize::from(factor)](lower, upper);
                if is_upper_wanted {
                    planes::add(upper, lower);
                }
            }
        }
    }
}

/// Adds the product of a point and a factor to another, for each factor.
static ADD_PRODUCT: [fn(&mut Point, &Point); 256] = {
    macro_rules! of_all {
        ($($high:literal)*) => { [$(
            add_product::<{ $high << 4 }>,
            add_product::<{ $high << 4 | 1 }>,
            add_product::<{ $high << 4 | 2 }>,
            add_product::<{ $high << 4 | 3 }>,
            add_product::<{ $high << 4 | 4 }>,
            add_product::<{ $high << 4 | 5 }>,
            add_product::<{ $high << 4 | 6 }>,
            add_product::<{ $high << 4 | 7 }>,
            add_product::<{ $high << 4 | 8 }>,
            add_product::<{ $high << 4 | 9 }>,
            add_product::<{ $high << 4 | 10 }>,
            add_product::<{ $high << 4 | 11 }>,
            add_product::<{ $high << 4 | 12 }>,
            add_product::<{ $high << 4 | 13 }>,
            add_product::<{ $high << 4 | 14 }>,
            add_product::<{ $high << 4 | 15 }>,
        )*] };
    }
    of_all!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
};

fn add_product<const FACTOR: u8>(sum: &mut Point, point: &Point) {
    let program = const { Program::of(MATRICES[FACTOR as usize].to_be_bytes()) };
    for at in (0..WORDS).step_by(AT_ONCE) {
        let mut terms = [[0; AT_ONCE]; 8 + PAIRS];
        for (term, plane) in terms.iter_mut().zip(point) {
            term.copy_from_slice(&plane[at..at + AT_ONCE]);
        }
        for (number, [one, other]) in (8..).zip(program.pairs) {
            let ([a, b], [c, d]) = (terms[one], terms[other]);
            terms[number] = [a ^ c, b ^ d];
        }
        // One by one: a loop would look at the rows when it runs.
        add_row(program.rows[0], &mut sum[0], &terms, at);
        add_row(program.rows[1], &mut sum[1], &terms, at);
        add_row(program.rows[2], &mut sum[2], &terms, at);
        add_row(program.rows[3], &mut sum[3], &terms, at);
        add_row(program.rows[4], &mut sum[4], &terms, at);
        add_row(program.rows[5], &mut sum[5], &terms, at);
        add_row(program.rows[6], &mut sum[6], &terms, at);
        add_row(program.rows[7], &mut sum[7], &terms, at);
    }
}

/// Adds the terms that a row has.
#[inline(always)]
fn add_row(row: u16, sum: &mut Plane<WORDS>, terms: &[[u64; AT_ONCE]; 8 + PAIRS], at: usize) {
    let mut words = [0; AT_ONCE];
    words.copy_from_slice(&sum[at..at + AT_ONCE]);
    for (bit, term) in terms.iter().enumerate() {
        if row >> bit & 1 == 1 {
            words
                .iter_mut()
                .zip(term)
                .for_each(|(sum, word)| *sum ^= word);
        }
    }
    sum[at..at + AT_ONCE].copy_from_slice(&words);
}

/// Pairs of planes that are added up once for all rows.
const PAIRS: usize = 4;

/// How a product is summed up: of planes, and of sums of pairs of planes.
struct Program {
    pairs: [[usize; 2]; PAIRS],
    /// What is added to each plane: bits 0 to 7 are planes, those above pairs.
    rows: [u16; 8],
}

impl Program {
    /// Takes the pair that most rows have, of the planes that are left, until all are taken.
    const fn of(matrix: [u8; 8]) -> Self {
        let mut program = Self {
            pairs: [[0; 2]; PAIRS],
            rows: [0; 8],
        };
        let mut row = 0;
        while row < 8 {
            program.rows[row] = matrix[row] as u16;
            row += 1;
        }
        let (mut taken, mut pair) = (0u16, 0);
        while pair < PAIRS {
            let [one, other] = most_shared(&program.rows, taken);
            let both = 1 << one | 1 << other;
            let mut row = 0;
            while row < 8 {
                if program.rows[row] & both == both {
                    program.rows[row] ^= both | 1 << (8 + pair);
                }
                row += 1;
            }
            program.pairs[pair] = [one, other];
            taken |= both;
            pair += 1;
        }
        program
    }
}

/// Returns the two planes, of those that are not taken, that most rows have together.
const fn most_shared(rows: &[u16; 8], taken: u16) -> [usize; 2] {
    let (mut best, mut most) = ([0, 0], 0);
    let mut other = 1;
    while other < 8 {
        let mut one = 0;
        while one < other {
            let both = 1u16 << one | 1 << other;
            // At least one, so that some pair is taken.
            let mut shared = 1;
            let mut row = 0;
            while row < 8 {
                if rows[row] & both == both {
                    shared += 1;
                }
                row += 1;
            }
            if taken & both == 0 && shared > most {
                (best, most) = ([one, other], shared);
            }
            one += 1;
        }
        other += 1;
    }
    best
}
