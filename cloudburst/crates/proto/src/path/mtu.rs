//! Path MTU discovery (DPLPMTUD, RFC 8899) of one path: which length to probe, and what is proven.

// Peers report what it is fed: nothing may overflow, whatever they say.
#![deny(clippy::arithmetic_side_effects)]

use core::time::Duration;

use super::{Path, PathProbe};
use crate::{config::Datagrams, event::Health, time::Time};

/// Attempts to get a longer datagram through, and when the next are made
/// (RFC 8899 §5.1.2 and §5.3.1, `PMTU_RAISE_TIMER`).
const MAX_PROBES: u8 = 3;
const PMTU_RAISE_TIMER: Duration = Duration::from_secs(600);

/// Path MTU discovery (DPLPMTUD, RFC 8899): the longest datagram that gets through.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathMtu {
    pub(super) proven: usize,
    attempts: u8,
    attempt_at: Time,
    /// The probe that may still be answered.
    probe: Option<MtuProbe>,
}

/// A probe of the path MTU that was sent.
#[derive(Clone, Copy, Debug)]
struct MtuProbe {
    bytes: u16,
    /// The lower halves of its attempts' nonces, the first's in all that were not made yet: the
    /// answer to any of them will do.
    nonces: [u32; MAX_PROBES as usize],
}

impl PathMtu {
    pub(super) const fn new(now: Time, proven: usize) -> Self {
        Self {
            proven,
            attempts: 0,
            attempt_at: now,
            probe: None,
        }
    }
}

impl Path {
    /// The MTU probe that is due now.
    pub(super) fn due_mtu_probe(
        &mut self,
        now: Time,
        ack_timeout: Duration,
        most: usize,
        nonce: u64,
    ) -> Option<PathProbe> {
        let mtu = &mut self.mtu;
        if self.health != Health::Good || mtu.proven >= most || now < mtu.attempt_at {
            return None;
        }
        // None is longer than `MAX_DATAGRAM_BYTES`.
        let bytes = most.min(u16::MAX.into()) as u16;
        let sent = mtu.probe.filter(|probe| probe.bytes == bytes);
        let mut nonces = sent.map_or([nonce as u32; MAX_PROBES as usize], |probe| probe.nonces);
        nonces.rotate_right(1);
        nonces[0] = nonce as u32;
        mtu.probe = Some(MtuProbe { bytes, nonces });
        mtu.attempts = mtu.attempts.saturating_add(1);
        mtu.attempt_at = now + ack_timeout.saturating_mul(2);
        if mtu.attempts == MAX_PROBES {
            mtu.attempts = 0;
            mtu.attempt_at = now + PMTU_RAISE_TIMER;
        }
        Some(PathProbe::MtuProbe(most))
    }

    /// A ping of this length was answered, as its peer says. Only the answer to a probe of ours
    /// proves a length, and no more than was probed (RFC 8899 §4.1 and §4.6.1): the peer reports
    /// whatever it likes.
    pub(crate) fn mtu_confirmed(&mut self, nonce: u64, bytes: usize) {
        let mtu = &mut self.mtu;
        let is_answer = |probe: &mut MtuProbe| {
            probe.nonces.contains(&(nonce as u32)) && bytes >= probe.bytes.into()
        };
        if let Some(probe) = mtu.probe.take_if(is_answer) {
            mtu.proven = mtu.proven.max(probe.bytes.into());
        }
    }

    /// A datagram of this length did not.
    pub(crate) fn mtu_refuted(&mut self, now: Time, bytes: usize, datagrams: &Datagrams) {
        if bytes > datagrams.initial {
            self.mtu.proven = self.mtu.proven.min(datagrams.initial);
            self.mtu.probe = None;
            self.mtu.attempt_at = now + PMTU_RAISE_TIMER;
        }
    }
}
