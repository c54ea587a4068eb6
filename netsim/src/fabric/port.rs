//! A switch or host port with one FIFO queue, a buffer and ECN marking.
//!
//! When packets leave in the order in which they came, a packet's departure is known the moment it
//! arrives: the end of what is before it, plus its own time on the wire. So such a port is a single
//! number, the time at which its transmitter falls idle, and a hop takes one event: the arrival at
//! the other end. The backlog, in time and in bytes, follows from it.

/// Picoseconds in a nanosecond. Transmitters count in the former: a packet of 40 bytes takes 3.2 ns
/// at 100 Gbit/s.
pub(crate) const PS: u64 = 1000;

/// The fate of a packet at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is at the other end at this time, after a wait; the mark says congestion.
    Sent {
        /// Arrival at the other end, in ns.
        arrives_ns: u64,
        /// Time in the queue.
        waited_ns: u64,
        /// It found more bytes waiting than the threshold.
        marked: bool,
    },
    /// It did not fit.
    Dropped,
}

/// The state and the counters of a port.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct Port {
    /// With a burst, when it has made up for what it let out ahead of its rate.
    busy_until_ps: u64,
    buffer_ps: u64,
    mark_ps: u64,
    burst_ps: u64,
    ps_per_byte: u32,
    /// To the other end.
    pub(crate) propagation_ns: u32,
    /// Which of the schedulers, when it does not serve in order of arrival.
    pub(crate) scheduler: u32,
    /// Packets dropped at this port.
    pub(crate) drops: u32,
    /// Bytes sent by this port.
    pub(crate) sent_bytes: u64,
    /// Packets marked (ECN) at this port.
    pub(crate) marks: u32,
    /// The link has failed: packets are lost.
    pub(crate) failed: bool,
    is_switch: bool,
}

/// The port serves in order of arrival.
pub(crate) const FIFO: u32 = u32::MAX;

impl Port {
    pub(crate) fn new(
        bits_per_second: u64,
        propagation_ns: u32,
        settings: &crate::scenario::PortSettings,
        is_switch: bool,
    ) -> Self {
        // Rounded: exact for 1, 10, 25, 40, 100, 200 and 400 Gbit/s.
        let ps_per_byte = ((8_000_000_000_000 + bits_per_second / 2) / bits_per_second).max(1);
        let time = |bytes: u32| u64::from(bytes) * ps_per_byte;
        Self {
            busy_until_ps: 0,
            buffer_ps: time(settings.buffer_bytes),
            mark_ps: settings.ecn_bytes.map_or(u64::MAX, time),
            burst_ps: settings.burst_bytes.map_or(0, time),
            ps_per_byte: ps_per_byte as u32,
            propagation_ns,
            scheduler: FIFO,
            drops: 0,
            sent_bytes: 0,
            marks: 0,
            failed: false,
            is_switch,
        }
    }

    /// Takes a packet of `bytes` at the end of the queue. What is being sent counts as waiting.
    #[inline]
    pub(crate) fn accept(&mut self, now_ns: u64, bytes: u16, ecn_capable: bool) -> Verdict {
        let now_ps = now_ns * PS;
        // What has left ahead of the rate is not there any more.
        let debt_ps = self.busy_until_ps.saturating_sub(now_ps);
        let backlog_ps = debt_ps.saturating_sub(self.burst_ps);
        let service_ps = self.service_ps(bytes);
        if backlog_ps + service_ps > self.buffer_ps || self.failed {
            self.drops += 1;
            return Verdict::Dropped;
        }
        let marked = backlog_ps > self.mark_ps && ecn_capable;
        self.marks += u32::from(marked);
        self.sent_bytes += u64::from(bytes);
        self.busy_until_ps = now_ps + debt_ps + service_ps;
        let leaves_ps = now_ps + (debt_ps + service_ps).saturating_sub(self.burst_ps);
        Verdict::Sent {
            arrives_ns: leaves_ps.div_ceil(PS) + u64::from(self.propagation_ns),
            waited_ns: if self.is_switch { backlog_ps / PS } else { 0 },
            marked,
        }
    }

    /// Occupies the transmitter with a packet that a scheduler has chosen. Returns when it arrives
    /// at the other end.
    pub(crate) fn send(&mut self, now_ns: u64, bytes: u16) -> u64 {
        let start_ps = self.busy_until_ps.max(now_ns * PS);
        self.busy_until_ps = start_ps + self.service_ps(bytes);
        self.sent_bytes += u64::from(bytes);
        self.free_at_ns() + u64::from(self.propagation_ns)
    }

