//! Path MTU discovery (DPLPMTUD, RFC 8899) of one path: which length to probe, and what is proven.

use core::time::Duration;

use cloudburst_wire::Time;

/// Attempts to get a longer datagram through, and when the next are made
/// (RFC 8899 §5.1.2 and §5.3.1, `PMTU_RAISE_TIMER`).
const MAX_PROBES: u8 = 3;
const PMTU_RAISE_TIMER: Duration = Duration::from_secs(600);

/// Path MTU discovery (DPLPMTUD, RFC 8899): the longest datagram that gets through.
#[derive(Clone, Copy, Debug)]
pub struct PathMtu {
    proven: usize,
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
    /// Begins with a length that every path carries.
    pub const fn new(now: Time, proven: usize) -> Self {
        Self {
            proven,
            attempts: 0,
            attempt_at: now,
            probe: None,
        }
    }

    /// Returns the longest datagram that is known to get through.
    pub const fn proven(&self) -> usize {
        self.proven
    }

    /// Returns when a probe may be due, if there is more to find out.
    pub fn next_due(&self, most: usize) -> Option<Time> {
        (self.proven < most).then_some(self.attempt_at)
    }

    /// Takes the probe that is due now. Returns its length: the most that there is to find out.
    pub fn take_probe(
        &mut self,
        now: Time,
        ack_timeout: Duration,
        most: usize,
        nonce: u64,
    ) -> Option<usize> {
        if self.proven >= most || now < self.attempt_at {
            return None;
        }
        // No datagram of UDP is longer.
        let bytes = most.min(u16::MAX.into()) as u16;
        let sent = self.probe.filter(|probe| probe.bytes == bytes);
        let mut nonces = sent.map_or([nonce as u32; MAX_PROBES as usize], |probe| probe.nonces);
        nonces.rotate_right(1);
        nonces[0] = nonce as u32;
        self.probe = Some(MtuProbe { bytes, nonces });
        self.attempts = self.attempts.saturating_add(1);
        self.attempt_at = now + ack_timeout.saturating_mul(2);
        if self.attempts == MAX_PROBES {
            self.attempts = 0;
            self.attempt_at = now + PMTU_RAISE_TIMER;
        }
        Some(most)
    }

    /// Notes that a ping of this length was answered, as its peer says. Only the answer to a probe of ours
    /// proves a length, and no more than was probed (RFC 8899 §4.1 and §4.6.1): the peer reports
    /// whatever it likes.
    pub fn confirm(&mut self, nonce: u64, bytes: usize) {
        let is_answer = |probe: &mut MtuProbe| {
            probe.nonces.contains(&(nonce as u32)) && bytes >= probe.bytes.into()
        };
        if let Some(probe) = self.probe.take_if(is_answer) {
            self.proven = self.proven.max(probe.bytes.into());
        }
    }

    /// Notes that a datagram of this length did not get through, which takes back what was proven beyond
    /// `initial`.
    pub fn refute(&mut self, now: Time, bytes: usize, initial: usize) {
        if bytes > initial {
            self.proven = self.proven.min(initial);
            self.probe = None;
            self.attempt_at = now + PMTU_RAISE_TIMER;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_length_is_tried_three_times_and_again_after_ten_minutes() {
        let mut now = Time::ZERO;
        let mut mtu = PathMtu::new(now, 1_200);
        for attempt in 0..3 {
            assert_eq!(mtu.next_due(1_452), Some(now));
            assert_eq!(mtu.take_probe(now, SECOND, 1_452, attempt), Some(1_452));
            assert_eq!(mtu.take_probe(now, SECOND, 1_452, attempt), None);
            now = now + SECOND * 2;
        }
        assert_eq!(mtu.take_probe(now, SECOND, 1_452, 3), None);
        now = now + PMTU_RAISE_TIMER;
        assert_eq!(mtu.take_probe(now, SECOND, 1_452, 3), Some(1_452));
        mtu.confirm(3, 1_452);
        assert_eq!(mtu.proven(), 1_452);
        assert_eq!(mtu.next_due(1_452), None, "there is no more to find out");
        assert_eq!(mtu.take_probe(now + SECOND * 9, SECOND, 1_452, 4), None);
        mtu.refute(now, 1_452, 1_200);
        assert_eq!(mtu.proven(), 1_200);
    }
}
