//! Estimators of a path's round-trip time (RFC 6298), loss and delivery rate.

use core::time::Duration;

use cloudburst_wire::Time;

/// Round trip to a peer of which nothing is known, unless it is said: a first message is helped
/// along after some milliseconds, whether its receiver is far away or not.
pub const DEFAULT_INITIAL_ROUND_TRIP: Duration = Duration::from_millis(5);

/// Shortest variation that is reckoned with: hosts' timers and interrupts are
/// not more regular.
const GRANULARITY: Duration = Duration::from_micros(100);

/// Longest time that an answer is waited for. A sample is as long as somebody on the way holds a
/// datagram back, and messages live for 10 s by default; RFC 6298 §2.5 allows a bound of 60 s or more to
/// who goes on for ever. Where answers really take longer, more is sent than is needed.
pub const MAX_ACK_TIMEOUT: Duration = Duration::from_secs(2);

/// Estimates the round-trip time: smoothed, with its variation (RFC 6298 §2).
#[derive(Clone, Copy, Debug)]
pub struct RoundTripEstimator {
    /// What is assumed, until one was measured.
    smoothed: Duration,
    variation: Duration,
    /// The shortest of these samples, and of the ones before.
    least: [Option<Duration>; 2],
    /// 0 before the first, and never again.
    samples: u16,
}

/// Samples of which the shortest is remembered.
const LEAST_OF: u16 = 256;

impl Default for RoundTripEstimator {
    fn default() -> Self {
        Self::assuming(DEFAULT_INITIAL_ROUND_TRIP)
    }
}

impl RoundTripEstimator {
    /// Assumes a round trip until one was measured.
    pub fn assuming(assumed: Duration) -> Self {
        Self {
            smoothed: assumed,
            variation: Duration::ZERO,
            least: [None; 2],
            samples: 0,
        }
    }

    /// Takes a sample of the round-trip time.
    pub fn sample(&mut self, sample: Duration) {
        let is_first = self.samples == 0;
        self.samples = self.samples.saturating_add(1);
        if self.samples > LEAST_OF {
            self.samples = 1;
            self.least = [None, self.least[0]];
        }
        self.least[0] = Some(self.least[0].map_or(sample, |least| least.min(sample)));
        if is_first {
            self.smoothed = sample;
            self.variation = weighted(Duration::ZERO, 1, sample);
        } else {
            let off = self.smoothed.abs_diff(sample);
            self.variation = weighted(self.variation, 3, off);
            self.smoothed = weighted(self.smoothed, 7, sample);
        }
    }

    /// Returns the smoothed round-trip time, if any was measured.
    pub fn smoothed(&self) -> Option<Duration> {
        (self.samples > 0).then_some(self.smoothed)
    }

    /// Returns how long it takes at least, of late.
    pub fn least(&self) -> Duration {
        let least = self.least.iter().flatten().min();
        least.map_or(self.smoothed, |least| least.saturating_add(GRANULARITY))
    }

    /// Returns the time until an answer may be expected that has not been lost.
    pub fn ack_timeout(&self) -> Duration {
        if self.samples == 0 {
            return self.smoothed;
        }
        let margin = self.variation.saturating_mul(4).max(GRANULARITY);
        self.smoothed.saturating_add(margin).min(MAX_ACK_TIMEOUT)
    }
}

/// The mean of a sample and of what was before it, which counts `weight` times as much.
fn weighted(before: Duration, weight: u32, sample: Duration) -> Duration {
    let sum = before.saturating_mul(weight).saturating_add(sample);
    sum.checked_div(weight.saturating_add(1)).unwrap_or(sum)
}

/// How long the least delay is remembered, at least: paths change.
const LEAST_AGE: Duration = Duration::from_secs(30);

/// Least delay of late: that of a path whose queues are empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeastDelay<T> {
    /// The least of this age, and of the one before.
    least: [Option<T>; 2],
    since: Time,
}

