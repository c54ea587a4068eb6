//! Computes the source symbols that a complete block lacks.

use core::ops::Range;

use super::{
    block::Block,
    cauchy,
    decoder::{Family, Memory, aside},
    kernel::{self, MAX_INPUTS, MAX_OUTPUTS, Simd, WeightedTask, XorTask},
    shape::Shape,
};

/// Computes the lost source symbols of a complete block.
pub(super) fn recover(
    simd: Simd,
    shape: &Shape,
    family: Family,
    index: usize,
    block: &Block,
    bytes: &mut [u8],
) {
    let lost = block.lost();
    // Of a short message, clearing tables for a long one would be a good part
    // of the work.
    match lost.len() {
        0 => {}
        1..=FEW => recover_up_to::<FEW>(simd, shape, family, index, block, &lost, bytes),
        _ => recover_up_to::<MAX_OUTPUTS>(simd, shape, family, index, block, &lost, bytes),
    }
}

/// Up to so many lost symbols take smaller tables.
const FEW: usize = 4;

/// Computes the lost source symbols, up to `MOST` of them.
fn recover_up_to<const MOST: usize>(
    simd: Simd,
    shape: &Shape,
    family: Family,
    index: usize,
    block: &Block,
    lost: &[u8],
    bytes: &mut [u8],
) {
    assert!(
        bytes.len() >= Memory::of(shape).bytes,
        "memory was measured"
    );
    let n = block.symbols();
    let base = bytes.as_mut_ptr();
    // SAFETY: every place of a symbol and all that is aside lie in `bytes`.
    let at = |offset: usize| unsafe { base.add(offset) };
    let mut inputs = [core::ptr::null(); MAX_INPUTS];
    for (number, input) in inputs[..n].iter_mut().enumerate() {
        *input = at(shape.place(shape.symbol(index, number)).start).cast_const();
    }
    let mut outputs = [core::ptr::null_mut(); MOST];
    for (position, (&symbol, output)) in lost.iter().zip(&mut outputs).enumerate() {
        *output = inputs[usize::from(symbol)].cast_mut();
        inputs[usize::from(symbol)] = at(aside(shape, index, position)).cast_const();
    }
    let outputs = &outputs[..lost.len()];
    let (mut masks, mut weights);
    let sums = match family {
        Family::Bits | Family::Binary => {
            masks = [0; MOST];
            block.solve_bits(lost, &mut masks);
            Sums::Bits(&mut masks[..lost.len()])
        }
        Family::Cauchy => {
            weights = [[0; MAX_INPUTS]; MOST];
            let weights = &mut weights.as_flattened_mut()[..n * lost.len()];
            cauchy::interpolate(n, lost, &block.repairs()[..lost.len()], weights);
            Sums::Weights(weights)
        }
    };
    let mut job = Recovery::<MOST> {
        simd,
        inputs: &mut inputs[..n],
        outputs,
        sums,
    };
    let symbol_bytes = shape.symbol_bytes();
    let Some((short, short_bytes)) = shape.short_symbol(index) else {
        // SAFETY: see `compute`; all symbols are whole.
        unsafe { job.compute(0..symbol_bytes) };
        return;
    };
    // SAFETY: see `compute`; all symbols, the short one too, have these bytes.
    unsafe { job.compute(0..short_bytes) };
    if lost.last() == Some(&(short as u8)) {
        // The rest of the short symbol is nobody's.
        job.outputs = &job.outputs[..lost.len() - 1];
    } else {
        job.leave_out(short);
    }
    // SAFETY: see `compute`; the short symbol is neither read nor written.
    unsafe { job.compute(short_bytes..symbol_bytes) };
}

struct Recovery<'a, const MOST: usize> {
    simd: Simd,
    inputs: &'a mut [*const u8],
    outputs: &'a [*mut u8],
    sums: Sums<'a>,
}

enum Sums<'a> {
    Bits(&'a mut [u64]),
    Weights(&'a mut [u8]),
}

impl<const MOST: usize> Recovery<'_, MOST> {
    /// Takes the last source symbol, number `short`, out of all sums. It is one of
    /// several, or it would be lost: the first is another, and stands in for it
    /// where all are read.
    fn leave_out(&mut self, short: usize) {
        self.inputs[short] = self.inputs[0];
        match &mut self.sums {
            Sums::Bits(masks) => masks.iter_mut().for_each(|mask| *mask &= !(1 << short)),
            Sums::Weights(weights) => weights
                .chunks_exact_mut(self.inputs.len())
                .for_each(|weights| weights[short] = 0),
        }
    }

    /// Computes the bytes `range` of all outputs.
    ///
    /// # Safety
    ///
    /// All inputs can be read, all outputs written in this range, and no output
    /// is an input.
    unsafe fn compute(&self, range: Range<usize>) {
        match &self.sums {
            Sums::Bits(masks) => {
                let mut outputs = [(core::ptr::null_mut(), 0); MOST];
                for ((entry, &output), &mask) in
                    outputs.iter_mut().zip(self.outputs).zip(masks.iter())
                {
                    *entry = (output, mask);
                }
                let task = XorTask {
                    inputs: self.inputs,
                    outputs: &outputs[..self.outputs.len()],
                };
                // SAFETY: the caller vouches for it; masks have bits of inputs alone.
                unsafe { kernel::xor(self.simd, &task, range) };
            }
            Sums::Weights(weights) => {
                let task = WeightedTask {
                    inputs: self.inputs,
                    outputs: self.outputs,
                    weights: &weights[..self.inputs.len() * self.outputs.len()],
                };
                // SAFETY: the caller vouches for it.
                unsafe { kernel::weighted(self.simd, &task, range) };
            }
        }
    }
}
