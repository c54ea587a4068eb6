//! Queues that paths share, as far as delays tell (passive shared-bottleneck detection, after RFC 8382).
//!
//! What stands in one queue delays all that go through it: the delays of two paths through the same
//! bottleneck differ by a constant, and by what changes between two samples. Where they differ by
//! more, and neither rises and falls with the other, each path has a queue of its own, and one flow's share
//! of each is due to a sender (RFC 6356 §1.1). Until that is shown, paths share.

use core::time::Duration;

use cloudburst_wire::Time;

use crate::{MAX_PATHS, in_flight::Resolved};

/// Queues that are told apart, at most.
pub const MAX_QUEUES: usize = 4;

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
const ENOUGH: u16 = 8;
const ENOUGH_OF_ALL: u16 = 32;
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
const LIKELY: u16 = 4;
const LIKE: f32 = 0.2;
/// Of which on each side of the mean there is this part of all: a path that has become longer is far on one side for long.
const LEAST_SIDE: f32 = 0.1;
/// The variance of the difference of two delays is that of both together where they have nothing in common. Paths of which it
/// is no more than this part of that may each have a queue in front of one that they share.
const LEAST_VARIANCE: f32 = 0.75;
/// How long that is believed that was shown, and a path stands for a queue of which nothing is heard.
const BELIEVED_FOR: Duration = Duration::from_secs(60);

/// Delay of a datagram on its way there, by the difference of two clocks.
#[derive(Clone, Copy, Debug)]
struct DelaySample {
    sent_at: Time,
    /// From any reference.
    delay_us: i32,
}

/// Mean and variance, in µs.
#[derive(Clone, Copy, Debug, Default)]
struct Moments {
    mean: f32,
    variance: f32,
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
struct Change {
    /// The sample that the next one is held against.
    since: DelaySample,
    mean: MeanChange,
    /// How far apart such samples are, on average, in µs.
    gap_us: f32,
}

/// Mean square of changes, in µs² for each µs between two samples.
#[derive(Clone, Copy, Debug, Default)]
struct MeanChange {
    /// Changes that it is of.
    count: u16,
    value: f32,
}

/// A path's delays beside those of another.
#[derive(Clone, Copy, Debug, Default)]
struct Comparison {
    /// The other, 0 if there is none.
    with: u16,
    /// Comparisons that the means are of.
    count: u16,
    /// The part of comparisons that were far from the mean difference, and that were far above it.
    far: f32,
    above: f32,
    difference: Moments,
    /// Of the delay of each, from that of the first comparison.
    delays: [Moments; 2],
    first: [i32; 2],
    at: Time,
    /// Until when they are believed to go through different queues.
    apart_until: Time,
}

/// Delays of a path, and beside those of paths that stand for queues.
#[derive(Clone, Copy, Debug)]
struct PathDelays {
    path: u16,
    latest: DelaySample,
    heard_at: Time,
    change: Change,
    comparisons: [Comparison; MAX_QUEUES],
}

/// Set of queues, of those that are told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueSet(u8);

impl QueueSet {
    /// Adds a queue to the set, if that is so.
    pub fn insert_if(&mut self, is_so: bool, queue: usize) {
        if is_so {
            self.insert(queue);
        }
    }

    /// Adds a queue to the set.
    pub fn insert(&mut self, queue: usize) {
        self.0 |= 1_u8.wrapping_shl(queue as u32);
    }

    /// Returns the queues; the first, of an empty set, for paths share what is not known better.
    pub fn iter(self) -> impl Iterator<Item = usize> + Clone {
        let bits = self.0.max(1);
        (0..MAX_QUEUES).filter(move |&queue| bits.wrapping_shr(queue as u32) & 1 == 1)
    }
}

/// Parts of what is sent that go through each queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueShares([f64; MAX_QUEUES]);

impl QueueShares {
    /// Nothing is known of any.
    pub const NONE: Self = Self([0.0; MAX_QUEUES]);
    /// Bytes over which they are taken.
    const MEMORY: f64 = 500_000.0;

