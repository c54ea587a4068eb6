//! Pacing: keeps what is sent to a rate.

use core::time::Duration;

use cloudburst_wire::Time;

use crate::MIN_DATAGRAM_BYTES;

/// Paces what is sent by a leaky bucket: what has been sent takes its time to run out, and no
/// more than a little may be in it.
#[derive(Clone, Copy, Debug)]
pub struct Pacer {
    bytes_per_s: f64,
    /// When all that was sent has run out.
    empty_at: Time,
    /// Bytes that may always be in the bucket.
    least_depth_bytes: usize,
    /// It is full, and a quantum has to run out before more is sent.
    is_resting: bool,
}

/// What may be in the bucket, as time at the rate. Timers of hosts come late by
/// so much, and must not cost rate.
const DEPTH: Duration = Duration::from_micros(250);
/// And at least so many bytes, unless said otherwise: a train of datagrams for one call of the
/// kernel.
const LEAST_DEPTH_BYTES: usize = 48_000;

/// The part of a full bucket that runs out before more is sent, as time at the rate: a host that is
/// woken for each datagram does little else, and short queues overflow by more.
const QUANTUM: Duration = Duration::from_micros(1_500);
/// And no more than this share of the depth: the rest keeps the link busy meanwhile.
const MOST_QUANTUM: f64 = 0.75;
/// A bucket is full that has no place for half a datagram: symbols are cut somewhat shorter than datagrams may be, and what
/// that leaves should not be filled up with one more.
const LEAST_CREDIT_BYTES: usize = MIN_DATAGRAM_BYTES / 2;

impl Pacer {
    /// Starts with an empty bucket at this rate.
    pub fn new(now: Time, bytes_per_s: f64) -> Self {
        Self {
            bytes_per_s,
            empty_at: now,
            least_depth_bytes: LEAST_DEPTH_BYTES,
            is_resting: false,
        }
    }

    /// Sets the rate. If it is faster now, what is in the bucket runs out sooner. If it is slower, what was
    /// sent at the old rate does not take longer.
    pub fn set_rate(&mut self, now: Time, bytes_per_s: f64) {
        self.set_pace(now, bytes_per_s, self.least_depth_bytes);
    }

    /// Sets the rate, and the bytes that may always be in the bucket: bursts are no longer, where time does not ask for
    /// it. Where more than these are in it now, a quantum has to run out first.
    pub fn set_pace(&mut self, now: Time, bytes_per_s: f64, least_depth_bytes: usize) {
        let was_resting = self.rests(now);
        let bytes_per_s = bytes_per_s.max(1.0);
        let left = self.empty_at.since(now);
        self.empty_at = now + left.mul_f64((self.bytes_per_s / bytes_per_s).min(1.0));
        (self.bytes_per_s, self.least_depth_bytes) = (bytes_per_s, least_depth_bytes);
        self.is_resting = was_resting || self.is_full(now);
    }

    /// Returns the rate in bytes per second.
    pub fn bytes_per_s(&self) -> f64 {
        self.bytes_per_s
    }

    /// Returns how long `bytes` take.
    pub fn time_of(&self, bytes: usize) -> Duration {
        Duration::from_nanos((bytes as f64 / self.bytes_per_s * 1e9) as u64)
    }

    /// Returns the bytes that may be in the bucket.
    pub fn depth_bytes(&self) -> usize {
        (self.depth().as_secs_f64() * self.bytes_per_s) as usize
    }

    fn depth(&self) -> Duration {
        DEPTH.max(self.time_of(self.least_depth_bytes))
    }

    /// Returns the time from which on something may be sent, which is over if there is credit now.
    pub fn ready_at(&self) -> Time {
        let depth = self.depth();
        let quantum = QUANTUM.min(depth.mul_f64(MOST_QUANTUM));
        // Who waited for a quantum to run out of a bucket that is not full would be woken for what could have left before.
        let place = if self.is_resting {
            quantum
        } else {
            quantum.min(self.time_of(LEAST_CREDIT_BYTES))
        };
        let ahead = depth.saturating_sub(place);
        Time::from_nanos(
            self.empty_at
                .as_nanos()
                .saturating_sub(ahead.as_nanos() as u64),
        )
    }

    /// Returns the bytes that may be sent now; what is sent at once may exceed it by a datagram. A quantum may leave in
    /// several trains, one for each path.
    pub fn credit(&self, now: Time) -> usize {
        if now < self.ready_at() {
            return 0;
        }
        // Never nothing when it is ready, however the division comes out.
        ((self.left(now).as_secs_f64() * self.bytes_per_s) as usize).max(1)
    }

    /// Puts what is sent into the bucket.
    pub fn sent(&mut self, now: Time, bytes: usize) {
        let was_resting = self.rests(now);
        self.empty_at = self.empty_at.max(now) + self.time_of(bytes);
        self.is_resting = was_resting || self.is_full(now);
    }

    fn rests(&self, now: Time) -> bool {
        self.is_resting && now < self.ready_at()
    }

    fn is_full(&self, now: Time) -> bool {
        self.left(now) < self.time_of(LEAST_CREDIT_BYTES)
    }

