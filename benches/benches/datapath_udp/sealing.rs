//! What encryption takes of a datagram, by itself: a part of what the library takes with keys.

use std::{hint::black_box, time::Instant};

use cloudburst_wire::{BufferTooShort, Header, Opener, Sealer, Stamp, Symbol, symbol_bytes};

use super::DATAGRAM_BYTES;

const KEY: [u8; 32] = [1; 32];
const DATAGRAMS: u64 = 100_000;

/// Nanoseconds to write a datagram, and to open it, each with keys beyond without.
pub(crate) fn ns() -> [f64; 2] {
    let with = measure(&Sealer::sealed(7, &KEY), &Opener::sealed(&KEY));
    let without = measure(&Sealer::plain(7), &Opener::plain());
    [with[0] - without[0], with[1] - without[1]]
}

fn measure(sealer: &Sealer, opener: &Opener) -> [f64; 2] {
    let room = symbol_bytes(DATAGRAM_BYTES, sealer.framing()).expect("long enough");
    let code = vec![0; 12 + room];
    let mut out = vec![0; DATAGRAM_BYTES];
    let mut arrived = out.clone();
    let start = Instant::now();
    for sequence in 1..=DATAGRAMS {
        let stamp = Stamp {
            path: 1,
            sent_us: 2,
            sequence,
        };
        let symbol = Symbol {
            message: 0,
            code: &code,
        };
        let written = sealer
            .write_symbol::<BufferTooShort>(stamp, black_box(&mut out), |body| symbol.write(body));
        black_box(written).expect("it fits");
    }
    let writing = start.elapsed();
    let start = Instant::now();
    for _ in 0..DATAGRAMS {
        arrived.copy_from_slice(black_box(&out));
        let header = Header::parse(&arrived).expect("a header");
        black_box(opener.open(&header, &mut arrived)).expect("sealed above");
    }
    [writing, start.elapsed()].map(|it| it.as_secs_f64() * 1e9 / DATAGRAMS as f64)
}
