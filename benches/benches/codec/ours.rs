//! Cloudburst's own code.

use std::hint::black_box;

use cloudburst::code::{Block, Decoder, Encoder, Received, Schedule, Shape, Simd};

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