impl<T: Copy + Ord> LeastDelay<T> {
    /// Takes a sample, and returns the least of late.
    pub fn sample(&mut self, now: Time, sample: T) -> T {
        if now.since(self.since) > LEAST_AGE {
            self.least = [None, self.least[0]];
            self.since = now;
        }
        let least = self.least[0].map_or(sample, |least| least.min(sample));
        self.least[0] = Some(least);
        self.least[1].map_or(least, |before| before.min(least))
    }
}

/// Estimates the share of datagrams that is lost of late, and how unevenly.
#[derive(Clone, Copy, Debug)]
pub struct LossEstimator {
    share: f64,
    seen: u32,
    /// The same over a longer time: queues overflow now and then.
    long_share: f64,
    long_seen: u32,
    /// Variance of how many are lost, compared with what it is if each is lost whatever
    /// becomes of the others. More than 1 where queues overflow.
    dispersion: f64,
}

impl Default for LossEstimator {
    fn default() -> Self {
        Self {
            share: 0.0,
            seen: 0,
            long_share: 0.0,
            long_seen: 0,
            dispersion: 1.0,
        }
    }
}

impl LossEstimator {
    /// Datagrams that a sample has to be of to count as much as all before it: of late, and
    /// over a longer time.
    const MEMORY: u32 = 256;
    const LONG_MEMORY: u32 = 8_192;
    /// More than this is not believed.
    const MOST_DISPERSION: f64 = 16.0;

    /// Counts `sent` datagrams of which `lost` did not arrive.
    pub fn sample(&mut self, sent: u32, lost: u32) {
        if sent == 0 {
            return;
        }
        // Until the memory is full, this is the plain mean of all that was seen.
        self.seen = self.seen.saturating_add(sent).min(Self::MEMORY);
        self.long_seen = self.long_seen.saturating_add(sent).min(Self::LONG_MEMORY);
        let weight = (f64::from(sent) / f64::from(self.seen)).min(1.0);
        let long_weight = (f64::from(sent) / f64::from(self.long_seen)).min(1.0);
        let sample = f64::from(lost.min(sent)) / f64::from(sent);
        let off = f64::from(sent) * (sample - self.long_share);
        self.share += (sample - self.share) * weight;
        self.long_share += (sample - self.long_share) * long_weight;
        let expected = f64::from(sent) * self.long_share * (1.0 - self.long_share);
        if expected > 0.0 {
            let dispersion = off * off / expected;
            self.dispersion += (dispersion - self.dispersion) * long_weight;
        }
    }

    /// Returns the share that is lost.
    pub fn share(&self) -> f64 {
        self.share
    }

    /// Returns the symbols to send beyond the `n` of a message so that with a probability of 99 % enough
    /// arrive, if each is lost whatever becomes of the others.
    pub fn redundancy(&self, n: u32) -> u32 {
        let most = if self.is_overflow() {
            MOST_OVERFLOW
        } else {
            MOST_LOSS
        };
        repairs(n, n, |sent| lost_of(sent, self.share.min(most)))
    }

    /// Returns the same for `n` symbols that are missing still, of which there are few.
    pub fn repeated_redundancy(&self, n: u32) -> u32 {
        repairs(n, n.saturating_mul(2), |sent| {
            lost_of(sent, self.share.min(MOST_REPEATED_LOSS))
        })
    }

    /// Returns true if losses come so close together that it is queues that overflow.
    pub fn is_overflow(&self) -> bool {
        self.dispersion > OVERFLOW_DISPERSION
    }

    /// Returns the same as [`Self::redundancy`], if they are lost as unevenly as of late.
    pub fn reserve(&self, n: u32) -> u32 {
        if self.share > OVERLOAD {
            return 0;
        }
        let share = self.long_share.max(self.share);
        let dispersion = self.dispersion.clamp(1.0, Self::MOST_DISPERSION);
        repairs(n, n, |sent| uneven_lost_of(sent, share, dispersion))
    }
}

/// Estimates how much a peer got of what it was sent, of late.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeliveryRate {
    since: Time,
    sent: u32,
    received: u32,
}

impl DeliveryRate {
    /// Fewer datagrams say nothing of a rate.
    const LEAST: u32 = 16;

