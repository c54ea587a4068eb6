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
//! | `memcpy` | no codec: the same bytes, copied |
//!
//! Which symbols are lost changes from message to message, and is the same for
//! every codec; so are contents and messages. The peers are favoured where there
//! is a choice: raptorq's packets are allocated before the clock starts and its
//! plan for a number of symbols is made once, and what a peer encodes is not
//! copied into datagrams.
//!
//! There is no `wirehair`: the registry has no Rust binding of that library.

use std::fs;
use std::hint::black_box;
use std::time::Duration;

use cloudburst::code::{Block, Decoder, Encoder, Received, Schedule, Shape, Simd};
use criterion::measurement::WallTime;
use criterion::{
    BatchSize, Bencher, BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main,
};
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::index;
use rand::{Rng, SeedableRng};
use raptorq::{
    EncodingPacket, ObjectTransmissionInformation, SourceBlockDecoder, SourceBlockEncoder,
};
use reed_solomon_simd::{EncoderResult, ReedSolomonDecoder, ReedSolomonEncoder};

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

fn codec(criterion: &mut Criterion) {
    fs::write(SIMD_FILE, Simd::detect().name()).expect("cargo has made the directory");
    for size in &SIZES {
        let messages = size.messages();
        let mut codecs = codecs(size);
        let mut encode = size.group(criterion, &format!("encode_n{}", size.n));
        for (name, codec) in &mut codecs {
            encode.bench_function(&**name, |bencher| codec.measure_encode(bencher, &messages));
        }
        if size.n == 64 {
            encode.bench_function("memcpy", |bencher| measure_copy(bencher, &messages));
        }
        encode.finish();
        codecs
            .iter_mut()
            .for_each(|(_, codec)| codec.send(&messages));
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

fn codecs(size: &Size) -> Vec<(String, Box<dyn Codec>)> {
    let schedules = [("default", Schedule::Default), ("mds", Schedule::Mds)];
    let mut codecs: Vec<(String, Box<dyn Codec>)> = Vec::new();
    for (name, schedule) in schedules {
        let codec = Cloudburst::new(size, schedule, Simd::detect());
        codecs.push((name.to_owned(), Box::new(codec)));
    }
    let others = |simd: &Simd| simd.is_available() && *simd != Simd::detect();
    for simd in Simd::ALL
        .into_iter()
        .filter(others)
        .filter(|_| size.n == 64)
    {
        for (name, schedule) in schedules {
            let codec = Cloudburst::new(size, schedule, simd);
            codecs.push((format!("{name}_{}", simd.name()), Box::new(codec)));
        }
    }
    codecs.push(("raptorq".to_owned(), Box::new(RaptorQ::new(size))));
    let reed_solomon = ReedSolomon::new(size);
    codecs.push(("reed_solomon_simd".to_owned(), Box::new(reed_solomon)));
    codecs
}

struct Cloudburst {
    shape: Shape,
    schedule: Schedule,
    simd: Simd,
    repairs: usize,
    repair_datagrams: Vec<u8>,
    /// All datagrams of each message.
    sent: Vec<Vec<u8>>,
    datagram_bytes: usize,
    decoder: Decoder<Vec<u8>, Vec<Block>>,
}

impl Cloudburst {
    fn new(size: &Size, schedule: Schedule, simd: Simd) -> Self {
        let shape = Shape::new(size.n * SYMBOL_BYTES, SYMBOL_BYTES).expect("it is of fair size");
        let decoder = Decoder::for_shape(&shape).with_simd(simd);
        let mut codec = Self {
            shape,
            schedule,
            simd,
            repairs: size.repairs,
            repair_datagrams: Vec::new(),
            sent: Vec::new(),
            datagram_bytes: 0,
            decoder: decoder.expect("the caller has asked"),
        };
        let message = Message {
            number: 0,
            bytes: vec![0; shape.message_bytes()],
        };
        codec.datagram_bytes = codec.encoder(&message).datagram_bytes();
        codec.repair_datagrams = vec![0; codec.repairs * codec.datagram_bytes];
        codec
    }

    /// Rows change from message to message as they do in use.
    fn encoder<'m>(&self, message: &'m Message) -> Encoder<'m> {
        let (id, seed) = (message.number as u8, message.number as u16 * 257);
        Encoder::new(&message.bytes, self.shape, self.schedule, id, seed)
            .expect("the shape is the message's")
            .with_simd(self.simd)
            .expect("the caller has asked")
    }
}

impl Codec for Cloudburst {
    fn encode(&mut self, message: &Message) {
        let encoder = self.encoder(message);
        let n = self.shape.symbols() as u32;
        let sequences = n..n + self.repairs as u32;
        let written = encoder.write(sequences, &mut self.repair_datagrams);
        black_box(written.expect("the buffer was measured"));
        black_box(&self.repair_datagrams);
    }

    fn send(&mut self, messages: &[Message]) {
        let count = 3 * self.shape.symbols() + 40;
        let send = |message| {
            let mut datagrams = vec![0; count * self.datagram_bytes];
            let written = self.encoder(message).write(0..count as u32, &mut datagrams);
            written.expect("the buffer was measured");
            datagrams
        };
        self.sent = messages.iter().map(send).collect();
    }

