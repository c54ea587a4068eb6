//! The asking side of one tunnel: which probe to send, and whether what came is its answer.

use std::time::Duration;

use splitter_policy::histogram::Histogram;

use super::key::KeyRing;
use super::measure::Measure;
use super::round_trip::Stamp;
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

    /// Numbers its probes from behind this one on. A peer takes no number twice from one run of an agent, in which a tunnel may
    /// begin to be watched anew.
    #[must_use]
    pub fn after(mut self, sequence: u64) -> Self {
        self.sequence = sequence;
        self
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
            stay: None,
        };
        request.seal(&self.keys.first())
    }

    /// The probe that was made last is being sent now, from when on its round trip counts.
    pub fn leaves(&mut self, now: Duration) {
        self.measure.leaves(now);
    }

    /// Takes a probe of ours that the kernel saw leave at this time, as it gives it back. What it gives back instead counts
    /// for nothing: then the probe is taken to have left when it was sent.
    pub fn left(&mut self, bytes: &[u8], at: Duration) {
        if let Ok((datagram, _)) = Datagram::open(bytes, &self.keys)
            && datagram.kind == Kind::Request
            && datagram.prober == self.nonce
            && datagram.tunnel == self.tunnel
        {
            self.measure.left(datagram.sequence, at);
        }
    }

    /// Takes a datagram that arrived.
    ///
    /// # Errors
    /// Why it is not an answer to an outstanding probe of this tunnel.
    pub fn receive(&mut self, bytes: &[u8], arrived: impl Into<Stamp>) -> Result<(), Refusal> {
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
        let answered = self
            .measure
            .answered(datagram.sequence, arrived.into(), datagram.stay);
        if !answered {
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

    /// Takes the differences between one round trip and the next, since they were last taken.
    pub(super) fn take_differences(&mut self) -> Histogram {
        self.measure.take_differences()
    }

    /// Notes that time has passed.
    pub fn tick(&mut self, now: Duration) {
        self.measure.settle(now);
    }
}
