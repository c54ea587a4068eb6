//! Rounds: what one round trip's worth of datagrams tells of queues and losses.

use core::time::Duration;

use super::{
    Acknowledged,
    passing::{PassingQueue, Sample},
};
use cloudburst_wire::Time;

/// Delays below this are noise of hosts.
const NOISE: Duration = Duration::from_micros(150);
/// More than this part of the round trip of an empty path is always a queue.
const LEAST_PART: u32 = 4;
/// A queue stands if more than this part of the delays tells of it.
const QUEUED_PART: u32 = 5;
/// Samples of which the shortest tells whether queues are empty.
const LATEST: usize = 4;
/// Samples of a round that tell of a queue that stands.
const LEAST_SAMPLES: u32 = 3;
/// Samples of a round, and the delay from round to round by which its queue has grown
/// (RFC 9406 §4.3: N_RTT_SAMPLE, MIN_RTT_THRESH, MAX_RTT_THRESH, MIN_RTT_DIVISOR).
const RISE_SAMPLES: u32 = 8;
const RISE: [Duration; 2] = [Duration::from_millis(4), Duration::from_millis(16)];
const RISE_PART: u32 = 8;
/// A backlog of so many of our datagrams is no queue, as in TCP Veno (Fu and Liew 2003, β): on a path of
/// 0.2 ms two datagrams that leave together would be one. But no more than a millisecond is none.
const OWN_DATAGRAMS: u32 = 3;
const MOST_BACKLOG: Duration = Duration::from_millis(1);
/// The backlog of a small window where nobody knows yet how long a datagram takes: two of 1,450 bytes at 50 Mbit/s.
const UNKNOWN_BACKLOG: Duration = Duration::from_micros(500);

/// For how long what got through in a round is remembered, and for twice that at the most.
const VOLUME_PERIOD: Duration = Duration::from_millis(500);

/// What a round has told so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Round {
    /// Datagrams that were reported on, and those of them that were lost.
    pub(super) sent: u32,
    pub(super) lost: u32,
    /// The shortest delay of queues.
    least_queue: Option<Duration>,
    /// Samples of delay, and those of them that tell of a queue.
    samples: u32,
    queued: u32,
    /// The most that was in flight, in bytes.
    pub(super) peak: f64,
    /// Bytes that got through.
    through: f64,
}

/// The most bytes that got through in a round of the last second or half of it: how much the network is known to carry
/// where a window is not used all the time (RFC 7661 §4.2).
#[derive(Clone, Copy, Debug)]
struct Volume {
    began: Time,
    now: f64,
    before: f64,
}

impl Volume {
    const fn new(now: Time) -> Self {
        Self {
            began: now,
            now: 0.0,
            before: 0.0,
        }
    }

    fn note(&mut self, now: Time, through: f64) {
        let elapsed = now.since(self.began);
        if elapsed >= VOLUME_PERIOD {
            self.before = if elapsed < VOLUME_PERIOD.saturating_mul(2) {
                self.now
            } else {
                0.0
            };
            (self.began, self.now) = (now, 0.0);
        }
        self.now = self.now.max(through);
    }

    fn most(&self, now: Time) -> f64 {
        match now.since(self.began) {
            elapsed if elapsed < VOLUME_PERIOD => self.now.max(self.before),
            elapsed if elapsed < VOLUME_PERIOD.saturating_mul(2) => self.now,
            _ => 0.0,
        }
    }
}

/// The round under way, and the one before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rounds {
    began: Time,
    /// Rounds so far.
    pub(super) number: u32,
    pub(super) now: Round,
    pub(super) last: Round,
    latest: [Duration; LATEST],
    samples: usize,
    volume: Volume,
    passing: PassingQueue,
    /// The round trip of an empty path.
    base: Duration,
    /// The time that a datagram takes at the bottleneck, if it is known.
    pub(super) transmission: Duration,
    /// That time is known now, and not only of paths that may be others by now.
    pub(super) is_rate_known: bool,
    /// The window is of few datagrams.
    pub(super) is_small: bool,
}

