//! One way between two addresses.

use std::{net::IpAddr, num::NonZeroU64, time::Duration};

use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use tokio::time::Instant;

/// Describes one way between two addresses of a [`MemoryNetwork`](super::MemoryNetwork).
///
/// The default is a perfect one: no delay, no loss, any rate. Delays are rounded up to a millisecond,
/// which the timers of tokio count.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Link {
    delay: Duration,
    loss: f64,
    duplication: f64,
    reordering: f64,
    late_by: Duration,
    jitter: Duration,
    /// Bits a second, and bytes that may wait.
    rate: Option<(NonZeroU64, usize)>,
}

/// Refuses a setting of a [`Link`].
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("`{setting}` of {value} is no probability; give one from 0 to 1")]
pub struct LinkError {
    /// The setting that was to be changed.
    pub setting: &'static str,
    /// The value that was given.
    pub value: f64,
}

impl Link {
    /// Returns a link on which every datagram takes this time, and none is lost.
    pub fn new(delay: Duration) -> Self {
        Self {
            delay,
            ..Self::default()
        }
    }

    /// Loses each datagram with this probability, whatever becomes of others. Default 0; 1 is a link
    /// that is dead.
    ///
    /// # Errors
    ///
    /// A [`LinkError`] outside of 0 to 1.
    pub fn with_loss(mut self, probability: f64) -> Result<Self, LinkError> {
        self.loss = checked("loss", probability)?;
        Ok(self)
    }

    /// Delivers each datagram that is not lost a second time with this probability. Default 0.
    ///
    /// # Errors
    ///
    /// A [`LinkError`] outside of 0 to 1.
    pub fn with_duplication(mut self, probability: f64) -> Result<Self, LinkError> {
        self.duplication = checked("duplication", probability)?;
        Ok(self)
    }

    /// Delays each datagram with this probability by up to so much more, all delays alike likely, so
    /// that others overtake it. Default 0. [`with_jitter`](Self::with_jitter) keeps the order.
    ///
    /// # Errors
    ///
    /// A [`LinkError`] outside of 0 to 1.
    pub fn with_reordering(
        mut self,
        probability: f64,
        late_by: Duration,
    ) -> Result<Self, LinkError> {
        self.reordering = checked("reordering", probability)?;
        self.late_by = late_by;
        Ok(self)
    }

    /// Delays each datagram by up to so much more, all delays alike likely, but none overtakes another.
    /// Default: none.
    #[must_use]
    pub fn with_jitter(mut self, jitter: Duration) -> Self {
        self.jitter = jitter;
        self
    }

    /// Carries so many bits a second of UDP payload; up to `queue_bytes` wait for their turn, and what
    /// finds less room than it needs is dropped. Default: any rate.
    #[must_use]
    pub fn with_rate(mut self, bits_per_s: NonZeroU64, queue_bytes: usize) -> Self {
        self.rate = Some((bits_per_s, queue_bytes));
        self
    }
}

fn checked(setting: &'static str, value: f64) -> Result<f64, LinkError> {
    match (0.0..=1.0).contains(&value) {
        true => Ok(value),
        false => Err(LinkError { setting, value }),
    }
}

/// What becomes of a datagram.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fate {
    Lost,
    /// There was no room in the queue.
    Dropped,
    /// It is there at the first time, and once more at the second.
    Arrives(Instant, Option<Instant>),
}

/// A link in use: its queue, and its own source of chance, so that what happens on one does not
/// change what happens on others.
#[derive(Debug)]
pub(super) struct LinkState {
    pub(super) link: Link,
    /// It is not the network's default.
    pub(super) is_stated: bool,
    random: Xoshiro256PlusPlus,
    /// When the queue will be empty.
    free_at: Option<Instant>,
    /// When the last datagram arrives, but for what is late.
    last: Option<Instant>,
}

impl LinkState {
    pub(super) fn new(link: Link, seed: u64, from: IpAddr, to: IpAddr) -> Self {
        let seed = mix(mix(mix(seed) ^ number(from)) ^ number(to));
        Self {
            link,
            is_stated: false,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            free_at: None,
            last: None,
        }
    }

    pub(super) fn carry(&mut self, now: Instant, bytes: usize) -> Fate {
        let Some(out) = self.queue(now, bytes) else {
            return Fate::Dropped;
        };
        if self.chance(self.link.loss) {
            return Fate::Lost;
        }
        let mut arrives = out + self.link.delay;
        if !self.link.jitter.is_zero() {
            arrives += self.link.jitter.mul_f64(self.unit());
            arrives = self.last.map_or(arrives, |last| last.max(arrives));
            self.last = Some(arrives);
        }
        if self.chance(self.link.reordering) {
            arrives += self.link.late_by.mul_f64(self.unit());
        }
        let again = self.chance(self.link.duplication).then_some(arrives);
        Fate::Arrives(arrives, again)
    }