    /// Counts bytes that went through a queue.
    pub(crate) fn count(&mut self, queue: usize, bytes: u64) {
        let bytes = bytes as f64;
        for share in &mut self.0 {
            *share *= Self::MEMORY / (Self::MEMORY + bytes);
        }
        self.0[queue] += bytes / (Self::MEMORY + bytes);
    }

    /// Has a queue's part be another's.
    fn join(&mut self, queue: usize, other: usize) {
        let part = core::mem::take(&mut self.0[queue]);
        self.0[other] += part;
    }

    fn sum(&self) -> f64 {
        self.0.iter().sum()
    }

    /// Returns how many flows of one queue each would be spread as evenly: 1 where all goes through one.
    pub fn flows(&self) -> f64 {
        let squares: f64 = self.0.iter().map(|share| share * share).sum();
        let sum = self.sum();
        if squares > 0.0 {
            (sum * sum / squares).clamp(1.0, MAX_QUEUES as f64)
        } else {
            1.0
        }
    }

    /// Returns the part that goes through these queues, 1 if nothing is known.
    pub fn of(&self, queues: impl Iterator<Item = usize>) -> f64 {
        let sum = self.sum();
        if sum > 0.0 {
            let these: f64 = queues.map(|queue| self.0[queue]).sum();
            (these / sum).clamp(0.0, 1.0)
        } else {
            1.0
        }
    }
}

/// Queues that a peer's paths lead through, as far as they were told apart.
#[derive(Clone, Debug, Default)]
pub struct Queues {
    /// Paths of which delays are known.
    paths: Vec<PathDelays>,
    /// The path that stands for each queue.
    leaders: [Option<u16>; MAX_QUEUES],
    /// By how much the delays of all of them change, for who has told too little.
    change: MeanChange,
    shares: QueueShares,
}

impl Queues {
    /// Takes a report on the path of this number, which is not 0: how long its newest datagram was under way, by the
    /// difference of two clocks, and what has left the network with it. Returns the queue that the path counts as going through.
    pub fn hear(&mut self, now: Time, path: u16, delay_us: i32, resolved: &Resolved) -> usize {
        match resolved.newest {
            Some((sent_at, _)) if resolved.is_newest_known => {
                let sample = DelaySample { sent_at, delay_us };
                self.sample(now, path, sample, resolved.bytes)
            }
            // Answers are in no window, and nobody knows when they were sent.
            _ => {
                let index = self.paths.iter().position(|it| it.path == path);
                let queue = index.map_or(0, |index| self.place(now, index));
                self.shares.count(queue, resolved.bytes);
                queue
            }
        }
    }

    fn sample(&mut self, now: Time, path: u16, sample: DelaySample, bytes: u64) -> usize {
        self.forget_leaders(now);
        let index = self.note(now, path, sample);
        for queue in 0..MAX_QUEUES {
            let Some(leader) = self.leader(queue) else {
                continue;
            };
            if leader == index {
                // The others are held against it.
                for other in (0..self.paths.len()).filter(|&other| other != leader) {
                    self.compare(now, queue, other, leader);
                }
            } else {
                self.compare(now, queue, index, leader);
            }
        }
        let queue = self.place(now, index);
        self.shares.count(queue, bytes);
        queue
    }

    /// Returns which parts of what is sent go through each.
    pub const fn shares(&self) -> QueueShares {
        self.shares
    }

    /// Forgets delays: a clock was set.
    pub fn forget_delays(&mut self) {
        self.paths.clear();
        self.change = MeanChange::default();
        self.leaders = [None; MAX_QUEUES];
        self.shares = QueueShares::default();
    }

