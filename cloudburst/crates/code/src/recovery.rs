//! Computes the source symbols that a complete block lacks.

use core::ops::Range;

use super::{
    block::Block,
    cauchy,
    cauchy_sum::Sources,
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
    let mut stand_ins = [core::ptr::null_mut(); MOST];
    for (position, (&symbol, output)) in lost.iter().zip(&mut outputs).enumerate() {
        *output = inputs[usize::from(symbol)].cast_mut();
        stand_ins[position] = at(aside(shape, index, position));
        inputs[usize::from(symbol)] = stand_ins[position].cast_const();
    }
    if family == Family::Cauchy {
        let repairs = &block.repairs()[..lost.len()];
        let inputs = &mut inputs[..n];
        let sources = Sources {
            simd,
            symbols: inputs,
        };
        let cost = sources.transform_cost(repairs);
        let (solved, summed) = (
            lost.len().saturating_mul(lost.len()),
            n.saturating_mul(lost.len()),
        );
        if cost.is_some_and(|cost| cost.saturating_add(solved) < summed) {
            lost.iter()
                .for_each(|&symbol| inputs[usize::from(symbol)] = core::ptr::null());
            let syndromes = Syndromes {
                simd,
                inputs,
                lost,
                repairs,
                outputs: &outputs[..lost.len()],
                stand_ins: &stand_ins[..lost.len()],
            };
            // SAFETY: all symbols of the block are in `bytes`, none overlaps another, and those
            // that are not null have been received.
            unsafe { syndromes.recover::<MOST>(shape.symbol_bytes(), shape.short_symbol(index)) };
            return;
        }
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
            let weights = &mut weights.as_flattened_mut()[..n.saturating_mul(lost.len())];
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
        job.outputs = &job.outputs[..lost.len().saturating_sub(1)];
    } else {
        job.leave_out(short);
    }
    // SAFETY: see `compute`; the short symbol is neither read nor written.
    unsafe { job.compute(short_bytes..symbol_bytes) };
}

/// Recovery in two steps: the transform takes the source symbols at hand out of the repair
/// symbols, and what then remains of these, the syndromes, is solved for the lost ones.
struct Syndromes<'a> {
    simd: Simd,
    /// The source symbols; those lost are null.
    inputs: &'a mut [*const u8],
    lost: &'a [u8],
    repairs: &'a [u8],
    /// The places of the lost ones.
    outputs: &'a [*mut u8],
    /// The repair symbols, which are overwritten.
    stand_ins: &'a [*mut u8],
}

impl Syndromes<'_> {
    /// # Safety
    ///
    /// Symbols have so many bytes, but for the short one; none overlaps another.
    unsafe fn recover<const MOST: usize>(self, symbol_bytes: usize, short: Option<(usize, usize)>) {
        let (short, short_bytes) = short.unwrap_or((0, symbol_bytes));
        let mut weights = [[0; MOST]; MOST];
        let count = self.lost.len();
        let weights = &mut weights.as_flattened_mut()[..count.saturating_mul(count)];
        cauchy::invert(self.lost, self.repairs, weights);
        let mut pointers = [core::ptr::null(); MOST];
        for (pointer, stand_in) in pointers.iter_mut().zip(self.stand_ins) {
            *pointer = stand_in.cast_const();
        }
        let task = |outputs| WeightedTask {
            inputs: &pointers[..count],
            outputs,
            weights: &weights[..count.saturating_mul(outputs.len())],
        };
        // SAFETY: the caller vouches for the symbols. Beyond the end of the short one neither it
        // is read nor its place written.
        unsafe {
            let whole = 0..short_bytes;
            self.reduce(whole.clone());
            kernel::weighted(self.simd, &task(self.outputs), whole);
            let rest = short_bytes..symbol_bytes;
            if rest.is_empty() {
                return;
            }
            self.inputs[short] = core::ptr::null();
            let lost = self
                .lost
                .iter()
                .take_while(|&&lost| usize::from(lost) != short);
            let outputs = &self.outputs[..lost.count()];
            self.reduce(rest.clone());
            kernel::weighted(self.simd, &task(outputs), rest);
        }
    }

    /// Makes syndromes of the bytes `range` of the repair symbols.
    ///
    /// # Safety
    ///
    /// All symbols that are not null have these bytes.
    unsafe fn reduce(&self, range: Range<usize>) {
        let sources = Sources {
            simd: self.simd,
            symbols: self.inputs,
        };
        // SAFETY: the caller vouches for it.
        unsafe { sources.transform(self.repairs, self.stand_ins, true, range) };
    }
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
                    weights: &weights[..self.inputs.len().saturating_mul(self.outputs.len())],
                };
                // SAFETY: the caller vouches for it.
                unsafe { kernel::weighted(self.simd, &task, range) };
            }
        }
    }
}