impl Rounds {
    pub(super) fn new(now: Time) -> Self {
        Self {
            began: now,
            number: 0,
            now: Round::default(),
            last: Round::default(),
            latest: [Duration::ZERO; LATEST],
            samples: 0,
            volume: Volume::new(now),
            passing: PassingQueue::default(),
            base: Duration::ZERO,
            transmission: Duration::ZERO,
            is_rate_known: false,
            is_small: false,
        }
    }

    /// Begins again after a silence.
    pub(super) fn restart(&mut self, now: Time) {
        *self = Self {
            base: self.base,
            transmission: self.transmission,
            is_rate_known: self.is_rate_known,
            is_small: self.is_small,
            number: self.number,
            volume: self.volume,
            ..Self::new(now)
        };
    }

    /// Takes a report. Returns whether a round has ended with it.
    /// `datagram` is the time that one takes.
    pub(super) fn take(
        &mut self,
        now: Time,
        news: &Acknowledged,
        (in_flight_before, datagram): (f64, Duration),
    ) -> bool {
        self.now.peak = self.now.peak.max(in_flight_before);
        self.now.sent = self.now.sent.saturating_add(news.sent);
        self.now.lost = self.now.lost.saturating_add(news.lost);
        let received = f64::from(news.received) / f64::from(news.sent.max(1));
        self.now.through += news.resolved_bytes as f64 * received.min(1.0);
        if let Some((sample, least)) = news.round_trip {
            self.base = least;
            let queue = sample.saturating_sub(least);
            self.now.least_queue = Some(self.now.least_queue.map_or(queue, |it| it.min(queue)));
            self.now.samples = self.now.samples.saturating_add(1);
            let is_queued = queue > self.threshold(8, datagram.saturating_mul(2));
            self.now.queued = self.now.queued.saturating_add(is_queued.into());
            self.latest[self.samples % LATEST] = queue;
            self.samples = self.samples.wrapping_add(1);
        }
        let ends = news.newest_sent_at.is_some_and(|at| at >= self.began);
        if let Some((sent_at, _)) = news.newest_sent_at.zip(news.round_trip) {
            let sample = Sample {
                sent_at,
                sent_before: news.sent_before,
                base: self.base,
                queue: self.latest(),
            };
            let threshold = self.threshold(12, datagram.saturating_mul(2));
            self.passing.watch(ends, sample, threshold, datagram);
        }
        if ends {
            self.began = now;
            self.number = self.number.wrapping_add(1);
            self.last = core::mem::take(&mut self.now);
            self.volume.note(now, self.last.through);
            self.now.peak = in_flight_before;
        }
        ends
    }

    /// Returns whether a queue came and went that was not ours.
    pub(super) fn has_passed(&self) -> bool {
        self.passing.has_passed()
    }

    /// The queue that the latest sample tells of.
    fn latest(&self) -> Duration {
        self.latest[self.samples.wrapping_sub(1) % LATEST]
    }

    /// The part of the latest round trip that an empty path takes.
    pub(super) fn empty_share(&self) -> f64 {
        let round_trip = self.base.saturating_add(self.latest());
        self.base.as_secs_f64() / round_trip.as_secs_f64().max(1e-9)
    }

    /// Whether the latest sample tells of a queue.
    pub(super) fn has_met(&self, part: u32, datagrams: Duration) -> bool {
        self.samples > 0 && self.latest() > self.threshold(part, datagrams)
    }

    /// Whether the latest sample tells of a queue, however short.
    pub(super) fn has_met_queue(&self, datagram: Duration) -> bool {
        self.has_met(12, datagram.saturating_mul(2))
    }

    /// Whether all samples of the last round tell of a queue.
    pub(super) fn has_stood(&self, datagram: Duration) -> bool {
        let least = self.last.least_queue;
        self.last.samples >= LEAST_SAMPLES
            && least.is_some_and(|least| least > self.threshold(12, datagram.saturating_mul(2)))
    }

    /// How long at the least what was sent in the last round stood in a queue.
    pub(super) fn standing(&self) -> Duration {
        self.last.least_queue.unwrap_or_default()
    }

