//! Rounds: what one round trip's worth of datagrams tells of queues and losses.

use core::time::Duration;

use super::Acknowledged;
use cloudburst_wire::Time;

/// Delays below this are noise of hosts.
const NOISE: Duration = Duration::from_micros(150);
/// More than this part of the round trip of an empty path is always a queue.
const LEAST_PART: u32 = 4;
/// A queue stands if more than this part of the delays tells of it.
const QUEUED_PART: u32 = 5;
/// Samples of which the shortest tells of a queue while the window doubles.
const LATEST: usize = 4;

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
    /// The round trip of an empty path.
    base: Duration,
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
            base: Duration::ZERO,
        }
    }

    /// Begins again after a silence.
    pub(super) fn restart(&mut self, now: Time) {
        *self = Self {
            base: self.base,
            number: self.number,
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
        self.now.sent += news.sent;
        self.now.lost += news.lost;
        if let Some((sample, least)) = news.round_trip {
            self.base = least;
            let queue = sample.saturating_sub(least);
            self.now.least_queue = Some(self.now.least_queue.map_or(queue, |it| it.min(queue)));
            self.now.samples += 1;
            self.now.queued += u32::from(queue > self.threshold(8, datagram * 2));
            self.latest[self.samples % LATEST] = queue;
            self.samples += 1;
        }
        let ends = news.newest_sent_at.is_some_and(|at| at >= self.began);
        if ends {
            self.began = now;
            self.number = self.number.wrapping_add(1);
            self.last = core::mem::take(&mut self.now);
            self.now.peak = in_flight_before;
        }
        ends
    }

    /// Datagrams that were lost in this round and the one before, and of how many.
    pub(super) fn loss(&self) -> (u32, u32) {
        let sent = self.now.sent + self.last.sent;
        (self.now.lost + self.last.lost, sent)
    }

    /// The most in flight of late, in bytes.
    pub(super) fn peak(&self) -> f64 {
        self.now.peak.max(self.last.peak)
    }

    /// The round trip of an empty path, if one was measured.
    pub(super) fn base(&self) -> Option<Duration> {
        (self.base > Duration::ZERO).then_some(self.base)
    }

    fn threshold(&self, part: u32, datagrams: Duration) -> Duration {
        // Windows of few datagrams would take any queue for their own.
        let own = datagrams.min(self.base / LEAST_PART);
        (self.base / part).max(NOISE).max(own)
    }

    /// Whether a queue stood at the bottleneck of late, and was not the jitter of hosts.
    pub(super) fn has_queue(&self) -> bool {
        let samples = self.now.samples + self.last.samples;
        let queued = self.now.queued + self.last.queued;
        queued * QUEUED_PART > samples
    }

    /// Whether each of the latest samples tells of a queue.
    pub(super) fn is_queueing(&self, datagram: Duration) -> bool {
        let least = self.latest.iter().min().copied().unwrap_or_default();
        self.samples >= LATEST && least > self.threshold(12, datagram * 2)
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
