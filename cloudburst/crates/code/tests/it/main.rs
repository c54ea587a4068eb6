//! What the code promises: a message comes back from every set of symbols that
//! determines it, is reported missing from every other, and extra symbols do no
//! harm.

mod allocations;
mod corpus;
mod losses;
mod recoding;
mod refusals;
#[allow(dead_code, reason = "each test uses a part of it")]
#[path = "../support/mod.rs"]
mod support;
mod writing;

use cloudburst_code::wire::{Header, Row};
use cloudburst_code::{Block, Decoder, Received, Refused, Shape, Simd};
use support::model::Model;

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