    /// Takes a sample of a path. Returns its index.
    fn note(&mut self, now: Time, path: u16, sample: DelaySample) -> usize {
        if let Some(index) = self.paths.iter().position(|it| it.path == path) {
            let delays = &mut self.paths[index];
            if let Some(square) = delays.change.note(sample) {
                self.change.add(square);
            }
            (delays.latest, delays.heard_at) = (sample, now);
            return index;
        }
        let new = PathDelays {
            path,
            latest: sample,
            heard_at: now,
            change: Change::since(sample),
            comparisons: [Comparison::default(); MAX_QUEUES],
        };
        if self.paths.len() < MAX_PATHS {
            self.paths.push(new);
            return self.paths.len().saturating_sub(1);
        }
        // Paths are replaced by others: one of them is the one that was heard of least lately.
        let indices = 0..self.paths.len();
        let oldest = indices.min_by_key(|&index| self.paths[index].heard_at);
        let oldest = oldest.unwrap_or_default();
        self.paths[oldest] = new;
        oldest
    }

    /// Forgets paths that stand for queues and of which nothing was heard for long.
    fn forget_leaders(&mut self, now: Time) {
        for queue in 0..MAX_QUEUES {
            let heard_at = self.leader(queue).map(|index| self.paths[index].heard_at);
            if heard_at.is_none_or(|at| now.since(at) > BELIEVED_FOR) {
                self.leaders[queue] = None;
                self.shares.join(queue, 0);
            }
        }
    }

    fn leader(&self, queue: usize) -> Option<usize> {
        let leader = self.leaders[queue]?;
        self.paths.iter().position(|it| it.path == leader)
    }

    /// Holds the latest sample of a path against that of one that stands for a queue.
    fn compare(&mut self, now: Time, queue: usize, index: usize, leader: usize) {
        let leader = self.paths[leader];
        let all = self.change.known(ENOUGH_OF_ALL);
        let path = &mut self.paths[index];
        let samples = (path.latest, leader.latest);
        let changes = [path.change, leader.change];
        let [path_change, leader_change] = changes.map(|own| own.mean.known(ENOUGH).or(all));
        // What each of both changes by, or is delayed by alone, is in their difference once.
        if let Some((one, other)) = path_change.zip(leader_change) {
            let gap_us = path.change.gap_us.max(leader.change.gap_us);
            let change = ((one + other) / 2.0, gap_us);
            path.comparisons[queue].add(now, leader.path, samples, change);
        }
    }

    /// The queue of a path: the one that it stands for, or the first that it is not known to miss, but for one that it is as
    /// likely to go through as it is unlikely to go through that.
    fn place(&mut self, now: Time, index: usize) -> usize {
        let PathDelays {
            path, comparisons, ..
        } = self.paths[index];
        let own = self.leaders.iter().position(|it| *it == Some(path));
        let is_shared = |(leader, comparison): (&Option<u16>, &Comparison)| {
            leader.is_some_and(|it| it != path && !comparison.is_apart(now, it))
        };
        let first = self.leaders.iter().zip(&comparisons).position(is_shared);
        match (own, first) {
            // It has turned out to share an earlier one's.
            (Some(own), Some(first)) if first < own => {
                self.leaders[own] = None;
                self.shares.join(own, first);
                first
            }
            (Some(own), _) => own,
            (None, Some(first)) => {
                let is_like = |&queue: &usize| {
                    self.leaders[queue].is_some_and(|it| comparisons[queue].is_like(it))
                };
                let is_unlike = comparisons[first].is_unlike();
                let like = (first..MAX_QUEUES).find(|queue| is_unlike && is_like(queue));
                like.unwrap_or(first)
            }
            (None, None) => self.lead(path),
        }
    }

