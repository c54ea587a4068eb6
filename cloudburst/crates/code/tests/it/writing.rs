//! However symbols are written, they are the same.

use cloudburst_code::{Encoder, Shape, Simd};
use proptest::prelude::*;

use super::{
    available,
    support::{SCHEDULES, message},
};

proptest! {
    #[test]
    fn written_alike_at_once_and_one_by_one(
        bytes in 1usize..40_000,
        symbol_bytes in 50usize..1_500,
        first in 0u32..300,
        count in 0u32..200,
        schedule in 0..4usize,
    ) {
        let message = message(bytes);
        let shape = Shape::new(bytes, symbol_bytes).unwrap();
        let Ok(encoder) = Encoder::new(&message, shape, SCHEDULES[schedule], 3, 5) else {
            prop_assert!(shape.blocks() > 1);
            return Ok(());
        };
        let size = encoder.datagram_bytes();
        let mut reference = Vec::new();
        for sequence in first..first + count {
            let mut one = vec![0; size];
            let portable = encoder.with_simd(Simd::Portable).unwrap();
            portable.write(sequence..sequence + 1, &mut one).unwrap();
            reference.extend(one);
        }
        for simd in available() {
            let mut out = vec![0xee; size * count as usize + 3];
            let encoder = encoder.with_simd(simd).unwrap();
            prop_assert_eq!(encoder.write(first..first + count, &mut out), Ok(reference.len()));
            prop_assert!(out.starts_with(&reference), "{:?}", simd);
            prop_assert!(out.ends_with(&[0xee; 3]));
        }
    }
}
