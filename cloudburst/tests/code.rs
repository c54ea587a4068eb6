//! What the code promises: a message comes back from every set of symbols that
//! determines it, is reported missing from every other, and extra symbols do no
//! harm.

#[allow(dead_code, reason = "each test uses a part of it")]
mod support;

use cloudburst::code::{Block, Decoder, Encoder, Received, Refused, Schedule, Shape, Simd};
use cloudburst::wire::{Code, HEADER_BYTES, Header, Row};
use proptest::prelude::*;
use proptest::sample::subsequence;
use support::{SCHEDULES, datagrams, draw, message, model::Model};

fn available() -> impl Iterator<Item = Simd> {
    Simd::ALL.into_iter().filter(|simd| simd.is_available())
}

/// Feeds the datagrams, each twice, and holds the decoder to what is said above,
/// whatever it had before.
fn check<'d>(
    decoder: &mut Decoder<Vec<u8>, Vec<Block>>,
    message: &[u8],
    shape: &Shape,
    datagrams: impl IntoIterator<Item = &'d Vec<u8>>,
) {
    decoder.reset();
    let mut model = Model::new(shape);
    for (count, datagram) in datagrams.into_iter().enumerate() {
        let (header, _) = Header::parse(datagram).expect("it is ours");
        let expected = match (model.take(&header), model.is_complete()) {
            (false, _) => Err(Refused::Redundant),
            (true, false) => Ok(Received::More),
            (true, true) => Ok(Received::Complete),
        };
        let received = decoder.receive(datagram);
        assert_eq!(received, expected, "{decoder:?}, after {count}");
        assert_eq!(decoder.receive(datagram), Err(Refused::Redundant));
        assert_eq!(decoder.message().is_some(), model.is_complete());
    }
    if model.is_complete() {
        assert_eq!(decoder.message(), Some(message), "{decoder:?}");
    }
}

fn decoder(shape: &Shape, simd: Simd) -> Decoder<Vec<u8>, Vec<Block>> {
    let decoder = Decoder::for_shape(shape);
    decoder.with_simd(simd).expect("it is available")
}

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

    #[test]
    fn arbitrary_datagrams(datagrams in prop::collection::vec(hostile(), 0..40)) {
        let shape = Shape::new(64 * 20, 20).unwrap();
        let mut decoder = Decoder::for_shape(&shape);
        for datagram in datagrams {
            if decoder.receive(&datagram) == Ok(Received::Complete) {
                prop_assert!(decoder.message().is_some());
                decoder.reset();
            }
        }
    }
}

/// Bytes that are nearly datagrams.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let row = prop_oneof![
        any::<u64>().prop_map(Row::Bits),
        (0u64..64).prop_map(|index| Row::Bits(1 << index)),
        (any::<bool>(), 0u8..3, 0u16..300, 0u16..2).prop_map(|(mds, block, index, seed)| {
            let code = if mds { Code::Cauchy } else { Code::Binary };
            Row::Named {
                code,
                block,
                index,
                seed,
            }
        }),
    ];
    (0u8..2, 1u8..=64, 0u32..1500, row, 0usize..24).prop_map(
        |(id, block_symbols, message_bytes, row, symbol_bytes)| {
            let header = Header {
                id,
                block_symbols,
                message_bytes,
                row,
            };
            let mut datagram = header.to_bytes().to_vec();
            datagram.resize(HEADER_BYTES + symbol_bytes, 7);
            datagram
        },
    )
}

