//! Computes Cauchy repair symbols, by the transform where that is less work.

#![cfg_attr(
    not(test),
    expect(
        clippy::arithmetic_side_effects,
        reason = "a block has 1 to 64 symbols and as many repairs, and points are below 256"
    )
)]

use core::ops::Range;

use super::{
    additive, cauchy,
    kernel::{self, MAX_INPUTS, MAX_POINTS, Output, Simd, TransformTask, WeightedTask},
};

/// The source symbols of a block.
#[derive(Clone, Copy)]
pub(super) struct Sources<'a> {
    pub(super) simd: Simd,
    /// One that is null counts as zeros.
    pub(super) symbols: &'a [*const u8],
}

impl Sources<'_> {
    /// Computes the bytes `range` of the repair symbols `repairs`, up to `MOST`, into `outputs`.
    ///
    /// # Safety
    ///
    /// - the processor has what `simd` says, and the symbols are 1 to 64;
    /// - of each symbol that is not null these bytes are readable;
    /// - of each output, they are writable, and no other output and no symbol overlaps them.
    pub(super) unsafe fn sum<const MOST: usize>(
        self,
        repairs: &[u8],
        outputs: &[*mut u8],
        range: Range<usize>,
    ) {
        if self.transform_pays(repairs) {
            // SAFETY: the caller vouches for it.
            unsafe { self.transform(repairs, outputs, false, range) };
        } else {
            // SAFETY: the caller vouches for it.
            unsafe { self.sum_directly::<MOST>(repairs, outputs, range) };
        }
    }

    /// Tells if the transform takes less time than a sum for each repair symbol.
    fn transform_pays(self, repairs: &[u8]) -> bool {
        let direct = repairs.len() * self.symbols.len();
        self.transform_cost(repairs)
            .is_some_and(|cost| cost < direct)
    }

    /// The time that the transform takes, in that of a product in a sum of many; none where it
    /// is not to be had.
    pub(super) fn transform_cost(self, repairs: &[u8]) -> Option<usize> {
        let log = self.log();
        let percent = self.simd.transform_percent()?;
        if log < FEWEST_LAYERS {
            return None;
        }
        let mut cosets = 0u64;
        for &repair in repairs {
            let coset = cauchy::x(repair) >> log;
            // The source symbols' own.
            if coset == 0 {
                return None;
            }
            cosets |= 1 << coset;
        }
        let butterflies = (self.symbols.len() + (1 << log)) * (log + 1) / 2;
        let products = cosets.count_ones() as usize * butterflies + repairs.len();
        Some(products * percent / 100)
    }

    fn log(self) -> usize {
        self.symbols.len().next_power_of_two().ilog2() as usize
    }

    /// Computes them, or adds them to what `outputs` hold, coset by coset.
    ///
    /// # Safety
    ///
    /// The requirements are those of [`Self::sum`]; there is a [cost](Self::transform_cost), all repairs differ, and if
    /// it is added to, the outputs are readable.
    pub(super) unsafe fn transform(
        self,
        repairs: &[u8],
        outputs: &[*mut u8],
        add: bool,
        range: Range<usize>,
    ) {
        let log = self.log();
        let mut left = !0u64 >> (64 - repairs.len());
        while left != 0 {
            let coset = cauchy::x(repairs[left.trailing_zeros() as usize]) >> log << log;
            let mut of_coset = [Output::NONE; MAX_POINTS];
            for (index, (&repair, &to)) in repairs.iter().zip(outputs).enumerate() {
                let x = cauchy::x(repair);
                if x >> log << log == coset {
                    let factor = additive::factor(log, x, repair);
                    of_coset[usize::from(x - coset)] = Output { to, factor };
                    left &= !(1 << index);
                }
            }
            let task = TransformTask {
                log,
                inputs: self.symbols,
                coset,
                outputs: &of_coset,
                add,
            };
            // SAFETY: the caller vouches for the pointers; the coset is not the source symbols'
            // own, and its points are below 2^log.
            unsafe { kernel::transform(self.simd, &task, range.clone()) };
        }
    }

    /// # Safety
    ///
    /// The requirements are those of [`Self::sum`].
    unsafe fn sum_directly<const MOST: usize>(
        self,
        repairs: &[u8],
        outputs: &[*mut u8],
        range: Range<usize>,
    ) {
        let n = self.symbols.len();
        let Some(&readable) = self.symbols.iter().find(|symbol| !symbol.is_null()) else {
            for output in outputs {
                // SAFETY: the caller vouches for what is written.
                unsafe { output.add(range.start).write_bytes(0, range.len()) };
            }
            return;
        };
        let mut inputs = [core::ptr::null(); MAX_INPUTS];
        let mut table = [[0; MAX_INPUTS]; MOST];
        let table = table.as_flattened_mut();
        for (row, &repair) in table.chunks_exact_mut(n).zip(repairs) {
            for (source, weight) in row.iter_mut().enumerate() {
                *weight = cauchy::weight(repair, source as u8);
            }
        }
        for (source, (input, &symbol)) in inputs.iter_mut().zip(self.symbols).enumerate() {
            *input = symbol;
            // Another stands in for what must not be read, with no weight.
            if symbol.is_null() {
                *input = readable;
                table
                    .iter_mut()
                    .skip(source)
                    .step_by(n)
                    .for_each(|weight| *weight = 0);
            }
        }
        let task = WeightedTask {
            inputs: &inputs[..n],
            outputs,
            weights: &table[..n * outputs.len()],
        };
        // SAFETY: the caller vouches for it; in the place of what is not readable stands another.
        unsafe { kernel::weighted(self.simd, &task, range) };
    }
}