    pub(crate) const fn new(now: Time) -> Self {
        Self {
            since: now,
            sent: 0,
            received: 0,
        }
    }

    pub(crate) fn add(&mut self, sent: u32, received: u32) {
        self.sent = self.sent.saturating_add(sent);
        self.received = self.received.saturating_add(received);
    }

    /// Whether a queue overflows: more than half of what was sent did not get
    /// through, and that is hardly ever chance. To be asked now and then;
    /// `pause` is a round trip or longer.
    pub(crate) fn judge(&mut self, now: Time, pause: Duration) -> Option<Overload> {
        let elapsed = now.since(self.since);
        if elapsed < pause || self.sent < Self::LEAST {
            return None;
        }
        let Self { sent, received, .. } = core::mem::replace(self, Self::new(now));
        let is_overload = received < sent.div_ceil(2);
        if !is_overload {
            return Some(Overload::No);
        }
        // After a long silence nobody knows when they were sent.
        let is_known = elapsed < pause.saturating_mul(8) && received > 0;
        is_known.then(|| Overload::Yes(f64::from(received) / elapsed.as_secs_f64()))
    }
}

/// Whether more is sent than gets through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Overload {
    No,
    /// Yes; so many datagrams per second got through.
    Yes(f64),
}

/// A share of losses above which it is of no use to send still more at once.
const MOST_LOSS: f64 = 0.35;
/// The same for what is sent once more.
const MOST_REPEATED_LOSS: f64 = 0.5;
/// The same for a message's first burst if queues overflow: more symbols would only raise it.
const MOST_OVERFLOW: f64 = 0.1;
/// And then there is no reserve above this.
const OVERLOAD: f64 = 0.2;
/// How unevenly datagrams are lost if it is queues that overflow.
const OVERFLOW_DISPERSION: f64 = 4.0;
/// Standard deviations that 99 % of a normal distribution lie below.
const DEVIATIONS: f64 = 2.33;
/// Symbols of which the distribution is summed up term by term: as many as a message has, with
/// twice as many again. Beyond, the normal one is as good.
const MOST_TERMS: u32 = 65_536;

/// As many as are lost of `n` symbols and themselves, at most `most`.
fn repairs(n: u32, most: u32, lost_of: impl Fn(u32) -> u32) -> u32 {
    let mut repairs = 0;
    // Each repair symbol can be lost too; some rounds are enough.
    for _ in 0..8 {
        let needed = lost_of(n.saturating_add(repairs));
        if needed <= repairs {
            break;
        }
        repairs = needed;
    }
    repairs.min(most)
}

fn uneven_lost_of(count: u32, loss: f64, dispersion: f64) -> u32 {
    let mean = f64::from(count) * loss;
    let deviation = (mean * (1.0 - loss) * dispersion).sqrt();
    if mean < 1e-3 {
        return 0;
    }
    (mean + DEVIATIONS * deviation + 0.5) as u32
}

