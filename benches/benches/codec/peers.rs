//! The codecs that a user would pick instead.

use std::hint::black_box;

use criterion::{BatchSize, Bencher};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};
use rand_core_of_rlnc::RngCore;
use raptorq::{
    EncodingPacket, ObjectTransmissionInformation, SourceBlockDecoder, SourceBlockEncoder,
};
use reed_solomon_simd::EncoderResult;
use reed_solomon_simd::engine::{self, Engine};
use reed_solomon_simd::rate::{DefaultRateDecoder, DefaultRateEncoder, RateDecoder, RateEncoder};

use cloudburst::code::Simd;

use super::{Arrival, Codec, Message, SYMBOL_BYTES, Size};

/// The instructions that raptorq's own detection chooses, of which nobody else can.
pub(crate) fn raptorq_simd() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
            return "avx512";
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi1") {
            return "avx2";
        }
    }
    if cfg!(target_arch = "aarch64") {
        "neon"
    } else {
        "portable"
    }
}

/// The instruction set that rlnc selects.
pub(crate) fn rlnc_simd() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("gfni") && is_x86_feature_detected!("avx512f") {
            return "avx512-gfni";
        }
        if is_x86_feature_detected!("avx512bw") {
            return "avx512";
        }
        if is_x86_feature_detected!("avx2") {
            return "avx2";
        }
    }
    if cfg!(target_arch = "aarch64") {
        "neon"
    } else {
        "portable"
    }
}

pub(crate) struct RaptorQ {
    config: ObjectTransmissionInformation,
    message_bytes: u64,
    n: usize,
    repairs: u32,
    /// All packets of each message.
    sent: Vec<Vec<EncodingPacket>>,
    decoded: Vec<u8>,
}

