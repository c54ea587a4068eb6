//! The answering side of one tunnel: which datagrams are answered, and with what.
//!
//! A reply is as long as its request, and each source gets no more than [`REPLIES_PER_SECOND`]:
//! a host that forges sources cannot make this host send more than it received, and only with
//! datagrams that a holder of the key has made.

use std::net::IpAddr;
use std::time::Duration;

use super::key::KeyRing;
use super::wire::{DATAGRAM_BYTES, Datagram, Kind, Nonce, Refusal};

/// Replies that a source gets at most each second: a suspect tunnel is probed 100 times a second at the most.
pub const REPLIES_PER_SECOND: u32 = 200;
/// What it gets at once.
const BURST: u32 = 50;

/// Requests that do not know this run of the agent yet, and so may be recorded ones: a peer needs
/// one answer to know it.
const INTRODUCTIONS_PER_SECOND: u32 = 20;
const INTRODUCTION_BURST: u32 = 5;

/// Sources that are distinguished. The peer is one; the others are recordings sent from elsewhere.
const MAX_SOURCES: usize = 16;
/// Runs of peers' agents that are distinguished.
const MAX_PROBERS: usize = 8;

/// A source or prober that was silent for so long may be forgotten for another one.
const FORGET_AFTER: Duration = Duration::from_secs(10);

/// Answers anyone who holds the key. Neither sends nor waits by itself.
#[derive(Debug)]
pub struct Responder {
    keys: KeyRing,
    nonce: Nonce,
    sources: Vec<Source>,
    probers: Vec<SeenProber>,
}

#[derive(Debug)]
struct Source {
    address: IpAddr,
    seen: Duration,
    replies: Bucket,
    introductions: Bucket,
}

/// Which sequence numbers a prober has used, so that none is answered twice.
#[derive(Debug)]
struct SeenProber {
    nonce: Nonce,
    seen: Duration,
    highest: u64,
    /// Bit n is set when `highest - n` was there.
    window: u128,
}

/// Lets through a rate with a burst.
#[derive(Debug)]
struct Bucket {
    per_second: u32,
    burst: u32,
    /// When it was or will be full, as the time by which it is ahead shows its fill (GCRA).
    full_at: Duration,
}

impl Responder {
    /// A responder in the run of the agent that `nonce` stands for.
    #[must_use]
    pub fn new(keys: KeyRing, nonce: Nonce) -> Self {
        Self {
            keys,
            nonce,
            sources: Vec::new(),
            probers: Vec::new(),
        }
    }

    /// The reply to what arrived. `stay` is asked last for how long it has been here, which the reply tells, so that the
    /// peer can take it off; it is none where that is not known.
    ///
    /// # Errors
    /// Why there is none.
    pub fn answer(
        &mut self,
        bytes: &[u8],
        source: IpAddr,
        now: Duration,
        stay: impl FnOnce() -> Option<Duration>,
    ) -> Result<[u8; DATAGRAM_BYTES], Refusal> {
        // Proof first: only holders of the key get as far as the tables below.
        let (request, key) = Datagram::open(bytes, &self.keys)?;
        if request.kind == Kind::Reply {
            return Err(Refusal::Unasked);
        }
        if request.prober == self.nonce {
            return Err(Refusal::Reflected);
        }
        let knows_us = request.responder == self.nonce;
        if knows_us && !self.is_new(&request, now) {
            return Err(Refusal::Replayed);
        }
        let source = self.source(source, now)?;
        let bucket = match knows_us {
            true => &mut source.replies,
            false => &mut source.introductions,
        };
        if !bucket.take(now) {
            return Err(Refusal::RateLimited);
        }
        let reply = Datagram {
            kind: Kind::Reply,
            responder: self.nonce,
            stay: stay(),
            ..request
        };
        // While keys are changed, the asker may not have our first one yet.
        Ok(reply.seal(&key))
    }

    /// Whether the prober has not used this sequence number yet, as far as the window knows.
    fn is_new(&mut self, request: &Datagram, now: Duration) -> bool {
        let known = self
            .probers
            .iter_mut()
            .find(|it| it.nonce == request.prober);
        if let Some(prober) = known {
            prober.seen = now;
            return prober.is_new(request.sequence);
        }
        let prober = SeenProber {
            nonce: request.prober,
            seen: now,
            highest: request.sequence,
            window: 1,
        };
        if self.probers.len() < MAX_PROBERS {
            self.probers.push(prober);
        } else if let Some(oldest) = self.probers.iter_mut().min_by_key(|it| it.seen) {
            *oldest = prober;
        }
        true
    }

    fn source(&mut self, address: IpAddr, now: Duration) -> Result<&mut Source, Refusal> {
        let known = self.sources.iter().position(|it| it.address == address);
        let index = match known {
            Some(index) => index,
            None => self.admit(address, now)?,
        };
        let source = &mut self.sources[index];
        source.seen = now;
        Ok(source)
    }

    fn admit(&mut self, address: IpAddr, now: Duration) -> Result<usize, Refusal> {
        let source = Source {
            address,
            seen: now,
            replies: Bucket::new(REPLIES_PER_SECOND, BURST),
            introductions: Bucket::new(INTRODUCTIONS_PER_SECOND, INTRODUCTION_BURST),
        };
        if self.sources.len() < MAX_SOURCES {
            self.sources.push(source);
            return Ok(self.sources.len() - 1);
        }
        let mut sources = self.sources.iter();
        let index = sources
            .position(|it| now.saturating_sub(it.seen) >= FORGET_AFTER)
            .ok_or(Refusal::RateLimited)?;
        self.sources[index] = source;
        Ok(index)
    }
}

impl SeenProber {
    fn is_new(&mut self, sequence: u64) -> bool {
        if let Some(ahead) = sequence.checked_sub(self.highest).filter(|it| *it > 0) {
            let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
            self.window = self.window.checked_shl(ahead).unwrap_or(0) | 1;
            self.highest = sequence;
            return true;
        }
        let behind = u32::try_from(self.highest - sequence).unwrap_or(u32::MAX);
        let Some(bit) = 1_u128.checked_shl(behind) else {
            return false;
        };
        let is_new = self.window & bit == 0;
        self.window |= bit;
        is_new
    }
}

impl Bucket {
    fn new(per_second: u32, burst: u32) -> Self {
        Self {
            per_second,
            burst,
            full_at: Duration::ZERO,
        }
    }

    fn take(&mut self, now: Duration) -> bool {
        let cost = Duration::from_secs(1) / self.per_second;
        let full_at = self.full_at.max(now) + cost;
        let fits = full_at - now <= cost * self.burst;
        if fits {
            self.full_at = full_at;
        }
        fits
    }
}

#[cfg(test)]
#[path = "echo_tests.rs"]
mod tests;
