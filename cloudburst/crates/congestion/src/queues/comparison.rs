//! Two paths beside each other: whether their delays differ as those of two queues do.

use core::time::Duration;

use cloudburst_wire::Time;

use super::BELIEVED_FOR;

/// Samples of two paths further apart say nothing of each other, nor those of one path: queues change meanwhile. Where they
/// grow steadily, squares of changes grow more than the time does, and what one path's delay changes by must not be known
/// of shorter times alone than what it is held against.
const CLOSE: Duration = Duration::from_millis(15);
const CLOSE_OF_ONE: Duration = Duration::from_millis(60);
/// Nor do changes of one path's delay count between samples closer than this, and samples of two paths that are closer count
/// as so far apart: what both change by meanwhile must not be taken for less than it is.
const APART: Duration = Duration::from_millis(2);
/// How often two paths are compared, at most: a comparison is remembered for some seconds then, the time in which a
/// queue of TCP rises and falls.
const PAUSE: Duration = Duration::from_millis(10);
/// Comparisons, and changes of one path's delay or of those of all, before anything is decided.
pub(super) const ENOUGH: u16 = 8;
pub(super) const ENOUGH_OF_ALL: u16 = 32;
/// And how many are remembered of each.
const MEMORY: u16 = 128;
const CHANGES: u16 = 64;
/// Gaps between samples of a path of which the mean is taken.
const GAPS: u16 = 16;
/// Delays are far from each other that differ by so many standard deviations of what they change by meanwhile, and by more
/// than so many µs.
const USUAL: f32 = 1.5;
const LEAST_US: f32 = 500.0;
/// More than this part of all comparisons is far where paths lead through different queues, and so much more by one
/// comparison. A mean of squares is that of the few times in which a queue drains.
const FAR: f32 = 0.5;
const FAR_OF_FEW: f32 = 2.0;
/// After so many comparisons it is likely that two paths share a queue of which no more than this part was far.
pub(super) const LIKELY: u16 = 4;
const LIKE: f32 = 0.2;
/// Of which on each side of the mean there is this part of all: a path that has become longer is far on one side for long.
const LEAST_SIDE: f32 = 0.1;
/// The variance of the difference of two delays is that of both together where they have nothing in common. Paths of which it
/// is no more than this part of that may each have a queue in front of one that they share.
const LEAST_VARIANCE: f32 = 0.75;
/// Delay of a datagram on its way there, by the difference of two clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct DelaySample {
    pub(super) sent_at: Time,
    /// From any reference.
    pub(super) delay_us: i32,
}

/// Mean and variance, in µs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moments {
    pub(super) mean: f32,
    pub(super) variance: f32,
}

impl Moments {
    /// Takes a sample of this weight. Returns how far it was from the mean so far.
    fn add(&mut self, sample: f32, weight: f32) -> f32 {
        let off = sample - self.mean;
        self.mean += off * weight;
        self.variance += (off * off - self.variance) * weight;
        off
    }
}

/// By how much a path's delay changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    /// The sample that the next one is held against.
    since: DelaySample,
    pub(super) mean: MeanChange,
    /// How far apart such samples are, on average, in µs.
    pub(super) gap_us: f32,
}

/// Mean square of changes, in µs² for each µs between two samples.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MeanChange {
    /// Changes that it is of.
    count: u16,
    value: f32,
}

/// A path's delays beside those of another.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Comparison {
    /// The other, 0 if there is none.
    pub(super) with: u16,
    /// Comparisons that the means are of.
    pub(super) count: u16,
    /// The part of comparisons that were far from the mean difference, and that were far above it.
    pub(super) far: f32,
    pub(super) above: f32,
    pub(super) difference: Moments,
    /// Of the delay of each, from that of the first comparison.
    pub(super) delays: [Moments; 2],
    pub(super) first: [i32; 2],
    pub(super) at: Time,
    /// Until when they are believed to go through different queues.
    pub(super) apart_until: Time,
}

impl Change {
    pub(super) const fn since(sample: DelaySample) -> Self {
        Self {
            since: sample,
            mean: MeanChange {
                count: 0,
                value: 0.0,
            },
            // As long as nothing is known.
            gap_us: CLOSE_OF_ONE.as_micros() as f32,
        }
    }

