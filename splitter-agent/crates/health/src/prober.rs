//! The asking side of one tunnel: which probe to send, and whether what came is its answer.

use std::time::Duration;

use super::key::KeyRing;
use super::measure::Measure;
use super::wire::{DATAGRAM_BYTES, Datagram, Kind, Nonce, Refusal};

/// Asks the peer over one tunnel. Neither sends nor waits by itself.
#[derive(Debug, Clone)]
pub struct Prober {
    keys: KeyRing,
    tunnel: u8,
    nonce: Nonce,
    /// The peer's, as of its last answer. With it in a request the peer can tell a recorded one.
    responder: Nonce,
    sequence: u64,
    measure: Measure,
}

impl Prober {
    /// A prober of the tunnel with this number in the run of the agent that `nonce` stands for.
    #[must_use]
    pub fn new(keys: KeyRing, tunnel: u8, nonce: Nonce) -> Self {
        Self {
            keys,
            tunnel,
            nonce,
            responder: Nonce::UNKNOWN,
            sequence: 0,
            measure: Measure::default(),
        }
    }

    /// The next probe to send.
    pub fn probe(&mut self, now: Duration) -> [u8; DATAGRAM_BYTES] {
        self.sequence += 1;
        self.measure.sent(self.sequence, now);
        let request = Datagram {
            kind: Kind::Request,
            tunnel: self.tunnel,
            prober: self.nonce,
            responder: self.responder,
            sequence: self.sequence,
        };
        request.seal(&self.keys.first())
    }

    /// Takes a datagram that arrived.
    ///
    /// # Errors
    /// Why it is not an answer to an outstanding probe of this tunnel.
    pub fn receive(&mut self, bytes: &[u8], now: Duration) -> Result<(), Refusal> {
        let (datagram, _) = Datagram::open(bytes, &self.keys)?;
        if datagram.kind == Kind::Request {
            return Err(if datagram.prober == self.nonce {
                Refusal::Reflected
            } else {
                Refusal::Unasked
            });
        }
        if datagram.prober != self.nonce || datagram.tunnel != self.tunnel {
            return Err(Refusal::Unasked);
        }
        if datagram.sequence == 0 || datagram.sequence > self.sequence {
            return Err(Refusal::Unasked);
        }
        if !self.measure.answered(datagram.sequence, now) {
            return Err(Refusal::Replayed);
        }
        self.responder = datagram.responder;
        Ok(())
    }

    /// Loss, round-trip time and jitter.
    #[must_use]
    pub fn measure(&self) -> &Measure {
        &self.measure
    }

    /// Notes that time has passed.
    pub fn tick(&mut self, now: Duration) {
        self.measure.settle(now);
    }
}
