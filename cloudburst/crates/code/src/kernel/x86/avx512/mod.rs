//! 512-bit vectors.

mod grouping;
mod transform;
mod weighted;
mod xor;

pub(in crate::kernel) use self::{transform::transform, weighted::weighted, xor::xor};

const VECTOR: usize = 64;

/// The truth table for a ternary instruction.
const EXCLUSIVE_OR_OF_THREE: i32 = 0x96;

/// Selects the first `count` bytes of a vector.
const fn first_bytes(count: usize) -> u64 {
    !0 >> (VECTOR - count)
}
