//! Queues of others that come and go while we send: the sign that slow start is not alone.
//!
//! Our own queue comes and goes as well, where a window is full and nothing leaves for a while. What was
//! sent meanwhile tells the two apart: a bottleneck that was slow enough to let our queue grow is too slow
//! to drain it while we go on sending.

use core::time::Duration;

use cloudburst_wire::Time;

/// A queue that passes by is longer than so many of our datagrams.
const PASSING_DATAGRAMS: u32 = 4;
/// A sample is not held against one whose empty path takes so much longer: a queue may have stood there for as long as
/// it is known, or it is another way.
const BASE_PART: u32 = 16;
/// How much more than what would have drained was sent, if the queue was others': times, and four datagrams.
const MARGIN: f64 = 1.25;
const SLACK_BYTES: f64 = 6_000.0;

/// Sample of a queue, by a datagram.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    /// When the datagram was sent, and how many bytes of ours before it, by all paths.
    pub(super) sent_at: Time,
    pub(super) sent_before: u64,
    /// The round trip of the empty path.
    pub(super) base: Duration,
    /// How long it stood in queues.
    pub(super) queue: Duration,
}

impl Sample {
    /// The seconds between the times at which both have left the bottleneck, the other one later; nothing if that
    /// cannot have been the same one.
    fn served_until(&self, later: &Self) -> Option<f64> {
        let sent = later.sent_at.since(self.sent_at).as_secs_f64();
        let served = sent + later.queue.as_secs_f64() - self.queue.as_secs_f64();
        (sent > 0.0 && served > 0.0 && self.is_comparable(later)).then_some(served)
    }

    /// Bytes that were sent from this one on until the other.
    fn bytes_until(&self, later: &Self) -> f64 {
        later.sent_before.saturating_sub(self.sent_before) as f64
    }

    /// Whether both are of paths of about the same length.
    fn is_comparable(&self, other: &Self) -> bool {
        let shorter = self.base.min(other.base);
        let part = shorter.checked_div(BASE_PART).unwrap_or_default();
        self.base.abs_diff(other.base) <= part
    }
}

/// A queue that comes and goes within a round.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PassingQueue {
    stage: Stage,
    /// The last sample of an empty queue before it came, and that of the longest queue since.
    empty: Sample,
    longest: Sample,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Stage {
    /// Nobody knows how it began.
    #[default]
    Unknown,
    /// Queues are empty.
    Empty,
    /// One stands now.
    Met,
    /// It is gone again, and was not ours.
    Passed,
}

impl PassingQueue {
    /// Follows the queue. The sample that ends a round is one of the next; delays below the threshold are noise, and
    /// a datagram takes so long at our rate.
    pub(super) fn watch(
        &mut self,
        ends: bool,
        sample: Sample,
        threshold: Duration,
        datagram: Duration,
    ) {
        let is_empty = sample.queue < threshold.checked_div(2).unwrap_or_default();
        let passing = datagram.saturating_mul(PASSING_DATAGRAMS);
        let has_met = sample.queue > threshold.max(passing);
        self.stage = match self.stage {
            _ if ends && is_empty => Stage::Empty,
            Stage::Empty if has_met => Stage::Met,
            Stage::Empty => Stage::Empty,
            _ if ends => Stage::Unknown,
            Stage::Met if is_empty => self.after(&sample),
            Stage::Unknown if is_empty => Stage::Empty,
            Stage::Passed => Stage::Empty,
            other => other,
        };
        if is_empty && self.stage != Stage::Met {
            (self.empty, self.longest) = (sample, sample);
        } else if sample.queue > self.longest.queue {
            self.longest = sample;
        }
    }

    /// Returns whether a queue came and went with the last sample that was not ours.
    pub(super) fn has_passed(&self) -> bool {
        self.stage == Stage::Passed
    }

    /// The stage after a queue of which a sample tells that it is gone.
    fn after(&self, sample: &Sample) -> Stage {
        let came = self.empty.served_until(&self.longest);
        let Some((came, went)) = came.zip(self.longest.served_until(sample)) else {
            return Stage::Met;
        };
        // What the bottleneck carries in the time, if the queue was ours.
        let carried = went * self.empty.bytes_until(&self.longest) / came;
        if self.longest.bytes_until(sample) > MARGIN * carried + SLACK_BYTES {
            Stage::Passed
        } else {
            Stage::Empty
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THRESHOLD: Duration = Duration::from_millis(4);
    const DATAGRAM: Duration = Duration::from_micros(100);

    /// A sample: when its datagram was sent, in ms, kilobytes before it, and its delay of queues in ms.
    type Told = (u64, u64, u64);

    /// Whether any of these samples says that others' queue has passed; the base round trips are in ms.
    fn has_passed(samples: &[(Told, u64)]) -> bool {
        let mut queue = PassingQueue::default();
        let mut found = false;
        for (number, &((sent_ms, sent_kb, queue_ms), base_ms)) in samples.iter().enumerate() {
            let sample = Sample {
                sent_at: Time::ZERO + Duration::from_millis(sent_ms),
                sent_before: sent_kb * 1_000,
                base: Duration::from_millis(base_ms),
                queue: Duration::from_millis(queue_ms),
            };
            queue.watch(number == 0, sample, THRESHOLD, DATAGRAM);
            found |= queue.has_passed();
        }
        found
    }

    /// By a path of 50 ms.
    fn by_one_path(samples: &[Told]) -> bool {
        let samples: Vec<_> = samples.iter().map(|&told| (told, 50)).collect();
        has_passed(&samples)
    }

    #[test]
    fn queue_that_goes_while_we_send_as_before_is_others() {
        // 10 kB in each millisecond, all along.
        assert!(by_one_path(&[
            (0, 0, 0),
            (10, 100, 6),
            (15, 150, 4),
            (20, 200, 0)
        ]));
    }

    #[test]
    fn queue_that_goes_while_nothing_is_sent_is_ours() {
        // 20 kB in each millisecond into a link of 12.5 until 6 ms of it stand there; then all in flight is out.
        assert!(!by_one_path(&[(0, 0, 0), (10, 200, 6), (18, 200, 0)]));
        assert!(
            !by_one_path(&[(0, 0, 0), (10, 200, 6), (18, 225, 0)]),
            "nor if so much is sent as has drained in the time"
        );
        assert!(
            by_one_path(&[(0, 0, 0), (10, 200, 6), (18, 300, 0)]),
            "four times as much is more than that"
        );
    }

    #[test]
    fn path_that_never_was_empty_tells_nothing() {
        let met = [((0, 0, 0), 50), ((10, 100, 6), 50)];
        let gone = |base_ms| [&met[..], &[((20, 200, 0), base_ms)]].concat();
        assert!(has_passed(&gone(50)));
        assert!(!has_passed(&gone(56)));
    }

    #[test]
    fn what_arrives_before_what_was_sent_earlier_has_met_another_queue() {
        assert!(!by_one_path(&[(0, 0, 0), (10, 100, 6), (12, 200, 0)]));
        assert!(
            !by_one_path(&[(10, 100, 0), (8, 80, 6), (30, 300, 0)]),
            "nor does what was sent before the queue came say how fast it grew"
        );
    }
}
