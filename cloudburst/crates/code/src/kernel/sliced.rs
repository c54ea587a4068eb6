//! Sums over GF(256) by exclusive or alone, for processors without tables in registers.
//!
//! A stretch of a symbol is turned into [bit planes](super::planes). Each plane of a sum is the exclusive or of
//! the planes that a weight's bit matrix has. Of four planes all sixteen sums are kept in a
//! table (Arlazarov et al. 1970), and are there for all outputs: a product takes two
//! exclusive ors for each plane.

use core::ops::Range;

use super::WeightedTask;
use super::planes::{self, Planes};
use crate::gf256::MATRICES;

/// Words of 8 bytes of a plane, which compilers put into vectors where there are any: enough to
/// make up for looking up which planes to add.
const WORDS: usize = 8;

/// Bytes of a symbol that are worked on at once.
const STRETCH: usize = 8 * PLANE_BYTES;
const PLANE_BYTES: usize = 8 * WORDS;

type Plane = planes::Plane<WORDS>;

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
                    let mut planes = unsafe { planes::load(input.add(at), len) };
                    planes::transpose(&mut planes);
                    *table = table_of(&planes);
                }
                let weights = weights.chunks_exact(n).map(|row| {
                    let first = number * INPUTS;
                    &row[first..first + inputs.len()]
                });
                for (sum, weights) in sums.iter_mut().zip(weights) {
                    add(sum, &tables, weights);
                }
            }
            for (sum, output) in sums.iter_mut().zip(outputs) {
                planes::transpose(sum);
                // SAFETY: as above; nothing that is borrowed overlaps the output.
                unsafe { planes::store(sum, output.add(at), len) };
            }
        }
    }
}

/// Adds inputs, times their weights, to an output.
#[inline(always)]
fn add(sum: &mut Planes<WORDS>, tables: &[[Plane; 32]; INPUTS], weights: &[u8]) {
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
fn table_of(planes: &Planes<WORDS>) -> [Plane; 32] {
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