    /// When a datagram that is put in now has left the queue; nothing if it does not fit.
    fn queue(&mut self, now: Instant, bytes: usize) -> Option<Instant> {
        let Some((bits_per_s, queue_bytes)) = self.link.rate else {
            return Some(now);
        };
        let bits_per_s = bits_per_s.get() as f64;
        let free_at = self.free_at.map_or(now, |it| it.max(now));
        let backlog_bytes = (free_at - now).as_secs_f64() * bits_per_s / 8.0;
        if backlog_bytes + bytes as f64 > queue_bytes as f64 {
            return None;
        }
        let out = free_at + Duration::from_secs_f64(bytes as f64 * 8.0 / bits_per_s);
        self.free_at = Some(out);
        Some(out)
    }

    fn chance(&mut self, probability: f64) -> bool {
        // Saves a draw where nothing ever happens.
        probability > 0.0 && self.unit() < probability
    }

    /// 0 to 1.
    fn unit(&mut self) -> f64 {
        (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

fn number(ip: IpAddr) -> u64 {
    match ip {
        IpAddr::V4(ip) => u64::from(ip.to_bits()),
        IpAddr::V6(ip) => mix((ip.to_bits() >> 64) as u64) ^ ip.to_bits() as u64,
    }
}

/// A bijection that looks like chance (SplitMix64's).
pub(super) fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(link: Link) -> LinkState {
        LinkState::new(link, 7, [10, 0, 0, 1].into(), [10, 0, 0, 2].into())
    }

    #[test]
    fn a_link_carries_at_its_rate_and_drops_what_does_not_fit() {
        let rate = NonZeroU64::new(8_000_000).unwrap();
        let mut link = state(Link::new(Duration::from_millis(5)).with_rate(rate, 2_000));
        let now = Instant::now();
        let after = |ms| Fate::Arrives(now + Duration::from_millis(ms), None);
        assert_eq!(link.carry(now, 1_000), after(6));
        assert_eq!(link.carry(now, 1_000), after(7));
        assert_eq!(link.carry(now, 1_000), Fate::Dropped);
        assert_eq!(link.carry(now + Duration::from_millis(1), 1_000), after(8));
    }

    #[test]
    fn losses_and_copies_are_as_frequent_as_stated() {
        let link = Link::default().with_loss(0.2).unwrap();
        let mut link = state(link.with_duplication(0.5).unwrap());
        let now = Instant::now();
        let (mut lost, mut twice) = (0, 0);
        for _ in 0..10_000 {
            match link.carry(now, 100) {
                Fate::Lost => lost += 1,
                Fate::Arrives(_, Some(_)) => twice += 1,
                _ => {}
            }
        }
        // Five standard deviations.
        assert!((1_800..=2_200).contains(&lost), "{lost}");
        assert!((3_750..=4_250).contains(&twice), "{twice}");
    }

    #[test]
    fn a_datagram_that_is_late_is_overtaken() {
        let late = Duration::from_millis(50);
        let link = Link::new(late).with_reordering(0.5, late).unwrap();
        let mut link = state(link);
        let now = Instant::now();
        let delays = (0..100).map(|_| match link.carry(now, 100) {
            Fate::Arrives(at, None) => at - now,
            fate => panic!("{fate:?}"),
        });
        let mut delays = delays.collect::<Vec<_>>();
        assert!(delays.iter().all(|&it| it >= late && it <= 2 * late));
        // Those in time are all alike, and no two of the others.
        delays.sort_unstable();
        delays.dedup();
        assert!((30..70).contains(&delays.len()), "{}", delays.len());
    }

    #[test]
    fn jitter_delays_and_keeps_the_order() {
        let jitter = Duration::from_millis(50);
        let mut link = state(Link::new(jitter).with_jitter(jitter));
        let start = Instant::now();
        let mut last = start;
        // Close together, where the slowest holds others back, and far apart.
        let close = (0..500).map(|number| start + Duration::from_millis(number));
        let apart = (1..500).map(|number| start + Duration::from_secs(number));
        let (mut fastest, mut slowest) = (Duration::MAX, Duration::ZERO);
        for sent in close.chain(apart) {
            let Fate::Arrives(at, None) = link.carry(sent, 100) else {
                panic!("nothing is lost");
            };
            assert!(at >= last, "overtaken");
            last = at;
            let delay = at - sent;
            assert!((jitter..=2 * jitter).contains(&delay), "{delay:?}");
            (fastest, slowest) = (fastest.min(delay), slowest.max(delay));
        }
        assert!(fastest < jitter + jitter / 10, "{fastest:?}");
        assert!(slowest > 2 * jitter - jitter / 10, "{slowest:?}");
    }

    #[test]
    fn what_is_no_probability_is_refused_with_its_value() {
        for value in [-0.1, 1.1, f64::NAN] {
            let error = Link::default().with_loss(value).unwrap_err();
            assert!(error.to_string().starts_with("`loss` of"), "{error}");
        }
    }
}
