//! What is learnt of a way to a peer: time, loss and rate.

use core::time::Duration;

use super::time::Time;

/// Shortest variation that is reckoned with: hosts' timers and interrupts are
/// not more regular.
const GRANULARITY: Duration = Duration::from_micros(100);
/// Round trip before any was measured: a message to a new peer is helped along
/// after some milliseconds, whether it is far away or not.
const INITIAL_ROUND_TRIP: Duration = Duration::from_millis(5);

/// Smoothed round trip and its variation (RFC 6298 §2).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrip {
    smoothed: Option<Duration>,
    variation: Duration,
}

impl RoundTrip {
    pub(super) fn sample(&mut self, sample: Duration) {
        match &mut self.smoothed {
            None => {
                self.smoothed = Some(sample);
                self.variation = sample / 2;
            }
            Some(smoothed) => {
                self.variation = (self.variation * 3 + smoothed.abs_diff(sample)) / 4;
                *smoothed = (*smoothed * 7 + sample) / 8;
            }
        }
    }

    pub(super) fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// Until when an answer may be expected that has not been lost.
    pub(super) fn patience(&self) -> Duration {
        match self.smoothed {
            None => INITIAL_ROUND_TRIP,
            Some(smoothed) => smoothed + (self.variation * 4).max(GRANULARITY),
        }
    }
}

/// The share of datagrams that is lost of late.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Loss {
    share: f64,
    seen: u32,
}

impl Loss {
    /// Datagrams that a sample has to be of to count as much as all before it.
    const MEMORY: u32 = 256;

    /// Of `sent` datagrams, `lost` did not arrive.
    pub(super) fn sample(&mut self, sent: u32, lost: u32) {
        if sent == 0 {
            return;
        }
        // Until the memory is full, this is the plain mean of all that was seen.
        self.seen = (self.seen + sent).min(Self::MEMORY);
        let weight = (f64::from(sent) / f64::from(self.seen)).min(1.0);
        let sample = f64::from(lost.min(sent)) / f64::from(sent);
        self.share += (sample - self.share) * weight;
    }

    pub(super) fn share(&self) -> f64 {
        self.share
    }
}

/// What a peer got of what it was sent, of late.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delivery {
    since: Time,
    sent: u32,
    received: u32,
}

impl Delivery {
    /// Fewer datagrams say nothing of a rate.
    const LEAST: u32 = 16;

    pub(super) const fn new(now: Time) -> Self {
        Self {
            since: now,
            sent: 0,
            received: 0,
        }
    }

    pub(super) fn add(&mut self, sent: u32, received: u32) {
        self.sent = self.sent.saturating_add(sent);
        self.received = self.received.saturating_add(received);
    }

    /// Whether a queue overflows: more than half of what was sent did not get
    /// through, and that is hardly ever chance. To be asked now and then;
    /// `pause` is a round trip or longer.
    pub(super) fn judge(&mut self, now: Time, pause: Duration) -> Option<Overload> {
        let elapsed = now.since(self.since);
        if elapsed < pause || self.sent < Self::LEAST {
            return None;
        }
        let Self { sent, received, .. } = core::mem::replace(self, Self::new(now));
        let is_overload = u64::from(received) * 2 < u64::from(sent);
        if !is_overload {
            return Some(Overload::No);
        }
        // After a long silence nobody knows when they were sent.
        let is_known = elapsed < 8 * pause && received > 0;
        is_known.then(|| Overload::Yes(f64::from(received) / elapsed.as_secs_f64()))
    }
}

/// Whether more is sent than gets through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Overload {
    No,
    /// Yes; so many datagrams per second got through.
    Yes(f64),
}

/// Symbols to send beyond the `n` of a message, so that with a probability of
/// 99 % enough arrive, if each is lost with probability `loss`.
pub(super) fn redundancy(n: u32, loss: f64) -> u32 {
    let mut repairs = 0;
    // Each repair symbol can be lost too; some rounds are enough.
    for _ in 0..8 {
        let lost = lost_of(n + repairs, loss.min(0.5));
        // Rows over GF(2) that have to tell several lost symbols apart are not
        // always independent.
        let needed = if lost < 2 { lost } else { lost + 2 };
        if needed <= repairs {
            break;
        }
        repairs = needed;
    }
    repairs.min(2 * n)
}

/// So many of `count`, or fewer, are lost with a probability of 99 %.
fn lost_of(count: u32, loss: f64) -> u32 {
    const SURE: f64 = 0.99;
    let mean = f64::from(count) * loss;
    if mean < 1e-3 {
        return 0;
    }
    if mean > 30.0 {
        return (mean + 2.33 * (mean * (1.0 - loss)).sqrt() + 0.5) as u32;
    }
    // The binomial distribution, term by term.
    let mut term = (0..count).fold(1.0, |product, _| product * (1.0 - loss));
    let mut sum = term;
    let mut lost = 0;
    while sum < SURE && lost < count {
        term *= f64::from(count - lost) / f64::from(lost + 1) * loss / (1.0 - loss);
        sum += term;
        lost += 1;
    }
    lost
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_settles() {
        let mut round_trip = RoundTrip::default();
        assert_eq!(round_trip.patience(), INITIAL_ROUND_TRIP);
        for _ in 0..100 {
            round_trip.sample(Duration::from_millis(10));
        }
        let patience = round_trip.patience();
        assert!(patience >= Duration::from_millis(10), "{patience:?}");
        assert!(patience < Duration::from_millis(11), "{patience:?}");
    }

    #[test]
    fn loss_follows_what_is_seen() {
        let mut loss = Loss::default();
        loss.sample(10, 1);
        assert!((loss.share() - 0.1).abs() < 1e-9);
        loss.sample(10, 0);
        assert!((loss.share() - 0.05).abs() < 1e-9);
        for _ in 0..1_000 {
            loss.sample(10, 3);
        }
        assert!((loss.share() - 0.3).abs() < 1e-3);
    }

    #[test]
    fn redundancy_is_for_what_is_lost() {
        assert_eq!(redundancy(64, 0.0), 0);
        assert_eq!(redundancy(4, 0.01), 1);
        assert!((3..=6).contains(&redundancy(64, 0.01)));
        assert!((8..=13).contains(&redundancy(64, 0.05)));
        assert!((35..=60).contains(&redundancy(64, 0.3)));
        assert!(redundancy(20_000, 0.3) > 20_000 * 3 / 10);
        assert_eq!(redundancy(4, 1.0), 8);
    }
}
