//! What a message costs to encode and to decode, beside the codecs that a user
//! would pick instead.
//!
//! Source symbols have 1,440 bytes. *Encoding* makes a message's repair symbols:
//! 4 at n = 4, 6 at n = 15, 20 at n = 64, 160 at n = 512. *Decoding* begins with
//! what arrives, datagram by datagram, and ends with the whole message in one
//! piece: the source symbols but for those lost, then as many repair symbols as
//! the codec turns out to need. Before it is measured, every decoding is checked
//! against its message.
//!
//! | group | measures |
//! |---|---|
//! | `codec_encode_n64` | the repair symbols of one message |
//! | `codec_decode_n64_5`, `_30` | a message of which 5% or 30% of the source symbols are lost, at least one |
//!
//! | codec | is |
//! |---|---|
//! | `default`, `mds` | the schedules of Cloudburst, by the kernel for this processor; datagrams with their headers |
//! | `default_avx2`, `mds_portable`, ... | the same by another kernel |
//! | `raptorq` | crate `raptorq`, RFC 6330 |
//! | `reed_solomon_simd` | crate `reed-solomon-simd`, its encoder and decoder kept from message to message |
//! | `rlnc` | crate `rlnc`, random linear network coding over GF(256), up to n = 64; its encoder, with a copy of the message, is made before the clock starts. No symbol is a source symbol, so that decoding is always of all |
//! | `xor_bound` | no codec: the exclusive or of all source symbols, copied to each repair symbol; what any has to read and write |
//! | `memcpy` | no codec: the same bytes, copied |
//!
//! Which symbols are lost changes from message to message, and is the same for
//! every codec; so are contents and messages. The peers are favoured where there
//! is a choice: raptorq's packets are allocated before the clock starts and its
//! plan for a number of symbols is made once, and what a peer encodes is not
//! copied into datagrams.
//!
//! `CODEC_SIMD=avx2` (or `portable`, ...) has ours use these instructions alone, and
//! reed-solomon-simd, too. What raptorq and rlnc detect cannot be changed from outside: they use
//! what they find, and are favoured so.
//!
//! There is no `wirehair`: the registry has no Rust binding of that library.

mod ours;
mod peers;

use std::hint::black_box;
use std::time::Duration;
use std::{env, fs};

use cloudburst::code::{Schedule, Simd};
use criterion::measurement::WallTime;
use criterion::{Bencher, BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::index;
use rand::{Rng, SeedableRng};

use self::ours::{Cloudburst, XorBound};
use self::peers::{RaptorQ, Rlnc, raptorq_simd, reed_solomon, rlnc_simd};

const SYMBOL_BYTES: usize = 1_440;

const SIZES: [Size; 4] = [
    // One symbol of four is lost at either rate.
    Size::new(4, 4, &[("decode_n4", 0.3)]),
    Size::new(15, 6, &[("decode_n15_5", 0.05), ("decode_n15_30", 0.3)]),
    Size::new(64, 20, &[("decode_n64_5", 0.05), ("decode_n64_30", 0.3)]),
    Size::new(
        512,
        160,
        &[("decode_n512_5", 0.05), ("decode_n512_30", 0.3)],
    ),
];

/// Patterns of loss that are gone round, too many for a branch predictor.
const ARRIVALS: usize = 64;

/// Source symbols of all messages that are gone round. A datagram that has just
/// been received lies in a second-level cache, so all of them have to fit there.
const SYMBOLS_AT_HAND: usize = 256;

/// Where `cargo xtask bench-codec` reads which kernel was measured.
const SIMD_FILE: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/codec-simd");

/// Which instructions each codec used, a line each.
const SIMD_OF_CODECS_FILE: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/codec-simd-of-codecs");

/// Names one of [`Simd::ALL`], which is measured alone then.
const SIMD_VARIABLE: &str = "CODEC_SIMD";

/// Beyond, a decoding by rlnc takes a second.
const MOST_RLNC_SYMBOLS: usize = 64;

fn codec(criterion: &mut Criterion) {
    let simd = selected();
    fs::write(SIMD_FILE, simd.name()).expect("cargo has made the directory");
    for size in &SIZES {
        let messages = size.messages();
        let mut codecs = codecs(size, simd, &messages);
        for (_, codec) in &mut codecs {
            codec.send(&messages);
            messages
                .iter()
                .for_each(|message| codec.check_encode(message));
        }
        let mut encode = size.group(criterion, &format!("encode_n{}", size.n));
        for (name, codec) in &mut codecs {
            encode.bench_function(&**name, |bencher| codec.measure_encode(bencher, &messages));
        }
        if size.n == 64 {
            encode.bench_function("memcpy", |bencher| measure_copy(bencher, &messages));
        }
        let mut bound = XorBound::new(size, simd);
        encode.bench_function("xor_bound", |bencher| bound.measure(bencher, &messages));
        encode.finish();
        for &(name, loss) in size.decodes {
            let arrivals = size.arrivals(messages.len(), loss);
            let mut decode = size.group(criterion, name);
            for (name, codec) in &mut codecs {
                let arrivals = completed(&mut **codec, &messages, &arrivals);
                decode.bench_function(&**name, |bencher| codec.measure_decode(bencher, &arrivals));
            }
            decode.finish();
        }
    }
}

/// The instructions that ours use, and the peers as far as they can be made to.
fn selected() -> Simd {
    let Ok(name) = env::var(SIMD_VARIABLE) else {
        return Simd::detect();
    };
    let simd = Simd::ALL.into_iter().find(|simd| simd.name() == name);
    simd.filter(|simd| simd.is_available())
        .unwrap_or_else(|| panic!("{SIMD_VARIABLE}={name}: this processor has no such kernel"))
}

/// Messages of one length, and what is done with them.
struct Size {
    n: usize,
    repairs: usize,
    /// Groups, and the share of source symbols that is lost.
    decodes: &'static [(&'static str, f64)],
}

