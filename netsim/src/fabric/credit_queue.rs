//! A port's queue for credits, which leave no faster than a part of the link (ExpressPass).
//!
//! Each credit that passes here is answered by one frame of data, which comes back over the same link. So a limit of
//! credits is a limit of data that has not been sent yet: of a rate at which data fill the link and build no queue.

use super::{port::PS, scheduler::Queue};
use crate::{engine::packet::Slab, scenario::CreditQueueSettings};

/// Credits that wait, and when the next may leave.
#[derive(Debug)]
pub(crate) struct CreditQueue {
    pub(super) queue: Queue,
    /// Time of a byte at the rate of credits.
    ps_per_byte: u64,
    burst_bytes: u64,
    /// When a bucket that holds a burst will be full again: the theoretical arrival time of a virtual scheduling
    /// algorithm (ITU-T I.371), which is a token bucket in one number.
    full_at_ps: u64,
    /// The event that a credit may leave, and whether it is pending.
    pub(super) event: u32,
    pub(super) pending: bool,
}

impl CreditQueue {
    /// Of a port at that rate; `event` is an entry of its own.
    pub(super) fn new(settings: &CreditQueueSettings, bits_per_second: u64, event: u32) -> Self {
        let bits = match settings.mbps {
            Some(mbps) => mbps * 1e6,
            None => settings.share * bits_per_second as f64,
        };
        Self {
            queue: Queue::new(u64::from(settings.buffer_bytes), u64::MAX, 0),
            // Rounded up: a credit too many would build a queue.
            ps_per_byte: (8e12 / bits).ceil() as u64,
            burst_bytes: u64::from(settings.burst_bytes),
            full_at_ps: 0,
            event,
            pending: false,
        }
    }

    /// Puts a credit at the end. Returns it if it does not fit.
    pub(super) fn enqueue(&mut self, slab: &mut Slab, id: u32) -> Option<u32> {
        let bytes = u64::from(slab[id].bytes);
        if self.queue.bytes + bytes > self.queue.buffer_bytes {
            return Some(id);
        }
        self.queue.push(slab, id);
        None
    }

    /// The credit that may leave now.
    pub(super) fn dequeue(&mut self, slab: &mut Slab, now_ns: u64) -> Option<u32> {
        if self.eligible_ns(slab)? > now_ns {
            return None;
        }
        let id = self.queue.pop(slab);
        let service_ps = u64::from(slab[id].bytes) * self.ps_per_byte;
        self.full_at_ps = self.full_at_ps.max(now_ns * PS) + service_ps;
        Some(id)
    }

    /// When the first credit may leave; nothing without any.
    pub(super) fn eligible_ns(&self, slab: &Slab) -> Option<u64> {
        if self.queue.bytes == 0 {
            return None;
        }
        let bytes = u64::from(slab[self.queue.first].bytes);
        let ahead_ps = self.burst_bytes.saturating_sub(bytes) * self.ps_per_byte;
        Some(self.full_at_ps.saturating_sub(ahead_ps).div_ceil(PS))
    }

    /// Bytes of credits that leave in a second at most.
    pub(super) fn bytes_per_second(&self) -> f64 {
        1e12 / self.ps_per_byte as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::packet::{EntryKind, NONE, Packet};

    fn credit(slab: &mut Slab) -> u32 {
        let mut packet = Packet::new(EntryKind::Credit);
        packet.bytes = 84;
        slab.insert(packet)
    }

    /// 1 Gbit/s of a link of 10, a credit each 672 ns.
    fn queue(burst_bytes: u32) -> CreditQueue {
        let settings = CreditQueueSettings {
            share: 0.1,
            buffer_bytes: 4 * 84,
            burst_bytes,
            ..CreditQueueSettings::default()
        };
        CreditQueue::new(&settings, 10_000_000_000, NONE)
    }

    fn leave(queue: &mut CreditQueue, slab: &mut Slab) -> Vec<u64> {
        let mut times = Vec::new();
        while let Some(at_ns) = queue.eligible_ns(slab) {
            let now_ns = at_ns.max(10_000);
            assert!(at_ns <= 10_000 || queue.dequeue(slab, now_ns - 1).is_none());
            assert!(queue.dequeue(slab, now_ns).is_some());
            times.push(now_ns);
        }
        times
    }

    #[test]
    fn credits_leave_at_their_rate_and_those_too_many_are_dropped() {
        for (burst, times) in [
            (84, [10_000, 10_672, 11_344, 12_016]),
            (168, [10_000, 10_000, 10_672, 11_344]),
            (0, [10_000, 10_672, 11_344, 12_016]),
        ] {
            let (mut queue, mut slab) = (queue(burst), Slab::new());
            for _ in 0..4 {
                let id = credit(&mut slab);
                assert_eq!(queue.enqueue(&mut slab, id), None);
            }
            let id = credit(&mut slab);
            assert_eq!(queue.enqueue(&mut slab, id), Some(id));
            assert_eq!(leave(&mut queue, &mut slab), times, "a burst of {burst}");
            assert_eq!(queue.eligible_ns(&slab), None);
        }
    }

    #[test]
    fn rate_is_a_share_of_the_link_or_stated() {
        let rate = |settings: CreditQueueSettings, gbps: u64| {
            CreditQueue::new(&settings, gbps * 1_000_000_000, NONE).bytes_per_second() * 8.0 / 1e6
        };
        let share = CreditQueueSettings::default();
        let stated = CreditQueueSettings {
            mbps: Some(500.0),
            ..share
        };
        for (gbps, mbps) in [(10, 517.9), (40, 2_071.5)] {
            let ours = rate(share, gbps);
            assert!(ours <= mbps && ours > 0.999 * mbps, "{ours} of {gbps}");
            assert_eq!(rate(stated, gbps), 500.0);
        }
    }
}