/// Blocks of fewer layers are summed up directly.
const FEWEST_LAYERS: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::subsequence;

    const BEYOND: u8 = 0xa5;

    fn with_transform() -> impl Iterator<Item = Simd> {
        let all = Simd::ALL.into_iter().filter(|simd| simd.is_available());
        all.filter(|simd| simd.transform_percent().is_some())
    }

    /// Repair symbols by the transform, or by a sum for each; they hold something before.
    fn repairs(
        simd: Simd,
        symbols: &[Option<Vec<u8>>],
        repairs: &[u8],
        bytes: usize,
        add: Option<bool>,
    ) -> Vec<Vec<u8>> {
        let pointers: Vec<_> = symbols
            .iter()
            .map(|symbol| symbol.as_ref().map_or(core::ptr::null(), |it| it.as_ptr()))
            .collect();
        let sources = Sources {
            simd,
            symbols: &pointers,
        };
        let mut buffers = vec![vec![BEYOND; bytes + 9]; repairs.len()];
        let outputs: Vec<_> = buffers.iter_mut().map(|it| it.as_mut_ptr()).collect();
        // SAFETY: symbols and buffers have these bytes and are distinct.
        unsafe {
            match add {
                Some(add) => sources.transform(repairs, &outputs, add, 0..bytes),
                None => sources.sum_directly::<64>(repairs, &outputs, 0..bytes),
            }
        }
        buffers
    }

    fn symbols(n: usize, bytes: usize) -> Vec<Option<Vec<u8>>> {
        let byte = |symbol: usize, at: usize| ((at * 31) ^ (at >> 8) ^ (symbol * 151)) as u8;
        let symbol = |symbol| Some((0..bytes).map(|at| byte(symbol, at)).collect());
        (0..n).map(symbol).collect()
    }

    /// Each row by itself, so that every set of them is as good as those of the formula.
    #[test]
    fn every_row_is_that_of_the_formula() {
        let numbers = (9..=64).filter(|n| !cfg!(miri) || [9, 33].contains(n));
        for (simd, n) in with_transform().flat_map(|simd| numbers.clone().map(move |n| (simd, n))) {
            let bytes = if cfg!(miri) { 5 } else { 33 };
            let symbols = symbols(n, bytes);
            let rows = 256 - n.next_power_of_two();
            for repair in (0..rows as u8).filter(|row| !cfg!(miri) || row % 67 == 3) {
                let expected = repairs(Simd::Portable, &symbols, &[repair], bytes, None);
                let found = repairs(simd, &symbols, &[repair], bytes, Some(false));
                assert_eq!(found, expected, "{simd:?}, n = {n}, row {repair}");
            }
        }
    }

    #[derive(Clone, Debug)]
    struct Case {
        n: usize,
        missing: Vec<usize>,
        repairs: Vec<u8>,
        bytes: usize,
    }

    fn cases() -> impl Strategy<Value = Case> {
        let longest: usize = if cfg!(miri) { 70 } else { 700 };
        (9usize..=64).prop_flat_map(move |n| {
            let rows: Vec<u8> = (0..(256 - n.next_power_of_two()) as u8).collect();
            let first = 0..rows.len();
            let missing = subsequence((0..n).collect::<Vec<_>>(), 0..=n);
            first.prop_flat_map(move |first| {
                // Neighbours, as they are sent, less those that are lost.
                let near = rows[first..rows.len().min(first + 64)].to_vec();
                let count = near.len();
                let repairs = subsequence(near, 1..=count).prop_shuffle();
                (Just(n), missing.clone(), repairs, 0..=longest).prop_map(
                    |(n, missing, repairs, bytes)| Case {
                        n,
                        missing,
                        repairs,
                        bytes,
                    },
                )
            })
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 200 }))]

        #[test]
        fn transform_is_the_sum_of_each(case in cases()) {
            let mut symbols = symbols(case.n, case.bytes);
            case.missing.iter().for_each(|&missing| symbols[missing] = None);
            let mut expected = repairs(Simd::Portable, &symbols, &case.repairs, case.bytes, None);
            for simd in with_transform() {
                let found = repairs(simd, &symbols, &case.repairs, case.bytes, Some(false));
                prop_assert_eq!(&found, &expected, "{:?}", simd);
            }
            for output in &mut expected {
                output[..case.bytes].iter_mut().for_each(|byte| *byte ^= BEYOND);
            }
            for simd in with_transform() {
                let found = repairs(simd, &symbols, &case.repairs, case.bytes, Some(true));
                prop_assert_eq!(&found, &expected, "{:?}, added", simd);
            }
        }
    }

    #[test]
    fn rows_among_the_source_symbols_points_are_summed_directly() {
        let pointers = [core::ptr::null(); 33];
        for simd in with_transform() {
            let sources = Sources {
                simd,
                symbols: &pointers,
            };
            assert!(sources.transform_cost(&[0, 191]).is_some());
            assert_eq!(sources.transform_cost(&[0, 192]), None);
        }
    }
}
