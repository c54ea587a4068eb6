//! Keeps what is sent to a rate.

use core::time::Duration;

use cloudburst_proto::Time;

/// A leaky bucket: what has been sent takes its time to run out, and no more
/// than a little may be in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pacer {
    bytes_per_s: f64,
    /// When all that was sent has run out.
    empty_at: Time,
}

/// What may be in the bucket, as time at the rate. Timers of hosts come late by
/// so much, and must not cost rate.
const DEPTH: Duration = Duration::from_micros(250);
/// And at least so many bytes: a train of datagrams for one call of the kernel.
const LEAST_DEPTH_BYTES: f64 = 48_000.0;

/// What has to run out before more is sent, as time at the rate: a host that is
/// woken for each datagram does little else, and short queues overflow by more.
const QUANTUM: Duration = Duration::from_micros(1_500);
/// And no more than this share of the depth: the rest keeps the link busy meanwhile.
const MOST_QUANTUM: f64 = 0.75;

impl Pacer {
    pub(crate) fn new(now: Time, bytes_per_s: f64) -> Self {
        Self {
            bytes_per_s,
            empty_at: now,
        }
    }

    /// How long `bytes` take.
    pub(crate) fn time_of(&self, bytes: usize) -> Duration {
        Duration::from_nanos((bytes as f64 / self.bytes_per_s * 1e9) as u64)
    }

    fn depth(&self) -> Duration {
        DEPTH.max(self.time_of(LEAST_DEPTH_BYTES as usize))
    }

    /// The time at which something may be sent again.
    pub(crate) fn ready_at(&self) -> Time {
        let depth = self.depth();
        let ahead = depth - QUANTUM.min(depth.mul_f64(MOST_QUANTUM));
        Time::from_nanos(
            self.empty_at
                .as_nanos()
                .saturating_sub(ahead.as_nanos() as u64),
        )
    }

    /// Bytes that may be sent now; what is sent at once may exceed it by a datagram.
    pub(crate) fn room(&self, now: Time) -> usize {
        if now < self.ready_at() {
            return 0;
        }
        let left = (now + self.depth()).since(self.empty_at);
        // Never nothing when it is ready, however the division comes out.
        ((left.as_secs_f64() * self.bytes_per_s) as usize).max(1)
    }

    pub(crate) fn sent(&mut self, now: Time, bytes: usize) {
        self.empty_at = self.empty_at.max(now) + self.time_of(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_rate() {
        let mut pacer = Pacer::new(Time::ZERO, 1e6);
        let mut now = Time::ZERO;
        let mut sent = 0;
        while now < Time::ZERO + Duration::from_secs(1) {
            if pacer.room(now) > 0 {
                pacer.sent(now, 1_000);
                sent += 1_000;
            } else {
                now = pacer.ready_at().max(now + Duration::from_nanos(1));
            }
        }
        let most = 1_000_000 + LEAST_DEPTH_BYTES as usize + 2_000;
        assert!((1_000_000..=most).contains(&sent), "{sent}");
    }
}
