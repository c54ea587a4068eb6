//! A bound on what a host sends: QJump's rate limiter (Grosvenor et al., NSDI 2015, §4).

use std::collections::HashMap;

use crate::scenario::PaceSettings;

/// Holds packets back so that no more leave a host in an epoch than is allowed. Order stays.
#[derive(Debug)]
pub(super) struct Pacer {
    bytes: u64,
    epoch_ns: u64,
    /// By host: when the epoch began that is being filled, and what is in it.
    hosts: HashMap<u16, (u64, u64)>,
}

impl Pacer {
    pub(super) fn new(pace: PaceSettings) -> Self {
        Self {
            bytes: pace.bytes,
            epoch_ns: ((pace.every_us * 1000.0) as u64).max(1),
            hosts: HashMap::new(),
        }
    }

    /// Returns the time at which a packet may leave.
    pub(super) fn leave(&mut self, host: u16, now_ns: u64, bytes: u16) -> u64 {
        let (start_ns, used) = self.hosts.entry(host).or_insert((now_ns, 0));
        if now_ns >= *start_ns + self.epoch_ns {
            (*start_ns, *used) = (now_ns, 0);
        } else if *used + u64::from(bytes) > self.bytes {
            (*start_ns, *used) = (*start_ns + self.epoch_ns, 0);
        }
        *used += u64::from(bytes);
        now_ns.max(*start_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_has_room_for_so_many_bytes() {
        let mut pacer = Pacer::new(PaceSettings {
            bytes: 3_000,
            every_us: 10.0,
        });
        let mut leave = |host, now| pacer.leave(host, now, 1_500);
        assert_eq!([leave(1, 0), leave(1, 5), leave(1, 6)], [0, 5, 10_000]);
        assert_eq!(leave(2, 6), 6, "of another host");
        assert_eq!([leave(1, 7), leave(1, 8)], [10_000, 20_000]);
        // After a pause the epoch begins again, and no host gets two at once.
        assert_eq!(
            [leave(1, 90_000), leave(1, 90_000), leave(1, 90_000)],
            [90_000, 90_000, 100_000]
        );
    }
}