    /// Takes a sample. Returns the square of a change, in µs² for each µs, if it is one.
    pub(super) fn note(&mut self, sample: DelaySample) -> Option<f32> {
        if sample.sent_at.since(self.since.sent_at) < APART {
            return None;
        }
        let before = core::mem::replace(&mut self.since, sample);
        let elapsed_us = elapsed_us(before.sent_at, sample.sent_at, CLOSE_OF_ONE)?;
        let difference = difference_us(sample.delay_us, before.delay_us);
        let square = difference * difference / elapsed_us;
        self.mean.add(square);
        self.gap_us += (elapsed_us - self.gap_us) / f32::from(self.mean.count.min(GAPS));
        Some(square)
    }
}

impl MeanChange {
    pub(super) fn add(&mut self, square: f32) {
        self.count = self.count.saturating_add(1).min(CHANGES);
        self.value += (square - self.value) / f32::from(self.count);
    }

    /// Returns it if it is of so many changes.
    pub(super) fn known(&self, least: u16) -> Option<f32> {
        (self.count >= least).then_some(self.value)
    }
}

impl Comparison {
    /// Takes two samples; each delay changes by so much on average, of samples that are so far apart.
    pub(super) fn add(
        &mut self,
        now: Time,
        with: u16,
        samples: (DelaySample, DelaySample),
        (change, gap_us): (f32, f32),
    ) {
        if self.with != with {
            *self = Self {
                with,
                ..Self::default()
            };
        }
        let Some(elapsed_us) = elapsed_us(samples.0.sent_at, samples.1.sent_at, CLOSE) else {
            return;
        };
        if now.since(self.at) < PAUSE {
            return;
        }
        self.at = now;
        let delays = [samples.0.delay_us, samples.1.delay_us];
        if self.count == 0 {
            self.first = delays;
        }
        self.count = self.count.saturating_add(1).min(MEMORY);
        let weight = 1.0 / f32::from(self.count);
        for ((moments, delay), first) in self.delays.iter_mut().zip(delays).zip(self.first) {
            moments.add(difference_us(delay, first), weight);
        }
        // Of the first one of each, which may be any.
        let before = difference_us(self.first[0], self.first[1]);
        let difference = difference_us(delays[0], delays[1]) - before;
        let off = self.difference.add(difference, weight);
        // What is delayed by itself differs as much after the shortest time.
        let usual = USUAL * (change * elapsed_us.max(gap_us)).sqrt();
        let is_far = off.abs() > usual.max(LEAST_US);
        self.far += (part(is_far) - self.far) * weight;
        self.above += (part(is_far && off > 0.0) - self.above) * weight;
        if self.count >= ENOUGH && self.differs(weight) {
            self.apart_until = now + BELIEVED_FOR;
        }
    }

    /// Tells whether delays differ as those of two queues do.
    pub(super) fn differs(&self, weight: f32) -> bool {
        let [one, other] = self.delays;
        let apart = one.variance + other.variance;
        self.far > FAR + FAR_OF_FEW * weight
            && self.above.min(self.far - self.above) > LEAST_SIDE
            && self.difference.variance > LEAST_VARIANCE * apart
    }

    /// Tells whether both go through different queues in all likelihood, though that is not known.
    pub(super) fn is_unlike(&self, leader: u16) -> bool {
        self.with == leader && self.count >= LIKELY && self.far > FAR
    }

    /// Tells whether both share a queue in all likelihood.
    pub(super) fn is_like(&self, leader: u16) -> bool {
        self.with == leader && self.count >= LIKELY && self.far < LIKE
    }

    pub(super) fn is_apart(&self, now: Time, from: u16) -> bool {
        self.with == from && now < self.apart_until
    }
}

/// How far apart two samples are in µs, if that is at most so much.
fn elapsed_us(one: Time, other: Time, most: Duration) -> Option<f32> {
    let elapsed = one.since(other).max(other.since(one));
    (elapsed <= most).then(|| elapsed.max(APART).as_micros() as f32)
}

fn difference_us(one_us: i32, other_us: i32) -> f32 {
    i64::from(one_us).saturating_sub(other_us.into()) as f32
}

/// One if that is so.
fn part(is_so: bool) -> f32 {
    f32::from(u8::from(is_so))
}
