//! Loss, round-trip time and jitter of one tunnel, from the fate of its probes.

use std::collections::VecDeque;
use std::time::Duration;

use splitter_policy::histogram::Histogram;

use super::round_trip::{RoundTrip, Stamp, Untimed};

/// An answer that takes longer counts as lost.
pub const LOST_AFTER: Duration = Duration::from_secs(3);

/// More probes than can be sent in [`LOST_AFTER`]; a bound on memory.
const MAX_OUTSTANDING: usize = 512;

/// Over how many probes the share of lost ones is taken.
const WINDOW: u32 = 100;

/// Measures a tunnel's loss, round-trip time and jitter.
#[derive(Debug, Clone, Default)]
pub struct Measure {
    outstanding: VecDeque<Sent>,
    sent: u64,
    lost: u64,
    /// The fates of the last probes that are settled, the newest in the lowest bit, 1 for lost.
    window: u128,
    settled: u32,
    last_round_trip: Option<Duration>,
    /// Smoothed.
    round_trip: Option<Duration>,
    jitter: Duration,
    /// Differences between one round trip and the next that have not been taken.
    differences: Histogram,
    shortest: Shortest,
    /// Answers by what is in their round trips besides the path, in the order of [`Untimed::ALL`].
    untimed: [u64; Untimed::ALL.len()],
    /// Untimed parts of the last one.
    last_untimed: [bool; Untimed::ALL.len()],
}

/// The shortest round trip of late: of these answers and of as many before them, so that one that has
/// become longer is noticed.
#[derive(Debug, Clone, Copy, Default)]
struct Shortest {
    present: Option<Duration>,
    before: Option<Duration>,
    answers: u32,
}

impl Shortest {
    fn note(&mut self, round_trip: Duration) {
        if self.answers == WINDOW {
            *self = Self {
                before: self.present,
                ..Self::default()
            };
        }
        self.answers += 1;
        let least = self.present.map_or(round_trip, |it| it.min(round_trip));
        self.present = Some(least);
    }

    fn least(&self) -> Option<Duration> {
        self.present.into_iter().chain(self.before).min()
    }
}

#[derive(Debug, Clone, Copy)]
struct Sent {
    sequence: u64,
    /// When the agent sent it.
    at: Duration,
    /// When the kernel saw it leave, if it told.
    left: Option<Duration>,
    answered: bool,
}

impl Measure {
    /// A probe was sent.
    pub(super) fn sent(&mut self, sequence: u64, now: Duration) {
        self.settle(now);
        if self.outstanding.len() == MAX_OUTSTANDING {
            self.settle_first();
        }
        self.sent += 1;
        self.outstanding.push_back(Sent {
            sequence,
            at: now,
            left: None,
            answered: false,
        });
    }

    /// The probe that was sent last leaves only now: what else was done meanwhile is no part of its round trip.
    pub(super) fn leaves(&mut self, now: Duration) {
        if let Some(last) = self.outstanding.back_mut() {
            last.at = last.at.max(now);
        }
    }

    /// The kernel saw a probe leave at this time.
    pub(super) fn left(&mut self, sequence: u64, at: Duration) {
        let mut outstanding = self.outstanding.iter_mut();
        if let Some(probe) = outstanding.find(|it| it.sequence == sequence) {
            probe.left = Some(at);
        }
    }

    /// An answer came, of which the request was with the peer for so long, as far as that is known. False if it answers
    /// nothing that is outstanding, or answers it again.
    pub(super) fn answered(
        &mut self,
        sequence: u64,
        arrived: Stamp,
        stay: Option<Duration>,
    ) -> bool {
        let mut outstanding = self.outstanding.iter_mut();
        let Some(probe) = outstanding.find(|it| it.sequence == sequence && !it.answered) else {
            return false;
        };
        probe.answered = true;
        let trip = RoundTrip::new(probe.at, probe.left, arrived, stay);
        let round_trip = trip.whole;
        if let Some(last) = self.last_round_trip {
            // RFC 3550 §6.4.1, with the round trip for the transit time: the sender's clock is the
            // only one there is.
            let difference = round_trip.abs_diff(last);
            self.jitter = (self.jitter * 15 + difference) / 16;
            let difference_ns = u64::try_from(difference.as_nanos()).unwrap_or(u64::MAX);
            self.differences.record(difference_ns);
        }
        self.last_round_trip = Some(round_trip);
        self.shortest.note(trip.path);
        for (count, is_in) in self.untimed.iter_mut().zip(trip.untimed) {
            *count += u64::from(is_in);
        }
        self.last_untimed = trip.untimed;
        // RFC 6298 §2.3.
        self.round_trip = Some(match self.round_trip {
            Some(smoothed) => (smoothed * 7 + round_trip) / 8,
            None => round_trip,
        });
        self.settle(arrived.at);
        true
    }

