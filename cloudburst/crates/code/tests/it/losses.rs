//! Every number of symbols, with every way to lose some.

use cloudburst_code::{Decoder, Encoder, Received, Refused, Schedule, Shape, Simd};
use proptest::prelude::*;
use proptest::sample::subsequence;

use super::{
    available, check, decoder,
    support::{SCHEDULES, datagrams, draw, message},
};

#[test]
fn every_subset_of_small_messages() {
    // Miri takes a thousand times as long; it looks for something else.
    for n in 1..=if cfg!(miri) { 2 } else { 6 } {
        for schedule in SCHEDULES {
            let message = message(n * 7 - n / 2);
            let shape = Shape::new(message.len(), 7).unwrap();
            assert_eq!(shape.symbols(), n);
            let encoder = Encoder::new(&message, shape, schedule, 1, 99).unwrap();
            let all = datagrams(&encoder, 2 * n as u32 + 2);
            let mut decoder = decoder(&shape, Simd::detect());
            for subset in 0u32..1 << all.len() {
                let kept = all
                    .iter()
                    .enumerate()
                    .filter(|(index, _)| subset >> index & 1 == 1)
                    .map(|(_, datagram)| datagram);
                check(&mut decoder, &message, &shape, kept);
            }
        }
    }
}

/// Ways to lose datagrams, each tried with every number of symbols.
#[derive(Clone, Copy, Debug)]
enum Loss {
    None,
    /// The first source symbol.
    First,
    /// The last one, which is short.
    Last,
    /// The first half of the source symbols, in one burst.
    Half,
    /// All source symbols.
    Sources,
    /// So many of 100, each by itself.
    Percent(u32),
    /// None, but the last is the first to come.
    Reversed,
}

impl Loss {
    const ALL: [Self; 8] = [
        Self::None,
        Self::First,
        Self::Last,
        Self::Half,
        Self::Sources,
        Self::Percent(20),
        Self::Percent(60),
        Self::Reversed,
    ];

    fn loses(self, sequence: u32, n: u32) -> bool {
        match self {
            Self::None | Self::Reversed => false,
            Self::First => sequence == 0,
            Self::Last => sequence == n - 1,
            Self::Half => sequence < n / 2,
            Self::Sources => sequence < n,
            Self::Percent(percent) => draw(sequence + n) < percent,
        }
    }

    fn apply(self, all: &[Vec<u8>], n: usize) -> Vec<&Vec<u8>> {
        let kept = all
            .iter()
            .zip(0..all.len() as u32)
            .filter(|&(_, sequence)| !self.loses(sequence, n as u32))
            .map(|(datagram, _)| datagram);
        if matches!(self, Self::Reversed) {
            kept.rev().collect()
        } else {
            kept.collect()
        }
    }
}

/// All that one block can have, and messages of two blocks and more. More
/// arrives than is needed, so that it is seen to do no harm; what has arrived
/// after each datagram is one more set of symbols.
#[test]
fn every_number_of_symbols_with_every_schedule_and_loss() {
    let numbers = (1..=64).chain([65, 66, 127, 128, 129, 200]);
    let miri = |&n: &usize| !cfg!(miri) || [1, 7, 66].contains(&n);
    for n in numbers.filter(miri) {
        let message = message(n * 9 - 4);
        let shape = Shape::new(message.len(), 9).unwrap();
        assert_eq!(shape.symbols(), n);
        let mut decoder = decoder(&shape, Simd::detect());
        for schedule in SCHEDULES {
            let Ok(encoder) = Encoder::new(&message, shape, schedule, 1, n as u16) else {
                assert!(n > 64, "{schedule:?} with {n} symbols");
                continue;
            };
            let all = datagrams(&encoder, 4 * n as u32 + 20);
            for loss in Loss::ALL {
                check(&mut decoder, &message, &shape, loss.apply(&all, n));
            }
        }
    }
}

/// A shape, and which of its first `3n + 8` datagrams arrive, in which order.
fn arrivals() -> impl Strategy<Value = (usize, usize, Vec<u32>, u16)> {
    (1usize..=64, 1usize..200).prop_flat_map(|(n, symbol_bytes)| {
        let bytes = (n - 1) * symbol_bytes + 1..=n * symbol_bytes;
        let all: Vec<u32> = (0..3 * n as u32 + 8).collect();
        let count = all.len();
        let order = subsequence(all, 0..=count).prop_shuffle();
        (bytes, Just(symbol_bytes), order, any::<u16>())
    })
}

proptest! {
    #[test]
    fn any_arrivals((bytes, symbol_bytes, order, seed) in arrivals(), schedule in 0..4usize) {
        let message = message(bytes);
        let shape = Shape::new(bytes, symbol_bytes).unwrap();
        let encoder = Encoder::new(&message, shape, SCHEDULES[schedule], 3, seed).unwrap();
        let all = datagrams(&encoder, 3 * shape.symbols() as u32 + 8);
        let arrived = order.iter().map(|&sequence| &all[sequence as usize]);
        for simd in available() {
            check(&mut decoder(&shape, simd), &message, &shape, arrived.clone());
        }
    }

    #[test]
    fn messages_of_many_blocks(
        bytes in 1usize..400_000,
        symbol_bytes in 100usize..1_500,
        mds: bool,
        lost_percent in 0u32..60,
        seed: u16,
    ) {
        let message = message(bytes);
        let shape = Shape::new(bytes, symbol_bytes).unwrap();
        let schedule = if mds { Schedule::Mds } else { Schedule::Default };
        let encoder = Encoder::new(&message, shape, schedule, 3, seed).unwrap();
        let mut decoder = Decoder::for_shape(&shape);
        let mut datagram = vec![0; encoder.datagram_bytes()];
        for sequence in 0..20_000u32 {
            if draw(sequence.wrapping_add(seed.into())) < lost_percent {
                continue;
            }
            encoder.write(sequence..sequence + 1, &mut datagram).unwrap();
            match decoder.receive(&datagram) {
                Ok(Received::Complete) => break,
                Ok(Received::More) | Err(Refused::Redundant) => {}
                Err(refused) => panic!("{refused}"),
            }
        }
        prop_assert_eq!(decoder.message(), Some(&message[..]));
    }
}
