//! Controlled delay (CoDel, RFC 8289): which packets of a queue that has stood for too long are marked, or dropped.

/// How long a packet may wait, and for how long all may have to wait longer (RFC 8289 §4.2, §4.3).
pub(crate) const TARGET: u64 = 5_000_000;
const INTERVAL: u64 = 100_000_000;
/// A queue that holds no more than this does not stand (RFC 8289 §5.5).
const LEAST_BYTES: usize = 1_514;

/// Decides for each packet that leaves a queue (RFC 8289 §5).
#[derive(Debug, Default)]
pub(crate) struct Codel {
    /// When packets will have waited for too long for an interval, if all do.
    above_at: Option<u64>,
    is_dropping: bool,
    next_at: u64,
    count: u32,
    last_count: u32,
}

impl Codel {
    /// Says whether a packet is marked that has waited for so long, or dropped, as it leaves a queue of so many bytes.
    pub(crate) fn is_hit(&mut self, now: u64, waited: u64, queued_bytes: usize) -> bool {
        let stands = self.stands(now, waited, queued_bytes);
        if self.is_dropping {
            self.is_dropping = stands;
            if !stands || now < self.next_at {
                return false;
            }
            self.count += 1;
            self.next_at = next(self.next_at, self.count);
            return true;
        }
        if !stands {
            return false;
        }
        self.is_dropping = true;
        // Where it stood not long ago it begins near the rate that ended that.
        let delta = self.count - self.last_count;
        let is_soon = now.saturating_sub(self.next_at) < 16 * INTERVAL;
        self.count = if delta > 1 && is_soon { delta } else { 1 };
        self.next_at = next(now, self.count);
        self.last_count = self.count;
        true
    }

    fn stands(&mut self, now: u64, waited: u64, queued_bytes: usize) -> bool {
        if waited < TARGET || queued_bytes <= LEAST_BYTES {
            self.above_at = None;
            return false;
        }
        match self.above_at {
            Some(at) => now >= at,
            None => {
                self.above_at = Some(now + INTERVAL);
                false
            }
        }
    }
}

/// The control law: ever more often, by the square root of how often it was needed.
fn next(at: u64, count: u32) -> u64 {
    at + (INTERVAL as f64 / f64::from(count).sqrt()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets of a queue, one each ms, that are hit when they have all waited for so long.
    fn hits(waited: u64) -> Vec<u64> {
        let mut codel = Codel::default();
        let times = (0..1_000).map(|ms| ms * 1_000_000);
        times
            .filter(|&now| codel.is_hit(now, waited, 100_000))
            .map(|now| now / 1_000_000)
            .collect()
    }

    #[test]
    fn queue_that_stands_for_an_interval_is_hit_ever_more_often() {
        assert!(hits(TARGET - 1).is_empty());
        let hits = hits(TARGET);
        assert_eq!(hits[..4], [100, 200, 271, 329]);
        assert!(hits.len() > 10, "{hits:?}");
    }

    #[test]
    fn queue_that_is_short_for_a_packet_begins_again() {
        let mut codel = Codel::default();
        for ms in 0..1_000 {
            let waited = if ms % 90 == 0 { 0 } else { 2 * TARGET };
            assert!(!codel.is_hit(ms * 1_000_000, waited, 100_000), "{ms}");
        }
    }
}
