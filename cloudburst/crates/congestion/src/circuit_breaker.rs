//! Circuit breaker (RFC 8084): ends what goes on although too much is lost.

use core::time::Duration;

use cloudburst_wire::Time;

/// Loss is measured over this long (RFC 8084 §4: more than a few round trips),
const INTERVAL: Duration = Duration::from_secs(1);
/// over so many datagrams at least,
const LEAST_SENT: u32 = 32;
/// and has to be too much so many times in a row.
const INTERVALS: u8 = 3;

/// Measures the loss of a peer's datagrams, and trips when too much persists.
#[derive(Clone, Copy, Debug)]
pub(super) struct CircuitBreaker {
    most_loss: f64,
    since: Time,
    sent: u32,
    lost: u32,
    excessive: u8,
    is_open: bool,
}

impl CircuitBreaker {
    pub(super) const fn new(now: Time, most_loss: f64) -> Self {
        Self {
            most_loss,
            since: now,
            sent: 0,
            lost: 0,
            excessive: 0,
            is_open: false,
        }
    }

    /// Whether it has tripped: nothing more is to be sent.
    pub(super) const fn is_open(&self) -> bool {
        self.is_open
    }

    /// The share that may be lost.
    pub(super) const fn most_loss(&self) -> f64 {
        self.most_loss
    }

    /// Of so many datagrams so many were lost. Returns the share that was lost too long, if it
    /// trips with that.
    pub(super) fn take(&mut self, now: Time, sent: u32, lost: u32) -> Option<f64> {
        self.sent = self.sent.saturating_add(sent);
        self.lost = self.lost.saturating_add(lost);
        if self.is_open || self.sent < LEAST_SENT || now.since(self.since) < INTERVAL {
            return None;
        }
        let share = f64::from(self.lost) / f64::from(self.sent);
        self.excessive = if share > self.most_loss {
            self.excessive.saturating_add(1)
        } else {
            0
        };
        (self.since, self.sent, self.lost) = (now, 0, 0);
        self.is_open = self.excessive >= INTERVALS;
        self.is_open.then_some(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After how many seconds it trips, at so much loss of a hundred datagrams a second.
    fn trips(lost: u32) -> Option<u64> {
        let mut breaker = CircuitBreaker::new(Time::ZERO, 0.2);
        (1..60).find(|second| {
            let now = Time::ZERO + Duration::from_secs(*second);
            breaker.take(now, 100, lost).is_some()
        })
    }

    #[test]
    fn a_breaker_trips_when_too_much_loss_persists_and_not_before() {
        assert_eq!(trips(21), Some(3));
        assert_eq!(trips(20), None);
    }

    #[test]
    fn one_good_interval_begins_the_count_again() {
        let mut breaker = CircuitBreaker::new(Time::ZERO, 0.2);
        for second in 1..60 {
            let now = Time::ZERO + Duration::from_secs(second);
            let lost = if second % 3 == 0 { 0 } else { 90 };
            assert_eq!(breaker.take(now, 100, lost), None);
        }
        assert!(!breaker.is_open());
    }
}