    /// Has a path stand for a queue of its own, if there is one left. Returns it.
    fn lead(&mut self, path: u16) -> usize {
        let free = self.leaders.iter().position(Option::is_none);
        if let Some(free) = free {
            self.leaders[free] = Some(path);
        }
        free.unwrap_or(MAX_QUEUES.saturating_sub(1))
    }
}

impl Change {
    const fn since(sample: DelaySample) -> Self {
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
    fn note(&mut self, sample: DelaySample) -> Option<f32> {
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
    fn add(&mut self, square: f32) {
        self.count = self.count.saturating_add(1).min(CHANGES);
        self.value += (square - self.value) / f32::from(self.count);
    }

    /// Returns it if it is of so many changes.
    fn known(&self, least: u16) -> Option<f32> {
        (self.count >= least).then_some(self.value)
    }
}

impl Comparison {
    /// Takes two samples; each delay changes by so much on average, of samples that are so far apart.
    fn add(
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

    /// Whether delays differ as those of two queues do.
    fn differs(&self, weight: f32) -> bool {
        let [one, other] = self.delays;
        let apart = one.variance + other.variance;
        self.far > FAR + FAR_OF_FEW * weight
            && self.above.min(self.far - self.above) > LEAST_SIDE
            && self.difference.variance > LEAST_VARIANCE * apart
    }

    /// Whether it is likely that both go through different queues, but not known.
    fn is_unlike(&self) -> bool {
        self.count >= LIKELY && self.far > FAR
    }

    /// Whether it is likely that both share a queue.
    fn is_like(&self, leader: u16) -> bool {
        self.with == leader && self.count >= LIKELY && self.far < LIKE
    }

    fn is_apart(&self, now: Time, from: u16) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    /// Delay of a queue in µs that grows for a while and is emptied by half then, as TCP's does.
    fn queue_us(at_us: u64, period_us: u64) -> i32 {
        (5_000 + at_us % period_us * 10_000 / period_us) as i32
    }

    /// Noise of up to 0.2 ms, the same in each run.
    fn noise_us(step: u64) -> i32 {
        (step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as i32 % 200
    }

    /// Sends by paths in turn for two seconds, each a millisecond after the one before; `queue` says how long the queue of a
    /// path is then. Returns the queues that the paths count as going through at the end.
    fn run(paths: u16, queue: impl Fn(u16, u64) -> i32) -> (Queues, Vec<usize>) {
        run_every(1_000, paths, queue)
    }

    fn run_every(
        pause_us: u64,
        paths: u16,
        queue: impl Fn(u16, u64) -> i32,
    ) -> (Queues, Vec<usize>) {
        let mut queues = Queues::default();
        let mut through = vec![0; paths.into()];
        for step in 0..2_000 {
            let path = (step % u64::from(paths)) as u16;
            let at_us = step * pause_us;
            let sent_at = Time::from_nanos(at_us * 1_000);
            let delay_us = 1_000 * i32::from(path) + queue(path, at_us) + noise_us(step);
            let sample = DelaySample { sent_at, delay_us };
            let now = sent_at + Duration::from_millis(10);
            through[usize::from(path)] = queues.sample(now, path + 1, sample, 1_400);
        }
        (queues, through)
    }

    #[test]
    fn paths_through_one_queue_are_never_told_apart() {
        for paths in [2, 8] {
            let (queues, through) = run(paths, |_, at_us| queue_us(at_us, 300_000));
            assert!(through.iter().all(|&queue| queue == 0), "{through:?}");
            assert!((queues.shares().flows() - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn paths_through_queues_of_their_own_are_told_apart() {
        let periods_us = [300_000, 410_000, 530_000];
        let of = |path: u16| usize::from(path) % periods_us.len();
        let (queues, through) = run(6, |path, at_us| queue_us(at_us, periods_us[of(path)]));
        for (one, other) in (0..6).flat_map(|one| (0..6).map(move |other| (one, other))) {
            let is_same = through[usize::from(one)] == through[usize::from(other)];
            assert_eq!(is_same, of(one) == of(other), "{one} {other} {through:?}");
        }
        let flows = queues.shares().flows();
        assert!((2.5..=3.0).contains(&flows), "{flows}");
    }

    /// Of a path that stands for a queue the next sample may come soon after another's, and no other soon after its own.
    #[test]
    fn paths_are_compared_whichever_sends_first() {
        let mut queues = Queues::default();
        let mut through = [0; 2];
        let mut send = |path: u16, at_us: u64, period_us| {
            let sent_at = Time::from_nanos(at_us * 1_000);
            let delay_us = queue_us(at_us, period_us);
            let sample = DelaySample { sent_at, delay_us };
            through[usize::from(path) - 1] = queues.sample(sent_at, path, sample, 1_400);
        };
        send(1, 0, 3_000_000);
        for step in 1..500 {
            send(2, step * 20_000, 4_100_000);
            send(1, step * 20_000 + 2_000, 3_000_000);
        }
        assert_ne!(through[0], through[1]);
    }

    #[test]
    fn queue_that_changes_faster_than_samples_follow_tells_nothing() {
        let (_, through) = run(2, |_, at_us| queue_us(at_us, 7_000));
        assert_eq!(through, [0, 0]);
    }

    #[test]
    fn few_queues_are_told_apart_of_many() {
        let (queues, through) = run(8, |path, at_us| {
            queue_us(at_us, 200_000 + 70_000 * u64::from(path))
        });
        assert!(
            through.iter().all(|&queue| queue < MAX_QUEUES),
            "{through:?}"
        );
        assert!(queues.shares().flows() <= MAX_QUEUES as f64);
    }

    #[test]
    fn path_that_is_silent_for_long_stands_for_no_queue() {
        let periods_us = [300_000, 410_000];
        let (mut queues, through) = run(2, |path, at_us| {
            queue_us(at_us, periods_us[usize::from(path)])
        });
        assert_eq!(through, [0, 1]);
        let later = Time::from_nanos(2_000_000_000) + BELIEVED_FOR + BELIEVED_FOR;
        let sample = DelaySample {
            sent_at: later,
            delay_us: 0,
        };
        assert_eq!(queues.sample(later, 2, sample, 1_400), 0);
        assert_eq!(queues.leaders, [Some(2), None, None, None]);
        assert!((queues.shares().of([0].into_iter()) - 1.0).abs() < 1e-9);
    }

    /// A path whose own samples are too far apart to tell of changes is judged by those of all.
    #[test]
    fn path_that_is_seldom_sent_by_is_told_apart() {
        let mut queues = Queues::default();
        let mut send = |path: u16, at_us: u64, period_us| {
            let sent_at = Time::from_nanos(at_us * 1_000);
            let delay_us = queue_us(at_us, period_us);
            queues.sample(sent_at, path, DelaySample { sent_at, delay_us }, 1_400)
        };
        let mut through = 0;
        for step in 0..1_000 {
            send(1, step * 10_000, 3_000_000);
            if step % 7 == 3 {
                through = send(2, step * 10_000 + 2_000, 4_100_000);
            }
        }
        assert_eq!(through, 1);
    }

    #[test]
    fn path_counts_as_through_the_first_queue_that_it_is_not_known_to_miss() {
        let now = Time::from_nanos(1_000_000_000);
        let sample = DelaySample {
            sent_at: now,
            delay_us: 0,
        };
        let mut queues = Queues::default();
        for path in 1..=3 {
            queues.note(now, path, sample);
        }
        queues.leaders = [Some(1), Some(2), None, None];
        assert_eq!(queues.place(now, 2), 0);
        let comparison = &mut queues.paths[2].comparisons[0];
        (comparison.with, comparison.apart_until) = (1, now + BELIEVED_FOR);
        assert_eq!(queues.place(now, 2), 1);
        let [first, second, ..] = &mut queues.paths[2].comparisons;
        first.apart_until = Time::ZERO;
        (first.count, first.far) = (LIKELY, 0.7);
        (second.with, second.count, second.far) = (2, LIKELY, 0.1);
        assert_eq!(queues.place(now, 2), 1, "what is likely");
        queues.paths[2].comparisons[1].far = 0.3;
        assert_eq!(queues.place(now, 2), 0);
        queues.paths[2].comparisons[1].far = 0.1;
        queues.paths[2].comparisons[0].far = 0.4;
        assert_eq!(queues.place(now, 2), 0);
        queues.paths[2].comparisons[0].with = 9;
        assert_eq!(queues.place(now, 2), 0, "the leader is another");
    }

    /// A leader that is found to share an earlier one's queue takes its part of what is sent along.
    #[test]
    fn shares_of_queues_that_are_one_are_joined() {
        let now = Time::from_nanos(1_000_000_000);
        let sample = DelaySample {
            sent_at: now,
            delay_us: 0,
        };
        let mut queues = Queues::default();
        for path in 1..=2 {
            queues.note(now, path, sample);
        }
        queues.leaders = [Some(1), Some(2), None, None];
        queues.shares.count(1, 1_000);
        assert_eq!(queues.place(now, 1), 0);
        assert_eq!(queues.leaders, [Some(1), None, None, None]);
        assert!((queues.shares().of([0].into_iter()) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn answers_of_which_nobody_knows_when_they_were_sent_tell_of_no_delay() {
        let mut queues = Queues::default();
        let totals = crate::Totals::default();
        let mut resolved = Resolved {
            bytes: 1_400,
            newest: Some((Time::from_nanos(1), totals)),
            is_newest_known: false,
        };
        assert_eq!(queues.hear(Time::from_nanos(9), 1, 5, &resolved), 0);
        assert!(queues.paths.is_empty());
        resolved.is_newest_known = true;
        queues.hear(Time::from_nanos(9), 1, 5, &resolved);
        assert_eq!(queues.paths.len(), 1);
    }

    #[test]
    fn changes_count_from_two_milliseconds_on() {
        let sample = |at_us: u64, delay_us| DelaySample {
            sent_at: Time::from_nanos(at_us * 1_000),
            delay_us,
        };
        let mut change = Change::since(sample(0, 0));
        assert_eq!(change.note(sample(1_999, 700)), None);
        assert_eq!(change.note(sample(2_000, 1_000)), Some(500.0));
        assert!((change.gap_us - 2_000.0).abs() < 1e-3, "{}", change.gap_us);
        assert_eq!(change.note(sample(62_001, 0)), None, "too long ago");
        assert_eq!(change.note(sample(66_001, 1_000)), Some(250.0));
    }

    #[test]
    fn eight_comparisons_decide_and_ten_milliseconds_lie_between_two() {
        let mut comparison = Comparison::default();
        let sample = |delay_us| DelaySample {
            sent_at: Time::ZERO,
            delay_us,
        };
        let mut add = |at_us: u64, delay_us| {
            let now = Time::from_nanos(1_000_000_000 + at_us * 1_000);
            comparison.add(now, 1, (sample(delay_us), sample(0)), (1.0, 0.0));
            (comparison.count, now < comparison.apart_until)
        };
        assert_eq!(add(0, 0), (1, false));
        assert_eq!(add(9_999, 50_000), (1, false), "too soon");
        for count in 2..8 {
            let delay_us = if count % 2 == 0 { 50_000 } else { -50_000 };
            assert_eq!(add(u64::from(count) * 10_000, delay_us), (count, false));
        }
        assert_eq!(add(80_000, 50_000), (8, true));
    }

    /// Noise of so many µs at most, of each datagram by itself.
    fn jitter_us(step: u64, most_us: i32) -> i32 {
        let mixed = step
            .wrapping_add(0x51_7c_c1)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33) as i32 % most_us
    }

    /// Radios delay each datagram by itself, and what does so differs as much after the shortest time.
    #[test]
    fn jitter_of_datagrams_is_no_queue_of_a_path() {
        let jitter = |path: u16, at_us, most_us| jitter_us(at_us + u64::from(path), most_us);
        for paths in [2, 16] {
            let beside = run(paths, |path, at_us| {
                queue_us(at_us, 300_000) + jitter(path, at_us, 5_000)
            });
            let alone = run_every(2_900, paths, |path, at_us| jitter(path, at_us, 8_000));
            for (queues, _) in [beside, alone] {
                let shares = queues.shares();
                assert!(shares.flows() < 1.01, "{paths} {shares:?}");
            }
        }
    }

    #[test]
    fn delays_differ_on_both_sides_of_their_mean() {
        let of = |variance| Moments {
            mean: 0.0,
            variance,
        };
        let mut comparison = Comparison {
            count: 100,
            far: 0.8,
            above: 0.4,
            difference: of(2.0),
            delays: [of(1.0); 2],
            ..Comparison::default()
        };
        assert!(comparison.differs(0.01));
        for above in [0.05, 0.75] {
            let one_sided = Comparison {
                above,
                ..comparison
            };
            assert!(!one_sided.differs(0.01), "{above}");
        }
        comparison.difference = of(1.4);
        assert!(!comparison.differs(0.01), "they have something in common");
    }

    #[test]
    fn path_that_has_become_longer_has_no_queue_of_its_own_for_that() {
        let (queues, _) = run(4, |path, at_us| {
            let longer = if path == 3 && at_us > 500_000 {
                5_000
            } else {
                0
            };
            queue_us(at_us, 300_000) + longer
        });
        assert!(queues.shares().flows() < 1.01, "{:?}", queues.shares());
    }

    /// A client's links have queues of their own, and what carries least is the server's.
    #[test]
    fn queues_in_front_of_one_that_is_shared_are_no_bottlenecks() {
        let (queues, _) = run(4, |path, at_us| {
            let own = queue_us(at_us, 110_000 + 40_000 * u64::from(path)) * 8 / 10;
            own + 5 * queue_us(at_us, 900_000)
        });
        assert!(queues.shares().flows() < 1.01, "{:?}", queues.shares());
    }

    #[test]
    fn shares_are_of_the_latest_bytes() {
        let mut shares = QueueShares::default();
        assert!(
            (shares.of([1].into_iter()) - 1.0).abs() < 1e-9,
            "nothing is known"
        );
        for _ in 0..2_000 {
            shares.count(0, 1_400);
            shares.count(2, 1_400);
        }
        assert!((shares.flows() - 2.0).abs() < 1e-2, "{}", shares.flows());
        assert!((shares.of([2].into_iter()) - 0.5).abs() < 1e-2);
        for _ in 0..2_000 {
            shares.count(1, 1_400);
        }
        assert!(shares.flows() < 1.1, "{}", shares.flows());
    }

    #[test]
    fn sets_of_queues_are_never_empty() {
        let mut set = QueueSet::default();
        assert!(set.iter().eq([0]));
        set.insert(2);
        assert!(set.iter().eq([2]));
        set.insert(0);
        assert!(set.iter().eq([0, 2]));
    }

    proptest! {
        /// Peers report delays, and lie.
        #[test]
        fn no_delay_that_a_peer_reports_overflows(
            samples in vec((1u16..80, any::<u64>(), any::<i32>(), any::<u64>()), 1..300),
        ) {
            let mut queues = Queues::default();
            for (path, at, delay_us, bytes) in samples {
                let at = Time::from_nanos(at);
                let sample = DelaySample { sent_at: at, delay_us };
                let queue = queues.sample(at, path, sample, bytes);
                prop_assert!(queue < MAX_QUEUES);
                prop_assert!(queues.paths.len() <= MAX_PATHS);
                let flows = queues.shares().flows();
                prop_assert!((1.0..=MAX_QUEUES as f64).contains(&flows));
            }
        }
    }
}
