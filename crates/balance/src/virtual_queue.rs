//! Virtual queues: leaky buckets that tell when what was sent into a tunnel has left it.

/// The service time of a byte, the inverse of a rate: nanoseconds in 16.16 fixed point. Zero means
/// that the rate is not known.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceTime(u64);

impl ServiceTime {
    /// The rate is not known: nothing can be said of the drain.
    pub const UNKNOWN: Self = Self(0);

    /// The service time of a tunnel that carries `bits_per_second`.
    ///
    /// Rates from 1 kbit/s to 100 Tbit/s keep at least three digits.
    pub const fn from_bits_per_second(bits_per_second: u64) -> Self {
        match (8_000_000_000u64 << 16).checked_div(bits_per_second) {
            Some(time) => Self(time),
            None => Self::UNKNOWN,
        }
    }

    /// A little longer than that, by a 32nd: to be late is the safe side.
    #[inline(always)]
    pub const fn cautious(self) -> Self {
        Self(self.0 + self.0 / 32)
    }

    /// A number that is in proportion to the rate, to within a percent for
    /// rates from 1 Mbit/s to 1 Tbit/s; 0 when that is not known.
    #[inline(always)]
    pub const fn speed(self) -> u32 {
        match (1u64 << 40).checked_div(self.0) {
            Some(speed) if speed < u32::MAX as u64 => speed as u32,
            Some(_) => u32::MAX,
            None => 0,
        }
    }

    /// Tells if the rate is known.
    #[inline(always)]
    pub const fn is_known(self) -> bool {
        self.0 != 0
    }

    /// How long `bytes` take, in nanoseconds.
    #[inline(always)]
    pub const fn of(self, bytes: u64) -> u64 {
        bytes.wrapping_mul(self.0) >> 16
    }
}

/// The virtual queue in front of a tunnel; 8 bytes, shared by all CPUs.
///
/// Two CPUs may overwrite each other's update: the model then misses a packet,
/// which the next ones mend. It steers; it does not account.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VirtualQueue {
    /// When the last byte sent so far will have left.
    free_at_ns: u64,
}

impl VirtualQueue {
    /// Packets up to this size are put in without reading the precise clock:
    /// a wrong idle time in front of them costs at most their own length.
    const UNTIMED_BYTES: u64 = 128;

    /// Tells if a packet of this size needs the precise clock.
    #[inline(always)]
    pub const fn needs_precise_time(bytes: u64) -> bool {
        bytes > Self::UNTIMED_BYTES
    }

    /// Sends `bytes` at `now_ns`; returns when they will have left.
    #[inline(always)]
    pub fn send(&mut self, bytes: u64, now_ns: u64, service: ServiceTime) -> u64 {
        self.free_at_ns = self.next_start_ns(now_ns) + service.of(bytes);
        self.free_at_ns
    }

    /// Sends `bytes` into a queue that holds at most `limit_ns` of traffic and
    /// drops what is beyond, as a FIFO does; returns when the last will have left.
    #[inline(always)]
    pub fn send_within(
        &mut self,
        bytes: u64,
        now_ns: u64,
        service: ServiceTime,
        limit_ns: u64,
    ) -> u64 {
        let free_at_ns = self.send(bytes, now_ns, service);
        if free_at_ns > now_ns + limit_ns {
            self.free_at_ns = now_ns + limit_ns;
        }
        self.free_at_ns
    }

    /// The time at which a packet that is sent at `now_ns` would begin to leave.
    #[inline(always)]
    pub const fn next_start_ns(&self, now_ns: u64) -> u64 {
        if self.free_at_ns > now_ns {
            self.free_at_ns
        } else {
            now_ns
        }
    }

    /// Tells if the model has run ahead of a queue in which `bytes` still wait at `now_ns`: what
    /// serves it has stood still, as a shaper does whose timer is late.
    #[inline(always)]
    pub const fn is_ahead_of(&self, bytes: u64, now_ns: u64, service: ServiceTime) -> bool {
        bytes > 0 && now_ns + service.of(bytes) > self.free_at_ns
    }

    /// How long what was sent so far takes to leave, from `now_ns` on.
    #[inline(always)]
    pub const fn backlog_ns(&self, now_ns: u64) -> u64 {
        self.next_start_ns(now_ns) - now_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_full_frame_takes_as_long_as_the_rate_says() {
        let service = ServiceTime::from_bits_per_second(100_000_000);
        assert_eq!(service.of(1514), 121_120);
        assert!(!ServiceTime::from_bits_per_second(0).is_known());
    }

    #[test]
    fn model_is_ahead_of_a_queue_that_stood_still() {
        let service = ServiceTime::from_bits_per_second(100_000_000);
        let (mut queue, now_ns, frame) = (VirtualQueue::default(), 1_000_000, 1_514);
        let drained_ns = queue.send(2 * frame, now_ns, service);
        assert!(!queue.is_ahead_of(2 * frame, now_ns, service));
        assert!(queue.is_ahead_of(2 * frame, now_ns + 1, service));
        // One of both has left as modelled.
        assert!(!queue.is_ahead_of(frame, now_ns + service.of(frame), service));
        assert!(queue.is_ahead_of(frame, drained_ns, service));
        assert!(!queue.is_ahead_of(0, drained_ns, service));
    }

    proptest! {
        #[test]
        fn a_full_queue_holds_its_limit(sizes in proptest::collection::vec(60u64..1514, 1..200)) {
            let service = ServiceTime::from_bits_per_second(100_000_000);
            let (mut queue, limit_ns, now) = (VirtualQueue::default(), 1_000_000, 5_000);
            for size in sizes {
                queue.send_within(size, now, service, limit_ns);
                prop_assert!(queue.next_start_ns(now) <= now + limit_ns);
            }
        }

        /// Checked against a queue that is simulated byte by byte in exact arithmetic.
        #[test]
        fn the_model_is_a_fifo(gaps_and_sizes in proptest::collection::vec((0u64..400_000, 60u64..1514), 1..50)) {
            let service = ServiceTime::from_bits_per_second(100_000_000);
            let mut queue = VirtualQueue::default();
            let (mut now, mut free) = (1_000, 0u64);
            for (gap, size) in gaps_and_sizes {
                now += gap;
                free = free.max(now) + size * 80;
                prop_assert_eq!(queue.send(size, now, service), free);
            }
        }
    }
}
