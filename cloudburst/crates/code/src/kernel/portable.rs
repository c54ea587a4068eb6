//! Plain Rust: the reference that the others are held to, and what runs where
//! there is nothing better.

use core::{ops::Range, slice};

use super::{WeightedTask, XorTask};
use crate::gf256::NIBBLES;

/// As many bytes as are summed at once, in registers on most processors.
const STRETCH: usize = 64;

/// # Safety
///
/// As of [`super::xor`], except that no instructions are asked for.
pub(super) unsafe fn xor(task: &XorTask<'_>, range: Range<usize>) {
    for at in range.clone().step_by(STRETCH) {
        let len = STRETCH.min(range.end - at);
        for &(output, mask) in task.outputs {
            let mut sum = [0; STRETCH];
            let mut rest = mask;
            while rest != 0 {
                let input = task.inputs[rest.trailing_zeros() as usize];
                rest &= rest - 1;
                // SAFETY: the caller vouches for the range, and `at + len` is in it.
                let input = unsafe { slice::from_raw_parts(input.add(at), len) };
                for (sum, byte) in sum.iter_mut().zip(input) {
                    *sum ^= byte;
                }
            }
            // SAFETY: as above; nothing that is borrowed overlaps the output.
            let output = unsafe { slice::from_raw_parts_mut(output.add(at), len) };
            output.copy_from_slice(&sum[..len]);
        }
    }
}

/// # Safety
///
/// As of [`super::weighted`], except that no instructions are asked for.
pub(super) unsafe fn weighted(task: &WeightedTask<'_>, range: Range<usize>) {
    let rows = task.weights.chunks_exact(task.inputs.len());
    for (&output, weights) in task.outputs.iter().zip(rows) {
        for at in range.clone().step_by(STRETCH) {
            let len = STRETCH.min(range.end - at);
            let mut sum = [0; STRETCH];
            for (&input, &weight) in task.inputs.iter().zip(weights) {
                // SAFETY: the caller vouches for the range, and `at + len` is in it.
                let input = unsafe { slice::from_raw_parts(input.add(at), len) };
                let [low, high] = &NIBBLES.0[usize::from(weight)];
                for (sum, byte) in sum.iter_mut().zip(input) {
                    *sum ^= low[usize::from(byte & 15)] ^ high[usize::from(byte >> 4)];
                }
            }
            // SAFETY: as above; nothing that is borrowed overlaps the output.
            let output = unsafe { slice::from_raw_parts_mut(output.add(at), len) };
            output.copy_from_slice(&sum[..len]);
        }
    }
}
