//! What is no datagram of a message, and what becomes of it.

use cloudburst_code::wire::{Code, HEADER_BYTES, Header, Row};
use cloudburst_code::{Decoder, Encoder, Received, Schedule, Shape};
use proptest::prelude::*;

use super::support::{datagrams, message};

proptest! {
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