struct Message {
    number: usize,
    bytes: Vec<u8>,
}

/// What a receiver gets of a message.
#[derive(Clone)]
struct Arrival {
    message: usize,
    /// The source symbols that are not lost.
    sources: Vec<usize>,
    /// The first so many repair symbols.
    repairs: usize,
}

impl Size {
    const fn new(n: usize, repairs: usize, decodes: &'static [(&'static str, f64)]) -> Self {
        Self {
            n,
            repairs,
            decodes,
        }
    }

    fn messages(&self) -> Vec<Message> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.n as u64);
        let count = (SYMBOLS_AT_HAND / self.n).clamp(2, ARRIVALS);
        let message = |number| {
            let mut bytes = vec![0; self.n * SYMBOL_BYTES];
            random.fill_bytes(&mut bytes);
            Message { number, bytes }
        };
        (0..count).map(message).collect()
    }

    /// The same number of losses in each, so that every decoding is like work.
    fn arrivals(&self, messages: usize, loss: f64) -> Vec<Arrival> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(loss.to_bits());
        let lost = (self.n as f64 * loss).round().max(1.0) as usize;
        let arrival = |number| {
            let mut sources = index::sample(&mut random, self.n, self.n - lost).into_vec();
            sources.sort_unstable();
            Arrival {
                message: number % messages,
                sources,
                repairs: lost,
            }
        };
        (0..ARRIVALS).map(arrival).collect()
    }

    fn group<'a>(&self, criterion: &'a mut Criterion, name: &str) -> BenchmarkGroup<'a, WallTime> {
        let mut group = criterion.benchmark_group(format!("codec_{name}"));
        group
            .sample_size(30)
            .warm_up_time(Duration::from_millis(300))
            .measurement_time(Duration::from_secs(1))
            .throughput(Throughput::Bytes((self.n * SYMBOL_BYTES) as u64));
        group
    }
}

/// The arrivals with as many repair symbols as this codec needs to get the message.
fn completed(codec: &mut dyn Codec, messages: &[Message], arrivals: &[Arrival]) -> Vec<Arrival> {
    let mut arrivals = arrivals.to_vec();
    for arrival in &mut arrivals {
        let message = &messages[arrival.message].bytes[..];
        loop {
            match codec.decode(arrival) {
                Some(decoded) => break assert!(decoded == message, "decoded something else"),
                None => arrival.repairs += 1,
            }
        }
    }
    arrivals
}

fn measure_copy(bencher: &mut Bencher<'_>, messages: &[Message]) {
    let mut copy = messages[0].bytes.clone();
    let mut round = messages.iter().cycle();
    bencher.iter(|| {
        let message = round.next().expect("it goes round");
        copy.copy_from_slice(black_box(&message.bytes));
        black_box(&copy);
    });
}

/// A codec for messages of one size.
trait Codec {
    /// Makes a message's repair symbols.
    fn encode(&mut self, message: &Message);

    /// Asserts that encoding makes what [`Self::send`] did, or symbols that give the message back.
    fn check_encode(&mut self, message: &Message);

    /// Makes and keeps all symbols of the messages.
    fn send(&mut self, messages: &[Message]);

    /// The message, if what arrives of what was sent suffices.
    fn decode(&mut self, arrival: &Arrival) -> Option<&[u8]>;

    fn measure_encode(&mut self, bencher: &mut Bencher<'_>, messages: &[Message]) {
        let mut round = messages.iter().cycle();
        bencher.iter(|| self.encode(round.next().expect("it goes round")));
    }

    fn measure_decode(&mut self, bencher: &mut Bencher<'_>, arrivals: &[Arrival]) {
        let mut round = arrivals.iter().cycle();
        bencher.iter(|| {
            let message = self.decode(round.next().expect("it goes round"));
            black_box(message);
        });
    }
}

fn codecs(size: &Size, simd: Simd, messages: &[Message]) -> Vec<(String, Box<dyn Codec>)> {
    let schedules = [("default", Schedule::Default), ("mds", Schedule::Mds)];
    let mut codecs: Vec<(String, Box<dyn Codec>)> = Vec::new();
    for (name, schedule) in schedules {
        let codec = Cloudburst::new(size, schedule, simd);
        codecs.push((name.to_owned(), Box::new(codec)));
    }
    let others = |other: &Simd| {
        other.is_available() && *other != simd && env::var_os(SIMD_VARIABLE).is_none()
    };
    let others = Simd::ALL.into_iter().filter(others);
    for simd in others.filter(|_| size.n == 64) {
        for (name, schedule) in schedules {
            let codec = Cloudburst::new(size, schedule, simd);
            codecs.push((format!("{name}_{}", simd.name()), Box::new(codec)));
        }
    }
    codecs.push(("raptorq".to_owned(), Box::new(RaptorQ::new(size))));
    let (reed_solomon_simd, codec) = reed_solomon(size, simd);
    codecs.push(("reed_solomon_simd".to_owned(), codec));
    if size.n <= MOST_RLNC_SYMBOLS {
        codecs.push(("rlnc".to_owned(), Box::new(Rlnc::new(size, messages))));
    }
    let of_codecs = [
        ("raptorq", raptorq_simd()),
        ("reed_solomon_simd", reed_solomon_simd),
        ("rlnc", rlnc_simd()),
    ];
    let of_codecs = of_codecs.map(|(codec, simd)| format!("{codec} {simd}"));
    fs::write(SIMD_OF_CODECS_FILE, of_codecs.join("\n")).expect("cargo has made the directory");
    codecs
}

criterion_group!(benches, codec);
criterion_main!(benches);