    /// The first nanosecond at which the transmitter is idle.
    pub(crate) fn free_at_ns(&self) -> u64 {
        self.busy_until_ps.div_ceil(PS)
    }

    /// The nanosecond within which the transmitter falls idle.
    #[inline]
    pub(crate) fn idle_from_ns(&self) -> u64 {
        self.busy_until_ps.saturating_sub(self.burst_ps) / PS
    }

    /// How long a packet that came now would wait behind what the transmitter has taken.
    #[inline]
    pub(crate) fn backlog_ns(&self, now_ns: u64) -> u64 {
        (self.busy_until_ps.saturating_sub(self.burst_ps)).saturating_sub(now_ns * PS) / PS
    }

    /// Time that a whole buffer takes to send.
    pub(crate) fn buffer_ns(&self) -> u64 {
        self.buffer_ps / PS
    }

    /// Time that so many bytes take to send.
    pub(crate) fn time_of_ns(&self, bytes: u64) -> u64 {
        bytes * u64::from(self.ps_per_byte) / PS
    }

    /// Its rate, as exact as it keeps it.
    pub(crate) fn bits_per_second(&self) -> u64 {
        8_000_000_000_000 / u64::from(self.ps_per_byte)
    }

    /// Returns whether the port belongs to a switch, and not to a host.
    pub(crate) fn is_switch(&self) -> bool {
        self.is_switch
    }

    fn service_ps(&self, bytes: u16) -> u64 {
        u64::from(bytes) * u64::from(self.ps_per_byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 Gbit/s, 10 us, 4 packets of 1500 B, marks above 2.
    fn port() -> Port {
        let settings = crate::scenario::PortSettings {
            buffer_bytes: 6_000,
            ecn_bytes: Some(3_000),
            ..crate::scenario::PortSettings::default()
        };
        Port::new(1_000_000_000, 10_000, &settings, true)
    }

    #[test]
    fn a_port_is_one_cache_line() {
        assert_eq!(size_of::<Port>(), 64);
    }

    #[test]
    fn packets_wait_for_those_before_them_and_are_marked_and_dropped() {
        let mut port = port();
        let sent = |arrives_ns, waited_ns, marked| Verdict::Sent {
            arrives_ns,
            waited_ns,
            marked,
        };
        assert_eq!(port.accept(0, 1500, true), sent(22_000, 0, false));
        assert_eq!(port.accept(0, 1500, true), sent(34_000, 12_000, false));
        assert_eq!(port.accept(0, 1500, true), sent(46_000, 24_000, false));
        assert_eq!(port.accept(0, 1500, true), sent(58_000, 36_000, true));
        assert_eq!(port.accept(0, 1500, true), Verdict::Dropped);
        assert_eq!(port.backlog_ns(0), 48_000);
        assert_eq!(
            port.accept(12_000, 1500, false),
            sent(70_000, 36_000, false)
        );
        assert_eq!((port.drops, port.marks, port.sent_bytes), (1, 1, 7_500));
    }

    /// A token bucket of two packets: they pass at once, and the third one waits as if they had not.
    #[test]
    fn burst_leaves_ahead_of_the_rate_and_is_made_up_for() {
        let settings = crate::scenario::PortSettings {
            buffer_bytes: 1_500,
            burst_bytes: Some(3_000),
            ..crate::scenario::PortSettings::default()
        };
        let mut port = Port::new(1_000_000_000, 10_000, &settings, true);
        let mut arrives = |now_ns| match port.accept(now_ns, 1500, false) {
            Verdict::Sent { arrives_ns, .. } => Some(arrives_ns),
            Verdict::Dropped => None,
        };
        assert_eq!(
            [0; 4].map(&mut arrives),
            [Some(10_000), Some(10_000), Some(22_000), None]
        );
        // After 24 us half of the bucket is full again, for one packet of those two.
        assert_eq!([24_000; 2].map(&mut arrives), [Some(34_000), Some(46_000)]);
        assert_eq!(port.backlog_ns(30_000), 6_000);
    }

    #[test]
    fn fractions_of_nanoseconds_add_up() {
        let settings = crate::scenario::PortSettings::default();
        let mut port = Port::new(100_000_000_000, 0, &settings, true);
        for _ in 0..1000 {
            port.accept(0, 40, false);
        }
        assert_eq!(port.free_at_ns(), 3_200);
    }
}
