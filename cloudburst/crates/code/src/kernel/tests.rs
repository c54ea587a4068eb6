//! Every kernel of this processor computes what the portable one does, and that
//! one what a byte-wise sum does.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;
use crate::gf256::multiply;

/// Inputs and outputs at their own alignments, and a margin that nobody may touch.
#[derive(Clone, Debug)]
struct Case {
    inputs: Vec<Vec<u8>>,
    offset: usize,
    start: usize,
    len: usize,
    weights: Vec<Vec<u8>>,
}

const MARGIN: u8 = 0xa5;

fn cases() -> impl Strategy<Value = Case> {
    let longest: usize = if cfg!(miri) { 150 } else { 1_500 };
    let sizes = (1usize..=64, 1usize..=23, 0usize..65, 0usize..9, 0..=longest);
    sizes.prop_flat_map(|(inputs, outputs, offset, start, len)| {
        let bytes = offset + start + len;
        (
            prop::collection::vec(any::<u8>(), inputs),
            prop::collection::vec(prop::collection::vec(any::<u8>(), inputs), outputs),
        )
            .prop_map(move |(seeds, weights)| Case {
                inputs: seeds.iter().map(|&seed| pattern(seed, bytes)).collect(),
                offset,
                start,
                len,
                weights,
            })
    })
}

impl Case {
    fn inputs(&self) -> Vec<*const u8> {
        let inputs = self.inputs.iter();
        inputs.map(|input| input[self.offset..].as_ptr()).collect()
    }

    /// Buffers that a kernel has filled.
    fn filled(&self, run: impl FnOnce(&[*mut u8], core::ops::Range<usize>)) -> Vec<Vec<u8>> {
        let bytes = self.offset + self.start + self.len + 70;
        let mut buffers = vec![vec![MARGIN; bytes]; self.weights.len()];
        let outputs: Vec<_> = buffers
            .iter_mut()
            .map(|buffer| buffer[self.offset..].as_mut_ptr())
            .collect();
        run(&outputs, self.start..self.start + self.len);
        buffers
    }

    fn xor(&self, simd: Simd) -> Vec<Vec<u8>> {
        self.filled(|outputs, range| {
            let outputs: Vec<_> = outputs
                .iter()
                .zip(&self.weights)
                .map(|(&output, weights)| (output, mask(weights)))
                .collect();
            let task = XorTask {
                inputs: &self.inputs(),
                outputs: &outputs,
            };
            // SAFETY: all inputs and outputs are longer than the range, and distinct.
            unsafe { xor(simd, &task, range) };
        })
    }

    fn weighted(&self, simd: Simd) -> Vec<Vec<u8>> {
        self.filled(|outputs, range| {
            let task = WeightedTask {
                inputs: &self.inputs(),
                outputs,
                weights: &self.weights.concat(),
            };
            // SAFETY: all inputs and outputs are longer than the range, and distinct.
            unsafe { weighted(simd, &task, range) };
        })
    }

    /// What every kernel should do, byte by byte.
    fn expected(&self, weigh: impl Fn(u8, u8) -> u8) -> Vec<Vec<u8>> {
        let first = self.offset + self.start;
        let rows = self.weights.iter().map(|weights| {
            let mut output = vec![MARGIN; first + self.len + 70];
            let sums = &mut output[first..first + self.len];
            sums.fill(0);
            for (input, &weight) in self.inputs.iter().zip(weights) {
                for (sum, &byte) in sums.iter_mut().zip(&input[first..]) {
                    *sum ^= weigh(weight, byte);
                }
            }
            output
        });
        rows.collect()
    }
}

/// As [`multiply`], which would take most of these tests' time.
fn product(weight: u8, byte: u8) -> u8 {
    static PRODUCTS: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let weights = 0..=u8::MAX;
        let rows = weights.flat_map(|weight| (0..=u8::MAX).map(move |byte| multiply(weight, byte)));
        rows.collect()
    });
    PRODUCTS[usize::from(weight) << 8 | usize::from(byte)]
}

/// The inputs whose weight is odd.
fn mask(weights: &[u8]) -> u64 {
    let weights = weights.iter().enumerate();
    weights.fold(0, |mask, (index, weight)| {
        mask | u64::from(weight & 1) << index
    })
}

fn available() -> impl Iterator<Item = Simd> {
    Simd::ALL.into_iter().filter(|simd| simd.is_available())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 150 }))]

    #[test]
    fn exclusive_or_of_every_kernel(case in cases()) {
        let expected = case.expected(|weight, byte| if weight & 1 == 1 { byte } else { 0 });
        for simd in available() {
            prop_assert_eq!(case.xor(simd), expected.clone(), "{:?}", simd);
        }
    }

    #[test]
    fn weighted_sum_of_every_kernel(case in cases()) {
        let expected = case.expected(product);
        for simd in available() {
            prop_assert_eq!(case.weighted(simd), expected.clone(), "{:?}", simd);
        }
    }
}

/// Lengths around every stretch that a kernel works in.
#[test]
fn every_length_and_alignment() {
    let longest = if cfg!(miri) { 40 } else { 420 };
    for (len, inputs) in (0..=longest).flat_map(|len| [(len, 3), (len, 20)]) {
        let offset = len % 64;
        let case = Case {
            inputs: (0..inputs)
                .map(|seed| pattern(seed, offset + len))
                .collect(),
            offset,
            start: 0,
            len,
            weights: [[1, 3, 2], [255, 0, 7]]
                .map(|weights| weights.into_iter().cycle().take(inputs.into()).collect())
                .into(),
        };
        let expected = (
            case.expected(|weight, byte| if weight & 1 == 1 { byte } else { 0 }),
            case.expected(product),
        );
        for simd in available() {
            let found = (case.xor(simd), case.weighted(simd));
            assert_eq!(found, expected, "{simd:?}, {len} bytes of {inputs}");
        }
    }
}

#[test]
fn as_many_outputs_as_can_be() {
    let len = 70;
    let case = Case {
        inputs: (0..64u8).map(|seed| pattern(seed, len)).collect(),
        offset: 0,
        start: 0,
        len,
        weights: (64..128u8).map(|seed| pattern(seed, MAX_INPUTS)).collect(),
    };
    assert_eq!(case.weights.len(), MAX_OUTPUTS);
    let expected = case.expected(|weight, byte| if weight & 1 == 1 { byte } else { 0 });
    for simd in available() {
        assert_eq!(case.xor(simd), expected, "{simd:?}");
    }
}

fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed.wrapping_mul(97))
        .collect()
}

#[test]
fn the_fastest_is_available() {
    assert!(Simd::detect().is_available());
    println!("{}", Simd::detect().name());
}