    fn decode(&mut self, arrival: &Arrival) -> Option<&[u8]> {
        self.decoder.reset();
        let sent = &self.sent[arrival.message];
        let n = self.shape.symbols();
        for sequence in arrival
            .sources
            .iter()
            .copied()
            .chain(n..n + arrival.repairs)
        {
            let datagram = &sent[sequence * self.datagram_bytes..][..self.datagram_bytes];
            // Now and then a sum tells nothing new: that is refused, and counts.
            if self.decoder.receive(datagram) == Ok(Received::Complete) {
                break;
            }
        }
        self.decoder.message()
    }
}

struct RaptorQ {
    config: ObjectTransmissionInformation,
    message_bytes: u64,
    n: usize,
    repairs: u32,
    /// All packets of each message.
    sent: Vec<Vec<EncodingPacket>>,
    decoded: Vec<u8>,
}

impl RaptorQ {
    fn new(size: &Size) -> Self {
        let message_bytes = (size.n * SYMBOL_BYTES) as u64;
        Self {
            config: ObjectTransmissionInformation::new(message_bytes, SYMBOL_BYTES as u16, 1, 1, 8),
            message_bytes,
            n: size.n,
            repairs: size.repairs as u32,
            sent: Vec::new(),
            decoded: Vec::new(),
        }
    }

    fn packets(&self, arrival: &Arrival) -> Vec<EncodingPacket> {
        let repairs = self.n..self.n + arrival.repairs;
        let sequences = arrival.sources.iter().copied().chain(repairs);
        let sent = &self.sent[arrival.message];
        sequences.map(|sequence| sent[sequence].clone()).collect()
    }

    fn decode_packets(&self, packets: Vec<EncodingPacket>) -> Option<Vec<u8>> {
        SourceBlockDecoder::new(0, &self.config, self.message_bytes).decode(packets)
    }
}

impl Codec for RaptorQ {
    fn encode(&mut self, message: &Message) {
        // The plan for this number of symbols comes out of the crate's own cache.
        let encoder = SourceBlockEncoder::new(0, &self.config, &message.bytes);
        black_box(encoder.repair_packets(0, self.repairs));
    }

    fn send(&mut self, messages: &[Message]) {
        let send = |message: &Message| {
            let encoder = SourceBlockEncoder::new(0, &self.config, &message.bytes);
            let mut packets = encoder.source_packets();
            packets.extend(encoder.repair_packets(0, self.n as u32));
            packets
        };
        self.sent = messages.iter().map(send).collect();
    }

    fn decode(&mut self, arrival: &Arrival) -> Option<&[u8]> {
        self.decoded = self.decode_packets(self.packets(arrival))?;
        Some(&self.decoded)
    }

    /// The decoder consumes packets, which are made before the clock starts.
    fn measure_decode(&mut self, bencher: &mut Bencher<'_>, arrivals: &[Arrival]) {
        let mut round = arrivals.iter().cycle();
        bencher.iter_batched(
            || self.packets(round.next().expect("it goes round")),
            |packets| self.decode_packets(packets),
            BatchSize::PerIteration,
        );
    }
}

struct ReedSolomon {
    n: usize,
    encoder: ReedSolomonEncoder,
    decoder: ReedSolomonDecoder,
    /// All symbols of each message.
    sent: Vec<Vec<Vec<u8>>>,
    decoded: Vec<u8>,
}

impl ReedSolomon {
    fn new(size: &Size) -> Self {
        let Size { n, repairs, .. } = *size;
        let encoder = ReedSolomonEncoder::new(n, repairs, SYMBOL_BYTES);
        let decoder = ReedSolomonDecoder::new(n, repairs, SYMBOL_BYTES);
        Self {
            n,
            encoder: encoder.expect("it is of fair size"),
            decoder: decoder.expect("it is of fair size"),
            sent: Vec::new(),
            decoded: vec![0; n * SYMBOL_BYTES],
        }
    }

    fn repairs(&mut self, message: &Message) -> EncoderResult<'_> {
        for symbol in message.bytes.chunks_exact(SYMBOL_BYTES) {
            let added = self.encoder.add_original_shard(symbol);
            added.expect("the encoder is for so many");
        }
        self.encoder.encode().expect("all have been added")
    }
}

impl Codec for ReedSolomon {
    fn encode(&mut self, message: &Message) {
        black_box(self.repairs(message).recovery(0));
    }

    fn send(&mut self, messages: &[Message]) {
        let send = |message: &Message| {
            let sources = message.bytes.chunks_exact(SYMBOL_BYTES);
            let mut symbols: Vec<_> = sources.map(<[u8]>::to_vec).collect();
            symbols.extend(self.repairs(message).recovery_iter().map(<[u8]>::to_vec));
            symbols
        };
        self.sent = messages.iter().map(send).collect();
    }

    fn decode(&mut self, arrival: &Arrival) -> Option<&[u8]> {
        let sent = &self.sent[arrival.message];
        let place = |source| source * SYMBOL_BYTES..(source + 1) * SYMBOL_BYTES;
        for &source in &arrival.sources {
            let added = self.decoder.add_original_shard(source, &sent[source]);
            added.expect("each is added once");
            self.decoded[place(source)].copy_from_slice(&sent[source]);
        }
        for repair in 0..arrival.repairs {
            let added = self
                .decoder
                .add_recovery_shard(repair, &sent[self.n + repair]);
            added.expect("each is added once");
        }
        let result = self.decoder.decode().ok()?;
        for (source, symbol) in result.restored_original_iter() {
            self.decoded[place(source)].copy_from_slice(symbol);
        }
        Some(&self.decoded)
    }
}

criterion_group!(benches, codec);
criterion_main!(benches);