    /// Decides the fate of what is old enough.
    pub(super) fn settle(&mut self, now: Duration) {
        while let Some(first) = self.outstanding.front() {
            let is_late = now.saturating_sub(first.at) >= LOST_AFTER;
            if !first.answered && !is_late {
                return;
            }
            self.settle_first();
        }
    }

    fn settle_first(&mut self) {
        if let Some(first) = self.outstanding.pop_front() {
            self.lost += u64::from(!first.answered);
            self.window = self.window << 1 | u128::from(!first.answered);
            self.settled = (self.settled + 1).min(WINDOW);
        }
    }

    /// Probes that were sent.
    #[must_use]
    pub fn sent_total(&self) -> u64 {
        self.sent
    }

    /// Probes that were not answered in time.
    #[must_use]
    pub fn lost_total(&self) -> u64 {
        self.lost
    }

    /// The lost share of the last 100 probes, 0 to 1; `None` before any is settled.
    #[must_use]
    pub fn loss(&self) -> Option<f64> {
        let recent = self.window & ((1 << self.settled) - 1);
        (self.settled > 0).then(|| f64::from(recent.count_ones()) / f64::from(self.settled))
    }

    /// The smoothed round-trip time, with the queue in front of the tunnel; `None` before the first answer.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }

    /// The shortest round-trip time of the last 100 to 200 answers, of the path alone; `None` before the first.
    #[must_use]
    pub fn shortest_round_trip(&self) -> Option<Duration> {
        self.shortest.least()
    }

    /// Counts answers by what is in their round trips besides the path, in the order of [`Untimed::ALL`].
    #[must_use]
    pub fn untimed_totals(&self) -> [u64; Untimed::ALL.len()] {
        self.untimed
    }

    /// Lists what the last round trip had in it besides the path.
    pub fn last_untimed(&self) -> impl Iterator<Item = Untimed> {
        let each = Untimed::ALL.into_iter().zip(self.last_untimed);
        each.filter_map(|(part, is_in)| is_in.then_some(part))
    }

    /// The smoothed difference between one round trip and the next; `None` before the first
    /// answer.
    #[must_use]
    pub fn jitter(&self) -> Option<Duration> {
        self.round_trip.map(|_| self.jitter)
    }