    /// The place that is left in the bucket, as time at the rate. What was not sent meanwhile is not made up for: a train
    /// as long as that would find no place in a short queue.
    fn left(&self, now: Time) -> Duration {
        let filled = self.empty_at.since(now);
        self.depth().saturating_sub(filled)
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    #[test]
    fn a_new_rate_counts_at_once() {
        let mut pacer = Pacer::new(Time::ZERO, 1e3);
        pacer.sent(Time::ZERO, 1_000_000);
        pacer.set_rate(Time::ZERO, 1e6);
        let soon = Time::ZERO + Duration::from_secs(1);
        assert!(pacer.ready_at() < soon);
        assert_eq!(pacer.credit(soon), LEAST_DEPTH_BYTES);
    }

    #[test]
    fn a_pause_earns_no_longer_a_burst_however_long_it_is() {
        let mut pacer = Pacer::new(Time::ZERO, 1e6);
        pacer.set_pace(Time::ZERO, 1e6, 2_000);
        pacer.sent(Time::ZERO, 2_000);
        let later = Time::ZERO + Duration::from_secs(9);
        assert_eq!(pacer.credit(later), 2_000);
    }

    /// A message over several paths leaves in trains of some datagrams: a host that waited after each would be woken for
    /// each.
    #[test]
    fn a_quantum_leaves_together_in_however_many_trains() {
        let mut pacer = Pacer::new(Time::ZERO, 1e7);
        pacer.set_pace(Time::ZERO, 1e7, 9_600);
        let (mut now, mut wakes, mut trains) = (Time::ZERO, 0, 0);
        while trains < 400 {
            if pacer.credit(now) > 0 {
                pacer.sent(now, 2_400);
                trains += 1;
            } else {
                now = pacer.ready_at();
                wakes += 1;
            }
        }
        assert!((120..=140).contains(&wakes), "{wakes} for {trains}");
    }

    /// A slower rate may leave a bucket fuller than full that had a place for more.
    #[test]
    fn who_has_no_credit_is_told_to_wait() {
        let mut pacer = Pacer::new(Time::ZERO, 1e6);
        pacer.set_pace(Time::ZERO, 1e6, 9_600);
        pacer.sent(Time::ZERO, 6_000);
        pacer.set_pace(Time::ZERO, 1e6, 1_200);
        assert!(pacer.credit(Time::ZERO) == 0 && pacer.ready_at() > Time::ZERO);
    }

    /// Things that happen to a pacer: time passes, or it is ready; so many datagrams are to be sent; it gets another rate and depth.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Pass(Duration),
        Await,
        Send(usize),
        Pace(f64, usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let micros = prop_oneof![0u64..400, 0u64..50_000];
        let rate = (4.0..9.0).prop_map(|power| 10f64.powf(power));
        prop_oneof![
            3 => micros.prop_map(|it| Step::Pass(Duration::from_micros(it))),
            4 => Just(Step::Await),
            8 => (1usize..20).prop_map(Step::Send),
            1 => (rate, DATAGRAM..60_000).prop_map(|(rate, depth)| Step::Pace(rate, depth)),
        ]
    }

    const DATAGRAM: usize = MIN_DATAGRAM_BYTES;

    proptest! {
        /// A host that is told to wait has nothing to send, and one that is not may send at once. What was sent within any
        /// time is no more than the rate gives in it, a bucket, and a datagram.
        #[test]
        fn who_has_credit_is_ready_and_nobody_sends_more_than_the_rate_and_a_bucket(
            steps in vec(step(), 1..200),
        ) {
            let mut now = Time::ZERO + Duration::from_secs(1);
            let mut pacer = Pacer::new(now, 1e6);
            let mut sent: Vec<(Time, usize)> = Vec::new();
            for step in steps {
                match step {
                    Step::Pass(time) => now = now + time,
                    Step::Await => now = now.max(pacer.ready_at()),
                    Step::Send(datagrams) => {
                        let credit = pacer.credit(now).div_ceil(DATAGRAM);
                        let bytes = datagrams.min(credit) * DATAGRAM;
                        if bytes > 0 {
                            pacer.sent(now, bytes);
                            sent.push((now, bytes));
                        }
                    }
                    Step::Pace(bytes_per_s, depth) => {
                        pacer.set_pace(now, bytes_per_s, depth);
                        sent.clear();
                    }
                }
                let (credit, ready_at) = (pacer.credit(now), pacer.ready_at());
                prop_assert_eq!(credit > 0, ready_at <= now, "{} bytes, {:?} at {:?}", credit, ready_at, now);
                let mut bytes = 0;
                for &(since, more) in sent.iter().rev() {
                    bytes += more;
                    let given = pacer.bytes_per_s() * now.since(since).as_secs_f64();
                    // Each time is rounded down to a nanosecond.
                    let rounded = 1.0 + 1e-9 * pacer.bytes_per_s() * sent.len() as f64;
                    let most = given + rounded + (pacer.depth_bytes() + DATAGRAM) as f64;
                    prop_assert!(bytes as f64 <= most, "{} bytes since {:?}, not {}", bytes, since, most);
                }
            }
        }
    }

    #[test]
    fn keeps_the_rate() {
        let mut pacer = Pacer::new(Time::ZERO, 1e6);
        let mut now = Time::ZERO;
        let mut sent = 0;
        while now < Time::ZERO + Duration::from_secs(1) {
            if pacer.credit(now) > 0 {
                pacer.sent(now, 1_000);
                sent += 1_000;
            } else {
                now = pacer.ready_at().max(now + Duration::from_nanos(1));
            }
        }
        let most = 1_000_000 + LEAST_DEPTH_BYTES + 2_000;
        assert!((1_000_000..=most).contains(&sent), "{sent}");
    }
}
