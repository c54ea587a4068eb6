//! The codecs that a user would pick instead.

use std::hint::black_box;

use criterion::{BatchSize, Bencher};
use raptorq::{
    EncodingPacket, ObjectTransmissionInformation, SourceBlockDecoder, SourceBlockEncoder,
};
use reed_solomon_simd::{EncoderResult, ReedSolomonDecoder, ReedSolomonEncoder};

use super::{Arrival, Codec, Message, SYMBOL_BYTES, Size};

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

pub(crate) struct ReedSolomon {
    n: usize,
    encoder: ReedSolomonEncoder,
    decoder: ReedSolomonDecoder,
    /// All symbols of each message.
    sent: Vec<Vec<Vec<u8>>>,
    decoded: Vec<u8>,
}

impl ReedSolomon {
    pub(crate) fn new(size: &Size) -> Self {
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