/// A decoder in the middle of a message, one good datagram that it still needs,
/// and the ways to spoil it.
#[test]
fn what_does_not_belong_is_refused_and_changes_nothing() {
    let message = message(1_000);
    let shape = Shape::new(1_000, 100).unwrap();
    let encoder = Encoder::new(&message, shape, Schedule::Default, 7, 5).unwrap();
    let all = datagrams(&encoder, 11);
    let mut decoder = Decoder::for_shape(&shape);
    for datagram in &all[1..10] {
        assert_eq!(decoder.receive(datagram), Ok(Received::More));
    }
    let good = &all[10];
    let (header, _) = Header::parse(good).unwrap();
    let with = |header: Header, symbol_bytes: usize| {
        let mut datagram = header.to_bytes().to_vec();
        datagram.resize(HEADER_BYTES + symbol_bytes, 0);
        datagram
    };
    let row = |bits| {
        with(
            Header {
                row: Row::Bits(bits),
                ..header
            },
            100,
        )
    };
    let cases = [
        (all[4].clone(), "the symbol tells nothing new"),
        (
            good[..11].to_vec(),
            "a datagram of 11 bytes has no room for a header of 12",
        ),
        (
            with(Header { id: 8, ..header }, 100),
            "the symbol is of message 8, message 7 is under way",
        ),
        (
            with(
                Header {
                    message_bytes: 999,
                    ..header
                },
                100,
            ),
            "the symbol is of a message of 999 bytes, that under way has 1000",
        ),
        (
            with(header, 99),
            "the symbol has 99 bytes, those before had 100",
        ),
        (
            with(header, 0),
            "the symbol has 0 bytes, those before had 100",
        ),
        (
            with(
                Header {
                    block_symbols: 11,
                    ..header
                },
                100,
            ),
            "the header states a block of 11 symbols, the sizes make it 10",
        ),
        (row(0), "the set 0x0 is not one of 10 symbols, or is empty"),
        (
            row(1 << 10),
            "the set 0x400 is not one of 10 symbols, or is empty",
        ),
        (
            with(
                Header {
                    row: Row::Named {
                        code: Code::Cauchy,
                        block: 0,
                        index: 0,
                        seed: 0,
                    },
                    ..header
                },
                100,
            ),
            "the symbol is of another code than those before",
        ),
    ];
    for (datagram, expected) in cases {
        let refused = decoder.receive(&datagram).expect_err(expected);
        assert_eq!(refused.to_string(), expected);
        assert_eq!(decoder.message(), None);
    }
    assert_eq!(decoder.receive(good), Ok(Received::Complete));
    assert_eq!(decoder.message(), Some(&message[..]));
}

#[test]
fn a_first_datagram_that_cannot_be_is_refused() {
    let shape = Shape::new(1_000, 100).unwrap();
    let mut decoder = Decoder::for_shape(&shape);
    let named = |code, block, index| Row::Named {
        code,
        block,
        index,
        seed: 0,
    };
    let mut refuse = |message_bytes, block_symbols, row, symbol_bytes, expected: &str| {
        let header = Header {
            id: 0,
            block_symbols,
            message_bytes,
            row,
        };
        let mut datagram = header.to_bytes().to_vec();
        datagram.resize(HEADER_BYTES + symbol_bytes, 0);
        let refused = decoder.receive(&datagram).expect_err(expected);
        assert_eq!(refused.to_string(), expected);
        assert_eq!(decoder.shape(), None);
    };
    refuse(
        0,
        1,
        Row::Bits(1),
        100,
        "a message of 0 bytes has no symbols",
    );
    refuse(10, 1, Row::Bits(1), 0, "symbols of 0 bytes carry nothing");
    refuse(
        1_001,
        10,
        Row::Bits(1),
        100,
        "the header states a block of 10 symbols, the sizes make it 11",
    );
    refuse(
        6_500,
        33,
        Row::Bits(1),
        100,
        "the header states a block of 33 symbols, the sizes make it 0",
    );
    refuse(
        1_000,
        10,
        named(Code::Binary, 1, 0),
        100,
        "the header states a block of 10 symbols, the sizes make it 0",
    );
    refuse(
        1_000,
        10,
        named(Code::Cauchy, 0, 256),
        100,
        "there is no row 256; the last is 255",
    );
    refuse(
        2_000,
        20,
        Row::Bits(1),
        100,
        "the message needs 4000 bytes of memory or blocks, the decoder has 2000",
    );
    refuse(
        20_000,
        2,
        named(Code::Binary, 0, 0),
        1,
        "a message of 20000 bytes in symbols of 1 is longer than the 16384 that can be sent so",
    );
}

/// The example of the paper's figure 5: packets that are sums of one, two and
/// three symbols.
#[test]
fn sums_of_any_sender_are_understood() {
    let symbols = [[1u8; 4], [2; 4], [4; 4]];
    let sum = |bits: u64| {
        let mut symbol = [0; 4];
        for (index, source) in symbols.iter().enumerate() {
            if bits >> index & 1 == 1 {
                symbol
                    .iter_mut()
                    .zip(source)
                    .for_each(|(sum, byte)| *sum ^= byte);
            }
        }
        let header = Header {
            id: 9,
            block_symbols: 3,
            message_bytes: 12,
            row: Row::Bits(bits),
        };
        [&header.to_bytes()[..], &symbol].concat()
    };
    let mut decoder = Decoder::for_shape(&Shape::new(12, 4).unwrap());
    assert_eq!(decoder.receive(&sum(0b111)), Ok(Received::More));
    assert_eq!(decoder.receive(&sum(0b011)), Ok(Received::More));
    assert_eq!(decoder.receive(&sum(0b100)), Err(Refused::Redundant));
    assert_eq!(decoder.receive(&sum(0b101)), Ok(Received::Complete));
    assert_eq!(decoder.message(), Some(&symbols.concat()[..]));
}
