//! Sums by exclusive or.
//!
//! What counts is how often inputs are read. Of many inputs, each is read once
//! for a whole group of outputs, and added to those that it is part of by
//! instructions that pass over the lanes of the others: nothing branches on it.
//! Inputs that are part of the same outputs are first added up among themselves.

use core::{arch::x86_64::*, ops::Range};

use super::grouping::{GROUP, Grouping};
use super::{EXCLUSIVE_OR_OF_THREE, VECTOR, first_bytes};
use crate::kernel::XorTask;

/// Vectors of each input that are summed at once. There are registers for so many
/// of a group's outputs, and 64 inputs fit into a first-level cache of 32 KiB,
/// with capacity for what else is going on.
const WIDE: usize = 5;

/// Groups that are computed while a stretch of the inputs is in that cache.
const GROUPS: usize = 8;

/// From so many inputs on, what a group saves is more than it costs to form.
const GROUPED_INPUTS: usize = 17;

/// # Safety
///
/// As of [`crate::kernel::xor`].
#[target_feature(enable = "avx512f,avx512bw,bmi1,popcnt")]
pub(in crate::kernel) unsafe fn xor(task: &XorTask<'_>, range: Range<usize>) {
    let &XorTask { inputs, outputs } = task;
    // SAFETY: the caller vouches for the task.
    unsafe {
        if outputs.len() == 1 || inputs.len() < GROUPED_INPUTS {
            for stretch in stretches(inputs, range) {
                stretch.compute_each(outputs);
            }
            return;
        }
        for outputs in outputs.chunks(GROUPS * GROUP) {
            // To clear tables for many would be a good part of the work for few.
            match outputs.len() {
                ..=GROUP => xor_groups::<1>(inputs, outputs, range.clone()),
                _ => xor_groups::<GROUPS>(inputs, outputs, range.clone()),
            }
        }
    }
}

/// Computes outputs of up to `MOST` groups.
///
/// # Safety
///
/// As of [`crate::kernel::xor`].
#[target_feature(enable = "avx512f,avx512bw,bmi1,popcnt")]
unsafe fn xor_groups<const MOST: usize>(
    inputs: &[*const u8],
    outputs: &[(*mut u8, u64)],
    range: Range<usize>,
) {
    let mut groupings = [Grouping::NONE; MOST];
    for (grouping, outputs) in groupings.iter_mut().zip(outputs.chunks(GROUP)) {
        let mut masks = [0; GROUP];
        for (mask, &(_, of_output)) in masks.iter_mut().zip(outputs) {
            *mask = of_output;
        }
        grouping.fill(masks);
    }
    for stretch in stretches(inputs, range) {
        for (outputs, grouping) in outputs.chunks(GROUP).zip(&groupings) {
            // SAFETY: the caller vouches for all that the outputs' masks ask for.
            unsafe { stretch.compute(outputs, grouping) };
        }
    }
}

/// The stretches of a range.
fn stretches(inputs: &[*const u8], range: Range<usize>) -> impl Iterator<Item = Stretch<'_>> {
    let mut at = range.start;
    core::iter::from_fn(move || {
        let len = stretch_end(inputs, at).min(range.end) - at;
        let vectors = len.div_ceil(VECTOR);
        let stretch = (len > 0).then(|| Stretch {
            inputs,
            at,
            vectors,
            last: first_bytes(len - (vectors - 1) * VECTOR),
        });
        at += len;
        stretch
    })
}

/// Where a stretch from `at` ends at the latest: where a cache line does in the
/// first input, for a vector that lies at no multiple of 32 bytes takes longer to
/// read. All are spared if inputs lie 1,440 bytes apart.
#[inline]
fn stretch_end(inputs: &[*const u8], at: usize) -> usize {
    let end = at + WIDE * VECTOR;
    let beyond_line = inputs
        .first()
        .map_or(0, |input| (input.addr() + end) % VECTOR);
    end - beyond_line
}

/// Up to [`WIDE`] vectors at offset `at`, of the last one only the bytes that
/// `last` selects.
struct Stretch<'a> {
    inputs: &'a [*const u8],
    at: usize,
    vectors: usize,
    last: __mmask64,
}

