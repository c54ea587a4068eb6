//! A message of ours, until the stop comes or it is given up.

use core::time::Duration;

use super::{
    super::{
        config::Config,
        event::{Reason, Receipt, SendId, Undelivered},
        time::Time,
        timers::{Alarm, Timers},
    },
    Due,
};
use cloudburst_code::{
    EncodeError, Encoder, Schedule, Shape, ShapeError,
    wire::{HEADER_BYTES, Header, Row},
};

/// The longest message that a header with a set of bits can state.
pub(super) const MAX_BYTES: usize = (1 << 17) - 1;

#[derive(Debug)]
pub(super) struct Outgoing {
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
    pub(super) round_at: Time,
    pub(super) next_way: usize,
    /// What a round counts for while it is in the rounds.
    pub(super) round_bytes: usize,
    /// Ways that carried a symbol, a bit for each.
    ways: u64,
    alarm: Alarm,
}

impl Outgoing {
    /// `bytes` is memory that is used again.
    pub(super) fn new(
        now: Time,
        id: SendId,
        message: &[u8],
        mut bytes: Vec<u8>,
        config: &Config,
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
    pub(super) fn code(&self) -> u8 {
        self.id.message as u8
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn into_memory(self) -> Vec<u8> {
        self.bytes
    }

    pub(super) fn datagram_bytes(&self) -> usize {
        HEADER_BYTES + self.shape.symbol_bytes()
    }

    pub(super) fn symbols(&self) -> u32 {
        self.shape.symbols() as u32
    }

    pub(super) fn start(&mut self, now: Time) {
        self.is_started = true;
        (self.round_at, self.next_way) = (now, 0);
    }

    pub(super) fn is_started(&self) -> bool {
        self.is_started
    }

    pub(super) fn is_spent(&self) -> bool {
        self.sent >= self.budget
    }

    /// Writes the next symbol's datagram to the beginning of `out`.
    pub(super) fn write(&self, schedule: Schedule, out: &mut [u8]) -> Result<usize, EncodeError> {
        // Rows must not fit the same losses badly in one message after the other.
        let seed = (self.id.message ^ self.id.message >> 16) as u16;
        let encoder = Encoder::new(&self.bytes, self.shape, schedule, self.code(), seed)?;
        encoder.write(self.sent..self.sent + 1, out)
    }

    pub(super) fn note_sent(&mut self, now: Time, way: usize) {
        self.sent += 1;
        self.ways |= 1 << (way % 64);
        if self.sent == self.symbols() {
            self.enough_at = now;
        }
    }

    /// Whether a stop can be about this message.
    pub(super) fn is_meant(&self, stop: &Header) -> bool {
        self.sent >= self.symbols() && *stop == self::stop(self.code(), &self.shape)
    }

    /// Its alarm is for the end of its time.
    pub(super) fn set_alarm(&mut self, timers: &mut Timers<Due>) {
        self.alarm.set(self.ends, Due::Message(self.id), timers);
    }

    /// All that the budget allows has been sent: waits so long for a stop, at most.
    pub(super) fn wait_for_stop(&mut self, now: Time, grace: Duration, timers: &mut Timers<Due>) {
        self.ends = self.ends.min(now + grace);
        self.set_alarm(timers);
    }

    pub(super) fn is_due(&mut self, now: Time, timers: &mut Timers<Due>) -> bool {
        self.alarm.is_due(now, Due::Message(self.id), timers)
    }

    /// No less than the round trip of the symbol that completed it.
    pub(super) fn round_trip(&self, now: Time) -> Option<Duration> {
        (self.sent >= self.symbols()).then(|| now.since(self.enough_at))
    }

    pub(super) fn receipt(&self, now: Time) -> Receipt {
        Receipt {
            completion: now.since(self.accepted_at),
            symbols: self.symbols(),
            sent: self.sent,
            needed: self.symbols(),
            paths: self.ways.count_ones() as u16,
        }
    }

    pub(super) fn failure(&self, reason: Reason) -> Undelivered {
        Undelivered {
            reason,
            symbols: self.symbols(),
            sent: self.sent,
            have: None,
        }
    }
}

/// The header that says stop: that of a symbol which is the sum of nothing.
pub(super) fn stop(id: u8, shape: &Shape) -> Header {
    Header {
        id,
        block_symbols: shape.symbols() as u8,
        message_bytes: shape.message_bytes() as u32,
        row: Row::Bits(0),
    }
}