    /// Takes the differences between one round trip and the next, since they were last taken.
    pub(super) fn take_differences(&mut self) -> Histogram {
        std::mem::take(&mut self.differences)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn shortest_round_trip_is_forgotten_when_the_path_has_become_longer() {
        let at = |count| {
            let fate = |sequence| Some(ms(if sequence == 7 { 9 } else { 10 + sequence / 50 }));
            run(count, fate).shortest_round_trip()
        };
        assert_eq!(at(0), None);
        assert_eq!(at(6), Some(ms(10)));
        assert_eq!(at(200), Some(ms(9)));
        assert_eq!(at(201), Some(ms(12)));
    }

    /// Sends a probe every 100 ms; each takes what `fate` says, or is lost.
    fn run(count: u64, fate: impl Fn(u64) -> Option<Duration>) -> Measure {
        let mut measure = Measure::default();
        for sequence in 1..=count {
            let now = ms(100 * sequence);
            measure.sent(sequence, now);
            if let Some(round_trip) = fate(sequence) {
                assert!(measure.answered(sequence, (now + round_trip).into(), None));
            }
        }
        measure.settle(ms(100 * count) + LOST_AFTER);
        measure
    }

    #[test]
    fn every_fourth_lost_is_a_quarter() {
        let measure = run(400, |sequence| (sequence % 4 != 0).then_some(ms(20)));
        assert_eq!((measure.sent_total(), measure.lost_total()), (400, 100));
        assert_eq!(measure.loss(), Some(0.25));
        assert_eq!(measure.round_trip(), Some(ms(20)));
        assert_eq!(measure.jitter(), Some(Duration::ZERO));
    }

    #[test]
    fn only_the_last_hundred_count_for_the_share() {
        let measure = run(300, |sequence| (sequence > 200).then_some(ms(1)));
        assert_eq!(measure.loss(), Some(0.0));
        assert_eq!(measure.lost_total(), 200);
        assert_eq!(run(0, |_| None).loss(), None);
        assert_eq!(run(3, |_| None).loss(), Some(1.0));
    }

    #[test]
    fn jitter_tends_to_the_mean_difference() {
        // 20 and 24 ms by turns: each differs from the one before by 4 ms.
        let measure = run(400, |sequence| Some(ms(20 + 4 * (sequence % 2))));
        let jitter = measure.jitter().unwrap();
        assert!((ms(3)..=ms(4)).contains(&jitter), "{jitter:?}");
        let round_trip = measure.round_trip().unwrap();
        assert!((ms(21)..=ms(23)).contains(&round_trip), "{round_trip:?}");
    }

    #[test]
    fn each_difference_is_taken_once() {
        // 20, 20, 24, 20 and 20 ms; the first has nothing to differ from.
        let mut measure = run(5, |sequence| Some(ms(20 + 4 * u64::from(sequence == 3))));
        let taken = measure.take_differences();
        assert_eq!(taken.sum_ns, 8_000_000);
        assert_eq!(taken.buckets.iter().sum::<u64>(), 4);
        assert_eq!(taken.buckets[0], 2, "two did not differ");
        assert_eq!(measure.take_differences(), Histogram::EMPTY);
    }

    #[test]
    fn answers_count_once_and_only_if_asked_for() {
        let mut measure = Measure::default();
        measure.sent(1, ms(0));
        assert!(!measure.answered(2, ms(1).into(), None));
        assert!(measure.answered(1, ms(1).into(), None));
        assert!(!measure.answered(1, ms(2).into(), None));
        measure.sent(2, ms(100));
        measure.settle(ms(100) + LOST_AFTER);
        assert!(!measure.answered(2, (ms(101) + LOST_AFTER).into(), None));
        assert_eq!(measure.lost_total(), 1);
    }

    #[test]
    fn round_trip_begins_when_the_probe_leaves() {
        let mut measure = Measure::default();
        measure.leaves(ms(1));
        measure.sent(1, ms(2));
        measure.leaves(ms(5));
        assert!(measure.answered(1, ms(12).into(), None));
        assert_eq!(measure.shortest_round_trip(), Some(ms(7)));
    }

    #[test]
    fn shortest_is_of_the_path_and_the_smoothed_one_has_the_queue_as_well() {
        let mut measure = Measure::default();
        measure.sent(1, ms(0));
        measure.left(1, ms(30));
        measure.left(2, ms(1));
        assert!(measure.answered(1, Stamp::kernels(ms(51)), Some(ms(1))));
        assert_eq!(measure.shortest_round_trip(), Some(ms(20)));
        assert_eq!(measure.round_trip(), Some(ms(50)));
        assert_eq!(measure.untimed_totals(), [0; 4]);
        assert_eq!(measure.last_untimed().next(), None);
    }

    #[test]
    fn what_nobody_told_is_counted_answer_by_answer() {
        let mut measure = run(3, |_| Some(ms(5)));
        measure.sent(4, ms(1_000));
        measure.left(4, ms(1_001));
        assert!(measure.answered(4, Stamp::kernels(ms(1_010)), Some(ms(10))));
        assert_eq!(measure.untimed_totals(), [3, 3, 3, 1]);
        let last: Vec<_> = measure.last_untimed().collect();
        assert_eq!(last, [Untimed::ImpossibleStay]);
        assert_eq!(measure.shortest_round_trip(), Some(ms(5)));
    }

    #[test]
    fn memory_is_bounded_at_any_rate() {
        let mut measure = Measure::default();
        for sequence in 0..10_000 {
            measure.sent(sequence, ms(1));
        }
        assert_eq!(measure.outstanding.len(), MAX_OUTSTANDING);
        assert_eq!(measure.lost_total(), 10_000 - MAX_OUTSTANDING as u64);
    }
}
