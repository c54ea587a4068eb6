//! Pacing: keeps what is sent to a rate.

use core::time::Duration;

use cloudburst_wire::Time;

/// Paces what is sent by a leaky bucket: what has been sent takes its time to run out, and no
/// more than a little may be in it.
#[derive(Clone, Copy, Debug)]
pub struct Pacer {
    bytes_per_s: f64,
    /// When all that was sent has run out.
    empty_at: Time,
    /// Bytes that may always be in the bucket.
    least_depth_bytes: usize,
}

/// What may be in the bucket, as time at the rate. Timers of hosts come late by
/// so much, and must not cost rate.
const DEPTH: Duration = Duration::from_micros(250);
/// And at least so many bytes, unless said otherwise: a train of datagrams for one call of the
/// kernel.
const LEAST_DEPTH_BYTES: usize = 48_000;

/// What has to run out before more is sent, as time at the rate: a host that is
/// woken for each datagram does little else, and short queues overflow by more.
const QUANTUM: Duration = Duration::from_micros(1_500);
/// And no more than this share of the depth: the rest keeps the link busy meanwhile.
const MOST_QUANTUM: f64 = 0.75;

impl Pacer {
    /// Starts with an empty bucket at this rate.
    pub fn new(now: Time, bytes_per_s: f64) -> Self {
        Self {
            bytes_per_s,
            empty_at: now,
            least_depth_bytes: LEAST_DEPTH_BYTES,
        }
    }

    /// Sets the bytes that may always be in the bucket: bursts are no longer, where time does not ask for it.
    pub fn set_depth(&mut self, least_depth_bytes: usize) {
        self.least_depth_bytes = least_depth_bytes;
    }

    /// Begins anew after a silence: what was not sent while there was nothing to send is not made up for. A
    /// train as long as that would find no place in a short queue.
    pub fn restart(&mut self, now: Time) {
        self.empty_at = self.empty_at.max(now);
    }

    /// Sets the rate. If it is faster now, what is in the bucket runs out sooner. If it is slower, what was
    /// sent at the old rate does not take longer.
    pub fn set_rate(&mut self, now: Time, bytes_per_s: f64) {
        let bytes_per_s = bytes_per_s.max(1.0);
        let left = self.empty_at.since(now);
        self.empty_at = now + left.mul_f64((self.bytes_per_s / bytes_per_s).min(1.0));
        self.bytes_per_s = bytes_per_s;
    }

    /// Returns the rate in bytes per second.
    pub fn bytes_per_s(&self) -> f64 {
        self.bytes_per_s
    }

    /// Returns how long `bytes` take.
    pub fn time_of(&self, bytes: usize) -> Duration {
        Duration::from_nanos((bytes as f64 / self.bytes_per_s * 1e9) as u64)
    }

    fn depth(&self) -> Duration {
        DEPTH.max(self.time_of(self.least_depth_bytes))
    }

    /// Returns the time at which something may be sent again.
    pub fn ready_at(&self) -> Time {
        let depth = self.depth();
        let ahead = depth.saturating_sub(QUANTUM.min(depth.mul_f64(MOST_QUANTUM)));
        Time::from_nanos(
            self.empty_at
                .as_nanos()
                .saturating_sub(ahead.as_nanos() as u64),
        )
    }

    /// Returns the bytes that may be sent now; what is sent at once may exceed it by a datagram.
    pub fn credit(&self, now: Time) -> usize {
        if now < self.ready_at() {
            return 0;
        }
        let left = (now + self.depth()).since(self.empty_at);
        // Never nothing when it is ready, however the division comes out.
        ((left.as_secs_f64() * self.bytes_per_s) as usize).max(1)
    }

    /// Puts what is sent into the bucket.
    pub fn sent(&mut self, now: Time, bytes: usize) {
        self.empty_at = self.empty_at.max(now) + self.time_of(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_rate_counts_at_once() {
        let mut pacer = Pacer::new(Time::ZERO, 1e3);
        pacer.sent(Time::ZERO, 1_000_000);
        pacer.set_rate(Time::ZERO, 1e6);
        let soon = Time::ZERO + Duration::from_secs(1);
        assert!(pacer.ready_at() < soon);
        assert_eq!(pacer.credit(soon), LEAST_DEPTH_BYTES);
    }

    #[test]
    fn a_silence_earns_no_longer_a_burst_than_any_pause() {
        let mut pacer = Pacer::new(Time::ZERO, 1e6);
        pacer.set_depth(2_000);
        pacer.sent(Time::ZERO, 2_000);
        let later = Time::ZERO + Duration::from_secs(9);
        pacer.restart(later);
        assert_eq!(pacer.credit(later), 2_000);
        // What has not run out yet still has to.
        pacer.sent(later, 5_000);
        pacer.restart(later);
        assert!(pacer.credit(later) == 0 && pacer.ready_at() > later);
    }

    #[test]
    fn keeps_the_rate() {
        let mut pacer = Pacer::new(Time::ZERO, 1e6);
        let mut now = Time::ZERO;
        let mut sent = 0;
        while now < Time::ZERO + Duration::from_secs(1) {
            if pacer.credit(now) > 0 {
                pacer.sent(now, 1_000);
                sent += 1_000;
            } else {
                now = pacer.ready_at().max(now + Duration::from_nanos(1));
            }
        }
        let most = 1_000_000 + LEAST_DEPTH_BYTES + 2_000;
        assert!((1_000_000..=most).contains(&sent), "{sent}");
    }
}
