//! Cloudburst's own code.

use std::hint::black_box;

use cloudburst::code::{Block, Decoder, Encoder, Received, Schedule, Shape, Simd};

use criterion::Bencher;

use super::{Arrival, Codec, Message, SYMBOL_BYTES, Size};

pub(crate) struct Cloudburst {
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
    pub(crate) fn new(size: &Size, schedule: Schedule, simd: Simd) -> Self {
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

    fn check_encode(&mut self, message: &Message) {
        self.encode(message);
        let first = self.shape.symbols() * self.datagram_bytes;
        let sent = &self.sent[message.number][first..];
        assert!(self.repair_datagrams[..] == sent[..self.repair_datagrams.len()]);
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

/// No code, but what every one has to do: it reads each source symbol once, by the exclusive or
/// of all of a block, and writes each repair symbol once.
pub(crate) struct XorBound {
    codec: Cloudburst,
    blocks: usize,
}

impl XorBound {
    pub(crate) fn new(size: &Size, simd: Simd) -> Self {
        let codec = Cloudburst::new(size, Schedule::Default, simd);
        let blocks = codec.shape.blocks();
        Self { codec, blocks }
    }

    fn run(&mut self, message: &Message) {
        let n = self.codec.shape.symbols() as u32;
        let encoder = self.codec.encoder(message);
        let sums = n..n + self.blocks as u32;
        let (sums_bytes, bytes) = (
            self.blocks * self.codec.datagram_bytes,
            self.codec.repair_datagrams.len(),
        );
        let datagrams = &mut self.codec.repair_datagrams;
        let written = encoder.write(sums, datagrams);
        black_box(written.expect("the buffer was measured"));
        for first in (sums_bytes..bytes).step_by(sums_bytes) {
            let len = sums_bytes.min(bytes - first);
            datagrams.copy_within(..len, first);
        }
        black_box(&datagrams);
    }

    /// With each of the sums a lost symbol of its block is mended: all symbols add up to nothing.
    fn check(&mut self, message: &Message) {
        self.run(message);
        let bytes = self.codec.datagram_bytes;
        let header = bytes - SYMBOL_BYTES;
        for (number, datagram) in self.codec.repair_datagrams.chunks_exact(bytes).enumerate() {
            let mut sum = datagram[header..].to_vec();
            let symbols = message.bytes.chunks_exact(SYMBOL_BYTES);
            for symbol in symbols.skip(number % self.blocks).step_by(self.blocks) {
                sum.iter_mut()
                    .zip(symbol)
                    .for_each(|(sum, byte)| *sum ^= byte);
            }
            assert!(sum.iter().all(|&byte| byte == 0));
        }
    }

    pub(crate) fn measure(&mut self, bencher: &mut Bencher<'_>, messages: &[Message]) {
        messages.iter().for_each(|message| self.check(message));
        let mut round = messages.iter().cycle();
        bencher.iter(|| self.run(round.next().expect("it goes round")));
    }
}