impl RaptorQ {
    pub(crate) fn new(size: &Size) -> Self {
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

    fn check_encode(&mut self, message: &Message) {
        let encoder = SourceBlockEncoder::new(0, &self.config, &message.bytes);
        let encoded = encoder.repair_packets(0, self.repairs);
        let sent = &self.sent[message.number][self.n..];
        assert!(encoded[..] == sent[..encoded.len()]);
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

/// The crate's codec by the instructions that `simd` names, as far as it has them.
pub(crate) fn reed_solomon(size: &Size, simd: Simd) -> (&'static str, Box<dyn Codec>) {
    match simd {
        // It has nothing wider.
        #[cfg(target_arch = "x86_64")]
        Simd::Avx512Gfni | Simd::Avx2 => {
            ("avx2", Box::new(ReedSolomon::new(size, engine::Avx2::new)))
        }
        #[cfg(target_arch = "x86_64")]
        Simd::Ssse3 => (
            "ssse3",
            Box::new(ReedSolomon::new(size, engine::Ssse3::new)),
        ),
        #[cfg(target_arch = "aarch64")]
        Simd::Neon => ("neon", Box::new(ReedSolomon::new(size, engine::Neon::new))),
        _ => (
            "portable",
            Box::new(ReedSolomon::new(size, engine::NoSimd::new)),
        ),
    }
}

struct ReedSolomon<E: Engine> {
    n: usize,
    encoder: DefaultRateEncoder<E>,
    decoder: DefaultRateDecoder<E>,
    /// All symbols of each message.
    sent: Vec<Vec<Vec<u8>>>,
    decoded: Vec<u8>,
}

impl<E: Engine> ReedSolomon<E> {
    fn new(size: &Size, engine: impl Fn() -> E) -> Self {
        let Size { n, repairs, .. } = *size;
        let encoder = DefaultRateEncoder::new(n, repairs, SYMBOL_BYTES, engine(), None);
        let decoder = DefaultRateDecoder::new(n, repairs, SYMBOL_BYTES, engine(), None);
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

impl<E: Engine> Codec for ReedSolomon<E> {
    fn encode(&mut self, message: &Message) {
        black_box(self.repairs(message).recovery(0));
    }

    fn check_encode(&mut self, message: &Message) {
        let sent = self.sent[message.number][self.n..].to_vec();
        let encoded = self.repairs(message);
        assert!(
            encoded
                .recovery_iter()
                .eq(sent.iter().map(|symbol| &symbol[..]))
        );
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

/// Random linear network coding: no symbol is a source symbol, whichever arrive.
pub(crate) struct Rlnc {
    n: usize,
    repairs: usize,
    /// One for each message, which owns a copy of it.
    encoders: Vec<rlnc::full::Encoder>,
    random: Draw,
    pieces: Vec<u8>,
    /// All pieces of each message.
    sent: Vec<Vec<Vec<u8>>>,
    decoded: Vec<u8>,
}

impl Rlnc {
    pub(crate) fn new(size: &Size, messages: &[Message]) -> Self {
        let encoder = |message: &Message| {
            rlnc::full::Encoder::new(message.bytes.clone(), size.n).expect("it is of fair size")
        };
        let encoders: Vec<_> = messages.iter().map(encoder).collect();
        let piece_bytes = encoders[0].get_full_coded_piece_byte_len();
        Self {
            n: size.n,
            repairs: size.repairs,
            encoders,
            random: Draw(Xoshiro256PlusPlus::seed_from_u64(7)),
            pieces: vec![0; size.repairs * piece_bytes],
            sent: Vec::new(),
            decoded: Vec::new(),
        }
    }

    fn decode_pieces<'p>(&self, pieces: impl Iterator<Item = &'p [u8]>) -> Option<Vec<u8>> {
        let symbol_bytes = self.encoders[0].get_piece_byte_len();
        let decoder = rlnc::full::Decoder::new(symbol_bytes, self.n);
        let mut decoder = decoder.expect("it is of fair size");
        for piece in pieces {
            // Now and then one tells nothing new.
            let _ = decoder.decode(piece);
            if decoder.is_already_decoded() {
                return decoder.get_decoded_data().ok();
            }
        }
        None
    }
}

/// Random numbers for rlnc, by the trait of the version that it uses.
struct Draw(Xoshiro256PlusPlus);

impl RngCore for Draw {
    fn next_u32(&mut self) -> u32 {
        self.0.next_u32()
    }

    fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }
}

impl Codec for Rlnc {
    fn encode(&mut self, message: &Message) {
        let encoder = &self.encoders[message.number];
        for piece in self
            .pieces
            .chunks_exact_mut(encoder.get_full_coded_piece_byte_len())
        {
            let written = encoder.code_with_buf(&mut self.random, piece);
            written.expect("the buffer was measured");
        }
        black_box(&self.pieces);
    }

    /// Pieces differ each time: so many rounds of them as a message takes are decoded.
    fn check_encode(&mut self, message: &Message) {
        let mut pieces = Vec::new();
        for _ in 0..(self.n + 8).div_ceil(self.repairs) {
            self.encode(message);
            pieces.extend_from_slice(&self.pieces);
        }
        let piece_bytes = self.encoders[0].get_full_coded_piece_byte_len();
        let decoded = self.decode_pieces(pieces.chunks_exact(piece_bytes));
        assert!(decoded.as_ref() == Some(&message.bytes));
    }

    fn send(&mut self, messages: &[Message]) {
        let mut send = |message: &Message| {
            let encoder = &self.encoders[message.number];
            (0..2 * self.n + 40)
                .map(|_| encoder.code(&mut self.random))
                .collect()
        };
        self.sent = messages.iter().map(&mut send).collect();
    }

    fn decode(&mut self, arrival: &Arrival) -> Option<&[u8]> {
        let sent = &self.sent[arrival.message];
        let sequences = arrival
            .sources
            .iter()
            .copied()
            .chain(self.n..self.n + arrival.repairs);
        self.decoded = self.decode_pieces(sequences.map(|sequence| &sent[sequence][..]))?;
        Some(&self.decoded)
    }
}
