//! Sums over GF(256) by exclusive or alone, for processors without tables in registers.
//!
//! A stretch of a symbol is turned into eight planes: plane b has bit b of all its bytes. The
//! product with a weight is linear in the bits, so that each plane of a sum is the exclusive or of
//! the planes that the weight's bit matrix has. Of four planes all sixteen sums are kept in a
//! table (Arlazarov et al. 1970), and are there for all outputs: a product takes two
//! exclusive ors for each plane.

use core::ops::Range;

use super::WeightedTask;
use crate::gf256::MATRICES;

/// Words of 8 bytes of a plane, which compilers put into vectors where there are any: enough to
/// make up for looking up which planes to add.
const WORDS: usize = 8;

/// Bytes of a symbol that are worked on at once.
const STRETCH: usize = 8 * PLANE_BYTES;
const PLANE_BYTES: usize = 8 * WORDS;

type Plane = [u64; WORDS];

/// Inputs that are added between reading and writing an output's planes; their tables fit the
/// nearest cache.
const INPUTS: usize = 4;

/// Outputs for which tables are made once.
const OUTPUTS: usize = 16;

/// # Safety
///
/// As of [`super::weighted`], except that no instructions are asked for.
pub(super) unsafe fn weighted(task: &WeightedTask<'_>, range: Range<usize>) {
    let n = task.inputs.len();
    let rows = task.weights.chunks(OUTPUTS * n);
    for (outputs, weights) in task.outputs.chunks(OUTPUTS).zip(rows) {
        for at in range.clone().step_by(STRETCH) {
            let len = STRETCH.min(range.end - at);
            let mut sums = [[[0; WORDS]; 8]; OUTPUTS];
            for (number, inputs) in task.inputs.chunks(INPUTS).enumerate() {
                let mut tables = [[[0; WORDS]; 32]; INPUTS];
                for (table, input) in tables.iter_mut().zip(inputs) {
                    // SAFETY: the caller vouches for the range, which has these bytes.
                    *table = table_of(&unsafe { load(input.add(at), len) });
                }
                let weights = weights.chunks_exact(n).map(|row| {
                    let first = number * INPUTS;
                    &row[first..first + inputs.len()]
                });
                for (sum, weights) in sums.iter_mut().zip(weights) {
                    add(sum, &tables, weights);
                }
            }
            for (sum, output) in sums.iter().zip(outputs) {
                // SAFETY: as above; nothing that is borrowed overlaps the output.
                unsafe { store(sum, output.add(at), len) };
            }
        }
    }
}

/// Adds inputs, times their weights, to an output.
#[inline(always)]
fn add(sum: &mut [Plane; 8], tables: &[[Plane; 32]; INPUTS], weights: &[u8]) {
    let mut rows = [[0; 8]; INPUTS];
    for (rows, &weight) in rows.iter_mut().zip(weights) {
        *rows = MATRICES[usize::from(weight)].to_be_bytes();
    }
    // A weight that is not there is zero: its rows select the empty sums.
    for (bit, sum) in sum.iter_mut().enumerate() {
        let mut plane = *sum;
        for (rows, table) in rows.iter().zip(tables) {
            let row = usize::from(rows[bit]);
            let (low, high) = (&table[row & 15], &table[16 + (row >> 4)]);
            for ((word, low), high) in plane.iter_mut().zip(low).zip(high) {
                *word ^= low ^ high;
            }
        }
        *sum = plane;
    }
}

/// All sums of the lower four planes, and all of the upper four.
#[inline(always)]
fn table_of(planes: &[Plane; 8]) -> [Plane; 32] {
    let mut table = [[0; WORDS]; 32];
    let (lower, upper) = table.split_at_mut(16);
    let (of_lower, of_upper) = planes.split_at(4);
    for (sums, planes) in [(lower, of_lower), (upper, of_upper)] {
        for (bit, plane) in planes.iter().enumerate() {
            for index in 0..1 << bit {
                sums[1 << bit | index] = xor(&sums[index], plane);
            }
        }
    }
    table
}

#[inline(always)]
fn xor(one: &Plane, other: &Plane) -> Plane {
    let mut sum = *one;
    for (sum, word) in sum.iter_mut().zip(other) {
        *sum ^= word;
    }
    sum
}

/// The planes of `len` bytes, up to [`STRETCH`].
///
/// # Safety
///
/// They are readable.
#[inline(always)]
unsafe fn load(from: *const u8, len: usize) -> [Plane; 8] {
    let mut rows = [[0; WORDS]; 8];
    // SAFETY: the caller vouches for what is read; the rows have as many bytes, of any value.
    unsafe { from.copy_to_nonoverlapping(rows.as_mut_ptr().cast(), len) };
    transpose(&mut rows);
    rows
}

/// Writes the first `len` bytes of what has these planes.
///
/// # Safety
///
/// They are writable.
#[inline(always)]
unsafe fn store(planes: &[Plane; 8], to: *mut u8, len: usize) {
    let mut rows = *planes;
    transpose(&mut rows);
    // SAFETY: the caller vouches for what is written.
    unsafe { to.copy_from_nonoverlapping(rows.as_ptr().cast(), len) };
}

/// Swaps row and bit: what was bit b of the bytes of row r becomes bit r of those of row b. Twice
/// is as never.
#[inline(always)]
fn transpose(rows: &mut [Plane; 8]) {
    const MASKS: [(usize, u64); 3] = [
        (4, 0x0f0f_0f0f_0f0f_0f0f),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ];
    for (distance, mask) in MASKS {
        for row in (0..8).filter(|row| row & distance == 0) {
            let (lower, upper) = rows.split_at_mut(row + distance);
            for (one, other) in lower[row].iter_mut().zip(&mut upper[0]) {
                let swapped = (*one >> distance ^ *other) & mask;
                *other ^= swapped;
                *one ^= swapped << distance;
            }
        }
    }
}
