//! Exclusive or of many inputs into several outputs, for vectors without lanes to pass over.
//!
//! What counts is how often inputs are read. The inputs of a group of outputs are sorted into
//! classes by which of the outputs they are part of; each class is summed up once, and its sum
//! added to those outputs, which stay in registers. Of 64 inputs and four outputs of half of them
//! that takes some 80 sums instead of 128, and 64 reads.

use core::ops::Range;

use super::{MAX_INPUTS, XorTask, vector::Vector};

/// Outputs that are summed at once: more would need more registers, and find fewer inputs alike.
const GROUP: usize = 4;

/// An input's class tells by its bits which outputs of a group the input is part of.
const CLASSES: usize = 1 << GROUP;

/// Groups that are sorted at once.
const GROUPS: usize = 8;

/// Vectors of each input that are gone through for one group before the next: what is read
/// for the first group lies in the nearest cache for the others.
const DEPTH: usize = 4;

/// From so many inputs on, what a group saves is more than it costs to sort.
const FEWEST_INPUTS: usize = 17;

/// Tells if sorting its inputs pays for a task.
pub(super) fn pays(task: &XorTask<'_>) -> bool {
    task.outputs.len() > 1 && task.inputs.len() >= FEWEST_INPUTS
}

/// Computes the bytes `range`: most of it by `W`, the rest by `N`, which is narrower.
///
/// # Safety
///
/// As of [`super::xor`]; the processor has what both vectors need.
#[inline(always)]
pub(super) unsafe fn xor<W: Vector, N: Vector>(task: &XorTask<'_>, range: Range<usize>) {
    for outputs in task.outputs.chunks(GROUPS * GROUP) {
        let mut groups = [Group::EMPTY; GROUPS];
        let groups = &mut groups[..outputs.len().div_ceil(GROUP)];
        for (group, outputs) in groups.iter_mut().zip(outputs.chunks(GROUP)) {
            group.sort(task.inputs, outputs);
        }
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min(at + DEPTH * W::BYTES);
            for (group, outputs) in groups.iter().zip(outputs.chunks(GROUP)) {
                // SAFETY: the caller vouches for the range, which has all of this.
                unsafe { group.compute::<W, N>(outputs, at..end) };
            }
            at = end;
        }
    }
}

/// The inputs of up to [`GROUP`] outputs, each once.
#[derive(Clone, Copy)]
struct Group {
    /// By class; those that are part of no output come first.
    inputs: [*const u8; MAX_INPUTS],
    /// The index at which each class ends.
    ends: [u8; CLASSES],
}

impl Group {
    const EMPTY: Self = Self {
        inputs: [core::ptr::null(); MAX_INPUTS],
        ends: [0; CLASSES],
    };

    fn sort(&mut self, inputs: &[*const u8], outputs: &[(*mut u8, u64)]) {
        let mut masks = [0; GROUP];
        for (mask, &(_, of_output)) in masks.iter_mut().zip(outputs) {
            *mask = of_output;
        }
        let class = |input: usize| {
            let bits = masks.iter().enumerate();
            bits.fold(0, |class, (bit, mask)| class | (mask >> input & 1) << bit) as usize
        };
        let mut counts = [0; CLASSES];
        let mut classes = [0; MAX_INPUTS];
        for (input, of_input) in classes[..inputs.len()].iter_mut().enumerate() {
            *of_input = class(input);
            counts[*of_input] += 1;
        }
        let mut sum = 0;
        for (end, count) in self.ends.iter_mut().zip(counts) {
            *end = sum;
            sum += count;
        }
        for (&input, &class) in inputs.iter().zip(&classes) {
            self.inputs[usize::from(self.ends[class])] = input;
            self.ends[class] += 1;
        }
    }

    /// # Safety
    ///
    /// As of [`super::xor`], for the outputs of this group.
    #[inline(always)]
    unsafe fn compute<W: Vector, N: Vector>(
        &self,
        outputs: &[(*mut u8, u64)],
        range: Range<usize>,
    ) {
        let mut at = range.start;
        // SAFETY: the caller vouches for it.
        unsafe {
            while at + W::BYTES <= range.end {
                self.sum::<W, true>(outputs, at, W::BYTES);
                at += W::BYTES;
            }
            while at + N::BYTES <= range.end {
                self.sum::<N, true>(outputs, at, N::BYTES);
                at += N::BYTES;
            }
            if at < range.end {
                self.sum::<N, false>(outputs, at, range.end - at);
            }
        }
    }

    /// `FULL` if `len` is that of a vector.
    ///
    /// # Safety
    ///
    /// As of [`super::xor`], for the outputs of this group and `len` bytes.
    #[inline(always)]
    unsafe fn sum<V: Vector, const FULL: bool>(
        &self,
        outputs: &[(*mut u8, u64)],
        at: usize,
        len: usize,
    ) {
        // SAFETY: the caller vouches for all that is read and written.
        unsafe {
            let mut sums = [V::zero(); GROUP];
            self.add::<V, FULL, 1>(&mut sums, at, len);
            self.add::<V, FULL, 2>(&mut sums, at, len);
            self.add::<V, FULL, 3>(&mut sums, at, len);
            self.add::<V, FULL, 4>(&mut sums, at, len);
            self.add::<V, FULL, 5>(&mut sums, at, len);
            self.add::<V, FULL, 6>(&mut sums, at, len);
            self.add::<V, FULL, 7>(&mut sums, at, len);
            self.add::<V, FULL, 8>(&mut sums, at, len);
            self.add::<V, FULL, 9>(&mut sums, at, len);
            self.add::<V, FULL, 10>(&mut sums, at, len);
            self.add::<V, FULL, 11>(&mut sums, at, len);
            self.add::<V, FULL, 12>(&mut sums, at, len);
            self.add::<V, FULL, 13>(&mut sums, at, len);
            self.add::<V, FULL, 14>(&mut sums, at, len);
            self.add::<V, FULL, 15>(&mut sums, at, len);
            for (&(output, _), sum) in outputs.iter().zip(sums) {
                let output = output.add(at);
                if FULL {
                    sum.store(output);
                } else {
                    sum.store_part(output, len);
                }
            }
        }
    }

    /// Adds the inputs of a class to the outputs that they are part of.
    ///
    /// # Safety
    ///
    /// The requirements are those of [`Self::sum`].
    #[inline(always)]
    unsafe fn add<V: Vector, const FULL: bool, const CLASS: usize>(
        &self,
        sums: &mut [V; GROUP],
        at: usize,
        len: usize,
    ) {
        let range = usize::from(self.ends[CLASS - 1])..usize::from(self.ends[CLASS]);
        // SAFETY: the caller vouches for what is read; classes end within the list.
        unsafe {
            let load = |input: *const u8| {
                let input = input.add(at);
                if FULL {
                    V::load(input)
                } else {
                    V::load_part(input, len)
                }
            };
            let inputs = self.inputs.get_unchecked(range);
            if CLASS.is_power_of_two() {
                let sum = &mut sums[CLASS.ilog2() as usize];
                for &input in inputs {
                    *sum = sum.xor(load(input));
                }
                return;
            }
            let [first, others @ ..] = inputs else {
                return;
            };
            let mut of_class = load(*first);
            for &input in others {
                of_class = of_class.xor(load(input));
            }
            for (output, sum) in sums.iter_mut().enumerate() {
                if CLASS >> output & 1 == 1 {
                    *sum = sum.xor(of_class);
                }
            }
        }
    }
}
