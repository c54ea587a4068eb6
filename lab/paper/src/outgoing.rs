//! A message of ours, until the stop comes or it is given up.

use core::time::Duration;

use cloudburst_proto::{Reason, Receipt, SendId, Time, TransportConfig, Undelivered};

use crate::{
    Due,
    timers::{Alarm, Timers},
};
use cloudburst_code::{
    EncodeError, Encoder, Schedule, Shape, ShapeError,
    wire::{HEADER_BYTES, Header, Row},
};

/// The longest message that a header with a set of bits can state.
pub(crate) const MAX_BYTES: usize = (1 << 17) - 1;

#[derive(Debug)]
pub(crate) struct Outgoing {
    id: SendId,
    bytes: Vec<u8>,
    shape: Shape,
    accepted_at: Time,
    ends: Time,
    is_started: bool,
    sent: u32,
    budget: u32,
    /// When as many symbols were sent as the message has: the one that
    /// completed it was sent no earlier.
    enough_at: Time,
    /// When the round under way was due, and which way it has come to.
    pub(crate) round_at: Time,
    pub(crate) next_way: usize,
    /// What a round counts for while it is in the rounds.
    pub(crate) round_bytes: usize,
    /// Ways that carried a symbol, a bit for each.
    ways: u64,
    alarm: Alarm,
}

impl Outgoing {
    /// `bytes` is memory that is used again.
    pub(crate) fn new(
        now: Time,
        id: SendId,
        message: &[u8],
        mut bytes: Vec<u8>,
        config: &TransportConfig,
    ) -> Result<Self, ShapeError> {
        let shape = Shape::fitting(message.len(), config.datagrams.initial - HEADER_BYTES)?;
        bytes.clear();
        bytes.extend_from_slice(message);
        Ok(Self {
            id,
            bytes,
            shape,
            accepted_at: now,
            ends: now + config.budget.lifetime,
            is_started: false,
            sent: 0,
            budget: config.budget.symbols(shape.symbols()),
            enough_at: now,
            round_at: now,
            next_way: 0,
            round_bytes: 0,
            ways: 0,
            alarm: Alarm::default(),
        })
    }

    /// Its 8-bit id on the wire.
    pub(crate) fn code(&self) -> u8 {
        self.id.as_u64() as u8
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn into_memory(self) -> Vec<u8> {
        self.bytes
    }

    pub(crate) fn datagram_bytes(&self) -> usize {
        HEADER_BYTES + self.shape.symbol_bytes()
    }

    pub(crate) fn symbols(&self) -> u32 {
        self.shape.symbols() as u32
    }

    pub(crate) fn start(&mut self, now: Time) {
        self.is_started = true;
        (self.round_at, self.next_way) = (now, 0);
    }

    pub(crate) fn is_started(&self) -> bool {
        self.is_started
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.sent >= self.budget
    }

    /// Writes the next symbol's datagram to the beginning of `out`.
    pub(crate) fn write(&self, schedule: Schedule, out: &mut [u8]) -> Result<usize, EncodeError> {
        // Rows must not fit the same losses badly in one message after the other.
        let seed = (self.id.as_u64() ^ self.id.as_u64() >> 16) as u16;
        let encoder = Encoder::new(&self.bytes, self.shape, schedule, self.code(), seed)?;
        encoder.write(self.sent..self.sent + 1, out)
    }

    pub(crate) fn note_sent(&mut self, now: Time, way: usize) {
        self.sent += 1;
        self.ways |= 1 << (way % 64);
        if self.sent == self.symbols() {
            self.enough_at = now;
        }
    }

    /// Whether a stop can be about this message.
    pub(crate) fn is_meant(&self, stop: &Header) -> bool {
        self.sent >= self.symbols() && *stop == self::stop(self.code(), &self.shape)
    }

    /// Its alarm is for the end of its time.
    pub(crate) fn set_alarm(&mut self, timers: &mut Timers<Due>) {
        self.alarm.set(self.ends, Due::Message(self.id), timers);
    }

    /// All that the budget allows has been sent: waits so long for a stop, at most.
    pub(crate) fn wait_for_stop(&mut self, now: Time, grace: Duration, timers: &mut Timers<Due>) {
        self.ends = self.ends.min(now + grace);
        self.set_alarm(timers);
    }

    pub(crate) fn is_due(&mut self, now: Time, timers: &mut Timers<Due>) -> bool {
        self.alarm.is_due(now, Due::Message(self.id), timers)
    }

    /// No less than the round trip of the symbol that completed it.
    pub(crate) fn round_trip(&self, now: Time) -> Option<Duration> {
        (self.sent >= self.symbols()).then(|| now.since(self.enough_at))
    }

    pub(crate) fn receipt(&self, now: Time) -> Receipt {
        let mut receipt = Receipt::default();
        receipt.completion = now.since(self.accepted_at);
        receipt.symbols = self.symbols();
        receipt.sent = self.sent;
        // Its stop does not say how many the receiver took.
        receipt.needed = self.symbols();
        receipt.paths = self.ways.count_ones() as u16;
        receipt
    }

    pub(crate) fn failure(&self, reason: Reason) -> Undelivered {
        Undelivered::new(reason, self.symbols(), self.sent)
    }
}

/// The header that says stop: that of a symbol which is the sum of nothing.
pub(crate) fn stop(id: u8, shape: &Shape) -> Header {
    Header {
        id,
        block_symbols: shape.symbols() as u8,
        message_bytes: shape.message_bytes() as u32,
        row: Row::Bits(0),
    }
}