    /// Returns the shortest queue of this round, if it is longer than that of the one before
    /// (RFC 9406 §4.2).
    pub(super) fn has_risen(&self) -> Option<Duration> {
        let (now, last) = self.now.least_queue.zip(self.last.least_queue)?;
        let [least, most] = RISE;
        let rise = part_of(self.base.saturating_add(last), RISE_PART).clamp(least, most);
        (self.now.samples >= RISE_SAMPLES && now >= last.saturating_add(rise)).then_some(now)
    }

    /// Whether the queue of this round is shorter than that.
    pub(super) fn is_below(&self, queue: Duration) -> bool {
        self.now.samples >= RISE_SAMPLES && self.now.least_queue.is_some_and(|now| now < queue)
    }

    /// Datagrams that were lost in this round and the one before, and of how many.
    pub(super) fn loss(&self) -> (u32, u32) {
        let sent = self.now.sent.saturating_add(self.last.sent);
        (self.now.lost.saturating_add(self.last.lost), sent)
    }

    /// The most in flight of late, in bytes.
    pub(super) fn peak(&self) -> f64 {
        self.now.peak.max(self.last.peak)
    }

    /// Returns the most bytes that got through in a round trip of late (pipeACK, RFC 7661 §4.2).
    pub(super) fn through(&self, now: Time) -> f64 {
        self.now.through.max(self.volume.most(now))
    }

    /// The round trip of an empty path, if one was measured.
    pub(super) fn base(&self) -> Option<Duration> {
        (self.base > Duration::ZERO).then_some(self.base)
    }

    fn threshold(&self, part: u32, datagrams: Duration) -> Duration {
        // Windows of few datagrams would take any queue for their own.
        let own = datagrams.min(part_of(self.base, LEAST_PART));
        let backlog = self.own_backlog().min(MOST_BACKLOG);
        part_of(self.base, part).max(NOISE).max(own).max(backlog)
    }

    /// How long our own datagrams may keep each other waiting in a queue that holds nothing else.
    fn own_backlog(&self) -> Duration {
        let known = self.transmission.saturating_mul(OWN_DATAGRAMS);
        if self.is_rate_known || !self.is_small {
            return known;
        }
        // A rate is learnt from datagrams in a row, which a small window does not send. If it took its own datagrams for
        // others' queue, each loss by chance would keep it as small as it is.
        known.max(UNKNOWN_BACKLOG)
    }

    /// Whether a queue stood at the bottleneck of late, and was not the jitter of hosts.
    pub(super) fn has_queue(&self) -> bool {
        let samples = self.now.samples.saturating_add(self.last.samples);
        let queued = self.now.queued.saturating_add(self.last.queued);
        queued.saturating_mul(QUEUED_PART) > samples
    }

    /// Whether one of the latest samples tells of an empty queue.
    pub(super) fn is_empty(&self, datagram: Duration) -> bool {
        let least = self.latest.iter().min().copied().unwrap_or_default();
        least <= self.threshold(16, datagram)
    }

    /// Whether the queue was empty at times in the last round.
    pub(super) fn was_empty(&self, datagram: Duration) -> bool {
        let least = self.last.least_queue;
        least.is_some_and(|least| least <= self.threshold(16, datagram))
    }
}

fn part_of(whole: Duration, part: u32) -> Duration {
    whole.checked_div(part).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_window_of_unknown_rate_takes_half_a_millisecond_for_its_own() {
        let has_queue = |queue_us, transmission_us, is_small| {
            let now = Time::ZERO + Duration::from_secs(1);
            let mut rounds = Rounds::new(now);
            rounds.transmission = Duration::from_micros(transmission_us);
            rounds.is_rate_known = transmission_us > 0;
            rounds.is_small = is_small;
            let least = Duration::from_micros(200);
            let news = Acknowledged {
                round_trip: Some((least + Duration::from_micros(queue_us), least)),
                ..Acknowledged::default()
            };
            rounds.take(now, &news, (0.0, Duration::ZERO));
            rounds.has_queue()
        };
        assert!(!has_queue(400, 0, true));
        assert!(has_queue(600, 0, true));
        assert!(has_queue(400, 0, false), "a larger one does not");
        assert!(has_queue(400, 12, true), "nor where the rate is known");
    }
}
