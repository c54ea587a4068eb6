//! Keepalive: pings while nothing is sent, so that address translators and firewalls remember a path.
//!
//! Who waits for a reply says nothing meanwhile: if its translator forgets it, or chooses another port,
//! the reply has nowhere to go. So it pings a little while it waits, ever more seldom. Beyond that it is
//! the application that knows whether a path is worth traffic when nothing is to be sent (RFC 8085 §3.5).

use core::time::Duration;

use cloudburst_wire::Time;

/// Shortest interval of a keepalive: "no more frequently than once every 15 seconds" (RFC 8085 §3.5).
pub const MIN_KEEPALIVE: Duration = Duration::from_secs(15);
/// Longest interval of a keepalive: beyond that a peer that came by itself is forgotten between two.
pub const MAX_KEEPALIVE: Duration = Duration::from_secs(100);

/// While a reply is awaited, the first ping follows after this; the pause doubles up to
/// [`MIN_KEEPALIVE`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// After this long nobody waits for a reply any more.
const AWAITED_FOR: Duration = Duration::from_secs(60);
/// Who was not heard of for so many intervals is not pinged any more.
const SILENT_INTERVALS: u32 = 8;

/// Keepalive of a peer that nothing is sent to: when it is pinged (RFC 8085 §3.5).
#[derive(Clone, Copy, Debug)]
pub struct Keepalive {
    /// Requests whose reply has not come, and when the last one was made.
    awaited: u32,
    requested_at: Time,
    /// Pings since then.
    pings: u8,
    pinged_at: Time,
}

impl Keepalive {
    /// Makes the keepalive of a peer of whom nothing is awaited.
    pub const fn new(now: Time) -> Self {
        Self {
            awaited: 0,
            requested_at: now,
            pings: 0,
            pinged_at: now,
        }
    }

    /// Notes that the peer was asked something, and that its reply is awaited.
    pub fn requested(&mut self, now: Time) {
        self.awaited = self.awaited.saturating_add(1);
        self.requested_at = now;
        self.pings = 0;
    }

    /// Notes that a reply has come, or is not awaited any more.
    pub fn replied(&mut self) {
        self.awaited = self.awaited.saturating_sub(1);
    }

    /// Notes that the peer was pinged.
    pub fn pinged(&mut self, now: Time) {
        self.pinged_at = now;
        self.pings = self.pings.saturating_add(1);
    }

    /// Returns when it is pinged next, who was last sent something and last heard of then.
    pub fn next_due(
        &self,
        sent_at: Time,
        heard_at: Time,
        interval: Option<Duration>,
    ) -> Option<Time> {
        let since = sent_at.max(self.pinged_at);
        let doublings = self.pings.min(4);
        let pause = FIRST_PAUSE
            .saturating_mul(1 << doublings)
            .min(MIN_KEEPALIVE);
        let until = self.requested_at + AWAITED_FOR;
        let awaited = (self.awaited > 0).then(|| since + pause);
        let kept = interval.map(|interval| {
            let until = heard_at + interval.saturating_mul(SILENT_INTERVALS);
            (since + interval, until)
        });
        let kept = kept.filter(|(due, until)| due <= until);
        let awaited = awaited.filter(|due| *due <= until);
        awaited.into_iter().chain(kept.map(|(due, _)| due)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    /// Seconds of the pings of ten minutes.
    fn pings(keepalive: &mut Keepalive, heard: bool, interval: Option<Duration>) -> Vec<u64> {
        let mut all = Vec::new();
        let mut heard_at = at(0);
        while let Some(due) = keepalive.next_due(at(0), heard_at, interval)
            && due <= at(600)
        {
            all.push(due.since(at(0)).as_secs());
            keepalive.pinged(due);
            heard_at = if heard { due } else { heard_at };
        }
        all
    }

    #[test]
    fn a_reply_that_is_awaited_is_worth_few_pings_ever_more_seldom() {
        let mut keepalive = Keepalive::new(at(0));
        assert_eq!(pings(&mut keepalive, true, None), [0; 0]);
        keepalive.requested(at(0));
        assert_eq!(pings(&mut keepalive, true, None), [1, 3, 7, 15, 30, 45, 60]);
        let mut keepalive = Keepalive::new(at(0));
        keepalive.requested(at(0));
        keepalive.replied();
        assert_eq!(pings(&mut keepalive, true, None), [0; 0], "it has come");
    }

    #[test]
    fn an_interval_is_kept_as_long_as_somebody_answers() {
        let interval = Some(Duration::from_secs(60));
        let mut keepalive = Keepalive::new(at(0));
        let all = pings(&mut keepalive, true, interval);
        assert_eq!(all, (1..=10).map(|it| 60 * it).collect::<Vec<_>>());
        let mut keepalive = Keepalive::new(at(0));
        let silent = pings(&mut keepalive, false, interval);
        assert_eq!(silent.len(), SILENT_INTERVALS as usize);
    }
}
