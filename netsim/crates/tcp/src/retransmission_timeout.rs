//! The retransmission timeout (RTO) by RFC 6298, in ns.

/// No timeout is longer.
const MAX_NS: u64 = 60_000_000_000;
/// The timeout of a SYN, as nothing is known of the round trip (RFC 6298 §2.1).
const SYN_NS: u64 = 1_000_000_000;

/// Round-trip times, and the timeout that follows from them.
#[derive(Clone, Copy, Debug)]
pub struct Rto {
    min_ns: u64,
    /// Before the first round trip.
    initial_ns: u64,
    smoothed_ns: u64,
    variation_ns: u64,
    backoff: u32,
}

impl Rto {
    /// Before the first round trip the timeout is the least one: the connection counts as set up,
    /// so its round-trip time is known to be far below. Where it may not be, take one as measured first.
    pub fn new(min_ns: u64) -> Self {
        Self {
            min_ns,
            initial_ns: min_ns,
            smoothed_ns: 0,
            variation_ns: 0,
            backoff: 0,
        }
    }

    /// One of a connection that begins with a handshake, which takes the first round trip.
    pub(crate) fn with_handshake(min_ns: u64) -> Self {
        Self {
            initial_ns: min_ns.max(SYN_NS),
            ..Self::new(min_ns)
        }
    }

    /// Takes a round trip that was measured. Senders put time stamps on packets, so those of segments sent
    /// again are good too (RFC 7323 §4).
    pub fn measured(&mut self, round_trip_ns: u64) {
        if self.smoothed_ns == 0 {
            self.smoothed_ns = round_trip_ns.max(1);
            self.variation_ns = round_trip_ns / 2;
        } else {
            let error = self.smoothed_ns.abs_diff(round_trip_ns);
            self.variation_ns = (3 * self.variation_ns + error) / 4;
            self.smoothed_ns = (7 * self.smoothed_ns + round_trip_ns) / 8;
        }
        self.backoff = 0;
    }

    /// Takes note that the timer went off: wait twice as long from now on.
    pub fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(16);
    }

    /// Returns whether the timer expired since the last round trip.
    pub fn is_backed_off(&self) -> bool {
        self.backoff > 0
    }

    /// Returns how long to wait for an acknowledgement.
    pub fn timeout_ns(&self) -> u64 {
        let timeout = match self.smoothed_ns {
            0 => self.initial_ns,
            smoothed_ns => (smoothed_ns + 4 * self.variation_ns).max(self.min_ns),
        };
        (timeout << self.backoff).min(MAX_NS)
    }

    /// Returns the least timeout.
    pub(crate) fn min_ns(&self) -> u64 {
        self.min_ns
    }

    /// Returns the smoothed round-trip time; 0 before the first.
    pub fn smoothed_ns(&self) -> u64 {
        self.smoothed_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshake_is_waited_for_longer_than_what_follows() {
        let mut rto = Rto::with_handshake(1_000);
        assert_eq!(rto.timeout_ns(), SYN_NS);
        rto.back_off();
        assert_eq!(rto.timeout_ns(), 2 * SYN_NS, "RFC 6298 (5.5)");
        rto.measured(10_000);
        assert_eq!(rto.timeout_ns(), 30_000);
    }

    #[test]
    fn it_follows_round_trips_and_backs_off() {
        let mut rto = Rto::new(1_000);
        assert_eq!(rto.timeout_ns(), 1_000);
        rto.measured(10_000);
        assert_eq!(rto.timeout_ns(), 30_000, "RFC 6298 (2.2)");
        rto.measured(18_000);
        assert_eq!(
            (rto.smoothed_ns, rto.variation_ns),
            (11_000, 5_750),
            "(2.3)"
        );
        rto.back_off();
        rto.back_off();
        assert_eq!(rto.timeout_ns(), 4 * 34_000);
        rto.measured(11_000);
        assert!(!rto.is_backed_off());
    }
}