/// So many of `count`, or fewer, are lost with a probability of 99 %.
fn lost_of(count: u32, loss: f64) -> u32 {
    const SURE: f64 = 0.99;
    let mean = f64::from(count) * loss;
    if mean < 1e-3 {
        return 0;
    }
    if mean > 30.0 || count > MOST_TERMS {
        return uneven_lost_of(count, loss, 1.0);
    }
    // The binomial distribution, term by term.
    let mut term = (0..count).fold(1.0, |product, _| product * (1.0 - loss));
    let mut sum = term;
    let mut lost = 0;
    while sum < SURE && lost < count {
        let next = lost.saturating_add(1);
        term *= f64::from(count.saturating_sub(lost)) / f64::from(next) * loss / (1.0 - loss);
        sum += term;
        lost = next;
    }
    lost
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    #[test]
    fn round_trip_settles() {
        let mut round_trip = RoundTripEstimator::default();
        assert_eq!(round_trip.ack_timeout(), DEFAULT_INITIAL_ROUND_TRIP);
        for _ in 0..100 {
            round_trip.sample(Duration::from_millis(10));
        }
        let ack_timeout = round_trip.ack_timeout();
        assert!(ack_timeout >= Duration::from_millis(10), "{ack_timeout:?}");
        assert!(ack_timeout < Duration::from_millis(11), "{ack_timeout:?}");
    }

    /// Who holds datagrams back for minutes makes nobody wait as long.
    #[test]
    fn an_answer_is_never_waited_for_longer_than_two_seconds() {
        let mut round_trip = RoundTripEstimator::default();
        for seconds in [1, 10, 240, u64::MAX / 2] {
            round_trip.sample(Duration::from_secs(seconds));
            assert!(round_trip.ack_timeout() <= MAX_ACK_TIMEOUT);
        }
    }

    #[test]
    fn loss_follows_what_is_seen() {
        let mut loss = LossEstimator::default();
        loss.sample(10, 1);
        assert!((loss.share() - 0.1).abs() < 1e-9);
        loss.sample(10, 0);
        assert!((loss.share() - 0.05).abs() < 1e-9);
        for _ in 0..1_000 {
            loss.sample(10, 3);
        }
        assert!((loss.share() - 0.3).abs() < 1e-3);
    }

    fn even(share: f64) -> LossEstimator {
        LossEstimator {
            share,
            ..LossEstimator::default()
        }
    }

    #[test]
    fn redundancy_is_for_what_is_lost() {
        assert_eq!(even(0.0).redundancy(64), 0);
        assert_eq!(even(0.01).redundancy(4), 1);
        assert_eq!(even(0.05).redundancy(5), 2);
        assert!((3..=4).contains(&even(0.01).redundancy(64)));
        assert!((7..=9).contains(&even(0.05).redundancy(64)));
        assert!((35..=60).contains(&even(0.3).redundancy(64)));
        assert!(even(0.3).redundancy(20_000) > 20_000 * 3 / 10);
        assert_eq!(even(1.0).redundancy(4), 4);
    }

    #[test]
    fn uneven_losses_need_a_reserve() {
        let mut even = LossEstimator::default();
        let mut uneven = LossEstimator::default();
        for round in 0..200 {
            even.sample(10, 1);
            uneven.sample(10, if round % 10 == 0 { 10 } else { 0 });
        }
        assert!(even.reserve(40) <= even.redundancy(40) + 1);
        assert!(uneven.reserve(40) > 2 * uneven.redundancy(40), "{uneven:?}");
    }

    proptest! {
        /// Overflow checks are on in tests.
        #[test]
        fn no_report_makes_an_estimate_overflow(
            samples in vec((extreme_u32(), extreme_u32(), extreme_duration()), 1..40),
            n in extreme_u32(),
        ) {
            let mut loss = LossEstimator::default();
            let mut round_trip = RoundTripEstimator::default();
            let mut delivery = DeliveryRate::new(Time::ZERO);
            let mut now = Time::ZERO;
            for (sent, lost, sample) in samples {
                loss.sample(sent, lost);
                round_trip.sample(sample);
                delivery.add(sent, lost);
                now = now + sample;
                delivery.judge(now, round_trip.ack_timeout());
                prop_assert!((0.0..=1.0).contains(&loss.share()), "{}", loss.share());
                let least = round_trip.least();
                prop_assert!(least >= GRANULARITY.min(sample));
            }
            prop_assert!(loss.redundancy(n) <= n && loss.reserve(n) <= n);
            prop_assert!(loss.repeated_redundancy(n) <= n.saturating_mul(2));
        }
    }

    /// Any number, and those next to the ends.
    fn extreme_u32() -> impl Strategy<Value = u32> {
        prop_oneof![any::<u32>(), 0u32..300, (u32::MAX - 300)..=u32::MAX]
    }

    fn extreme_duration() -> impl Strategy<Value = Duration> {
        let nanos = prop_oneof![any::<u64>(), 0u64..1_000_000_000];
        prop_oneof![9 => nanos.prop_map(Duration::from_nanos), 1 => Just(Duration::MAX)]
    }
}