impl Stretch<'_> {
    /// Computes each output by itself.
    ///
    /// # Safety
    ///
    /// As of [`crate::kernel::xor`], for this stretch.
    #[target_feature(enable = "avx512f,avx512bw,bmi1,popcnt")]
    #[inline]
    unsafe fn compute_each(&self, outputs: &[(*mut u8, u64)]) {
        // SAFETY: the caller vouches for it.
        unsafe {
            match self.vectors {
                5.. => self.sum_each::<5>(outputs),
                4 => self.sum_each::<4>(outputs),
                3 => self.sum_each::<3>(outputs),
                2 => self.sum_each::<2>(outputs),
                _ => self.sum_each::<1>(outputs),
            }
        }
    }

    /// # Safety
    ///
    /// As of [`Self::compute_each`].
    #[target_feature(enable = "avx512f,avx512bw,bmi1,popcnt")]
    #[inline]
    unsafe fn sum_each<const VECTORS: usize>(&self, outputs: &[(*mut u8, u64)]) {
        for &(output, mask) in outputs {
            let mut sums = [_mm512_setzero_si512(); VECTORS];
            let mut rest = mask;
            // SAFETY: the caller vouches for all that is read and written.
            unsafe {
                if rest.count_ones() % 2 == 1 {
                    let first = self.input(rest.trailing_zeros() as u8);
                    rest &= rest - 1;
                    for (vector, sum) in sums.iter_mut().enumerate() {
                        *sum = self.load::<VECTORS>(first, vector);
                    }
                }
                while rest != 0 {
                    let one = self.input(rest.trailing_zeros() as u8);
                    rest &= rest - 1;
                    let other = self.input(rest.trailing_zeros() as u8);
                    rest &= rest - 1;
                    for (vector, sum) in sums.iter_mut().enumerate() {
                        let one = self.load::<VECTORS>(one, vector);
                        let other = self.load::<VECTORS>(other, vector);
                        *sum = _mm512_ternarylogic_epi64::<EXCLUSIVE_OR_OF_THREE>(*sum, one, other);
                    }
                }
                self.store(output, &sums);
            }
        }
    }

    /// Computes a group's outputs.
    ///
    /// # Safety
    ///
    /// As of [`crate::kernel::xor`], for this stretch.
    #[target_feature(enable = "avx512f,avx512bw,bmi1,popcnt")]
    #[inline]
    unsafe fn compute(&self, outputs: &[(*mut u8, u64)], grouping: &Grouping) {
        // SAFETY: the caller vouches for it.
        unsafe {
            match self.vectors {
                5.. => self.compute_vectors::<5>(outputs, grouping),
                4 => self.compute_vectors::<4>(outputs, grouping),
                3 => self.compute_vectors::<3>(outputs, grouping),
                2 => self.compute_vectors::<2>(outputs, grouping),
                _ => self.compute_vectors::<1>(outputs, grouping),
            }
        }
    }

    /// # Safety
    ///
    /// As of [`Self::compute`].
    #[target_feature(enable = "avx512f,avx512bw,bmi1,popcnt")]
    #[inline]
    unsafe fn compute_vectors<const VECTORS: usize>(
        &self,
        outputs: &[(*mut u8, u64)],
        grouping: &Grouping,
    ) {
        // SAFETY: the caller vouches for it.
        unsafe {
            match *outputs {
                [a, b, c, d] => self.sum::<VECTORS, 4>([a, b, c, d], grouping),
                [a, b, c] => self.sum::<VECTORS, 3>([a, b, c], grouping),
                [a, b] => self.sum::<VECTORS, 2>([a, b], grouping),
                [a] => self.sum::<VECTORS, 1>([a], grouping),
                _ => unreachable!("a group has up to {GROUP}"),
            }
        }
    }

    /// # Safety
    ///
    /// As of [`Self::compute`].
    #[target_feature(enable = "avx512f,avx512bw,bmi1,popcnt")]
    #[inline]
    unsafe fn sum<const VECTORS: usize, const OUTPUTS: usize>(
        &self,
        outputs: [(*mut u8, u64); OUTPUTS],
        grouping: &Grouping,
    ) {
        let mut sums = [[_mm512_setzero_si512(); VECTORS]; OUTPUTS];
        // SAFETY: the caller vouches for all that is read and written.
        unsafe {
            self.add::<VECTORS, OUTPUTS, 4>(&mut sums, grouping);
            self.add::<VECTORS, OUTPUTS, 3>(&mut sums, grouping);
            self.add::<VECTORS, OUTPUTS, 2>(&mut sums, grouping);
            self.add::<VECTORS, OUTPUTS, 1>(&mut sums, grouping);
            for (sums, (output, _)) in sums.iter().zip(outputs) {
                self.store(output, sums);
            }
        }
    }

    /// Adds the inputs of which so many are alike.
    ///
    /// # Safety
    ///
    /// As of [`Self::compute`].
    #[target_feature(enable = "avx512f,avx512bw,bmi1,popcnt")]
    #[inline]
    unsafe fn add<const VECTORS: usize, const OUTPUTS: usize, const INPUTS: usize>(
        &self,
        sums: &mut [[__m512i; VECTORS]; OUTPUTS],
        grouping: &Grouping,
    ) {
        for alike in grouping.alike::<INPUTS>() {
            let lanes = alike.lanes();
            let mut inputs = [core::ptr::null(); INPUTS];
            for (input, &index) in inputs.iter_mut().zip(&alike.inputs) {
                // SAFETY: the caller vouches for there being such an input.
                *input = unsafe { self.input(index) };
            }
            for vector in 0..VECTORS {
                let mut terms = [_mm512_setzero_si512(); INPUTS];
                for (term, &input) in terms.iter_mut().zip(&inputs) {
                    // SAFETY: the caller vouches for what is read.
                    *term = unsafe { self.load::<VECTORS>(input, vector) };
                }
                for (sums, &lanes) in sums.iter_mut().zip(lanes) {
                    sums[vector] = add_to_lanes(sums[vector], lanes, &terms);
                }
            }
        }
    }

    /// # Safety
    ///
    /// There is such an input.
    #[inline]
    unsafe fn input(&self, input: u8) -> *const i8 {
        // SAFETY: the caller vouches for it.
        unsafe {
            let input = self.inputs.get_unchecked(usize::from(input));
            input.add(self.at).cast()
        }
    }

    /// # Safety
    ///
    /// The bytes of this vector behind `input` that the stretch has are readable.
    #[target_feature(enable = "avx512f,avx512bw,bmi1,popcnt")]
    #[inline]
    unsafe fn load<const VECTORS: usize>(&self, input: *const i8, vector: usize) -> __m512i {
        // SAFETY: the caller vouches for what is read.
        unsafe {
            _mm512_maskz_loadu_epi8(self.bytes::<VECTORS>(vector), input.add(vector * VECTOR))
        }
    }

    /// # Safety
    ///
    /// The bytes behind `output` that the stretch has are writable.
    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    unsafe fn store<const VECTORS: usize>(&self, output: *mut u8, sums: &[__m512i; VECTORS]) {
        for (vector, &sum) in sums.iter().enumerate() {
            // SAFETY: the caller vouches for what is written.
            unsafe {
                let output = output.add(self.at + vector * VECTOR).cast::<i8>();
                _mm512_mask_storeu_epi8(output, self.bytes::<VECTORS>(vector), sum);
            }
        }
    }

    #[inline(always)]
    const fn bytes<const VECTORS: usize>(&self, vector: usize) -> __mmask64 {
        if vector + 1 < VECTORS { !0 } else { self.last }
    }
}

/// `sum`, to which one to four vectors are added in these lanes.
#[target_feature(enable = "avx512f")]
#[inline]
fn add_to_lanes(sum: __m512i, lanes: __mmask16, terms: &[__m512i]) -> __m512i {
    match *terms {
        [one] => _mm512_mask_xor_epi32(sum, lanes, sum, one),
        [one, other] => {
            _mm512_mask_ternarylogic_epi32::<EXCLUSIVE_OR_OF_THREE>(sum, lanes, one, other)
        }
        [one, other, third, ref rest @ ..] => {
            let three = _mm512_ternarylogic_epi32::<EXCLUSIVE_OR_OF_THREE>(one, other, third);
            match *rest {
                [fourth] => add_to_lanes(sum, lanes, &[three, fourth]),
                _ => add_to_lanes(sum, lanes, &[three]),
            }
        }
        [] => sum,
    }
}
