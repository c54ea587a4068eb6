//! Rate estimator: a bottleneck that several paths to a peer share, its rate and its queue.

use core::time::Duration;

use cloudburst_wire::Time;

/// Bytes in a row that tell something of the rate.
const BURST_BYTES: usize = 4_000;
/// Delays below this are noise of hosts.
const NOISE: Duration = Duration::from_micros(150);
/// How long the least delay is remembered: clocks drift, and paths change.
const LEAST_AGE: Duration = Duration::from_secs(5);
/// The share of a burst that must get through if it is to tell of a faster link: what a queue
/// turns away takes no time.
const MOST_THROUGH: f64 = 0.75;
/// The least share that is believed: the few that get through a full queue say how long that
/// is, and next to nothing of what else went through meanwhile.
const LEAST_THROUGH: f64 = 0.25;
/// Longer than any queue.
const CLOCK_STEP_US: u32 = 2_000_000;
/// A pause that ends a burst, if it has left the queue by then.
const PAUSE: Duration = Duration::from_millis(1);
/// Half of what was learnt of others' queue is forgotten after this: it may have
/// run empty by then, and only traffic will tell.
const FOREIGN_HALF_LIFE: Duration = Duration::from_millis(500);

/// How much of a sample is taken over that tells of a faster link, and of a slower one.
const FASTER: f64 = 0.25;
const SLOWER: f64 = 0.0625;
/// The same if it seems less than half as fast.
const MUCH_SLOWER: f64 = 0.25;
/// How much faster it is taken for after a report that says nothing of it.
const PROBE_GAIN: f64 = 1.0 / 64.0;
/// And if it was not learnt for so long.
const STALE: Duration = Duration::from_secs(1);

/// Estimates the rate of a bottleneck, and what waits in its queue.
///
/// A datagram's delay is that of an empty path, then the queue that others have
/// filled, then our own bytes that are still in front of it. The second is
/// learnt from datagrams that have little of ours in front of them, the rate
/// from those that come at the end of a burst.
#[derive(Clone, Copy, Debug)]
pub struct RateEstimator {
    /// Time that a byte takes, in ns.
    ns_per_byte: Option<f64>,
    /// The same when it was last learnt, and when that was.
    learnt: f64,
    learnt_at: Time,
    /// When all that we have sent will be through.
    busy_until: Time,
    burst: Burst,
    last_sent: Time,
    /// What others have in the queue, and when that was so.
    foreign: (Duration, Time),
    /// What we had in the queue when the peer last reported.
    own: Duration,
    /// Until then something of ours was in the queue, by what the peer reported.
    own_until: Time,
    /// The least delay of this age and of the one before, in µs from the peer's reference.
    least: [Option<i32>; 2],
    least_since: Time,
}

/// What we have sent since the queue held nothing of ours.
#[derive(Clone, Copy, Debug, Default)]
struct Burst {
    began: Time,
    bytes: usize,
}

/// A datagram of ours, as it is remembered until the peer tells of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct SentDatagram {
    sent_at: Time,
    burst: Burst,
    /// Whether nothing of ours was in the queue before it.
    is_alone: bool,
}

impl RateEstimator {
    /// Begins with nothing known of the bottleneck.
    pub fn new(now: Time) -> Self {
        Self {
            ns_per_byte: None,
            learnt: 0.0,
            learnt_at: now,
            busy_until: now,
            burst: Burst::default(),
            last_sent: now,
            foreign: (Duration::ZERO, now),
            own: Duration::ZERO,
            own_until: now,
            least: [None; 2],
            least_since: now,
        }
    }

    /// Returns how long our own bytes were in the queue when the peer last reported.
    pub fn own_queue(&self) -> Duration {
        self.own
    }

    /// Returns true for a delay that cannot be that of a queue: a clock was set.
    pub fn is_off(&self, delay: i32) -> bool {
        self.least()
            .is_some_and(|least| delay.abs_diff(least) > CLOCK_STEP_US)
    }

    /// Forgets all delays, as a clock was set.
    pub fn forget_delays(&mut self, now: Time) {
        self.least = [None; 2];
        self.foreign = (Duration::ZERO, now);
        self.own = Duration::ZERO;
        (self.busy_until, self.own_until) = (now, now);
    }

    /// Takes over what is known of an empty path that leads through here.
    pub fn inherit(&mut self, other: &Self) {
        for (own, other) in self.least.iter_mut().zip(other.least) {
            *own = own.iter().copied().chain(other).min();
        }
        self.least_since = other.least_since;
    }

    /// Returns bytes per second, if the rate is known.
    pub fn rate(&self) -> Option<f64> {
        self.ns_per_byte.map(|ns| 1e9 / ns)
    }

    /// Returns how long so many bytes take, by default if the rate is not known.
    pub fn time_of(&self, bytes: usize, default_ns_per_byte: f64) -> Duration {
        let ns_per_byte = self.ns_per_byte.unwrap_or(default_ns_per_byte);
        Duration::from_nanos((bytes as f64 * ns_per_byte) as u64)
    }

    fn foreign(&self, now: Time) -> Duration {
        let (queue, at) = self.foreign;
        let halvings = now.since(at).as_nanos();
        let halvings = halvings.checked_div(FOREIGN_HALF_LIFE.as_nanos());
        let halvings = halvings.and_then(|halvings| u32::try_from(halvings).ok());
        let nanos = queue.as_nanos() as u64;
        let left = halvings.and_then(|halvings| nanos.checked_shr(halvings));
        Duration::from_nanos(left.unwrap_or(0))
    }

    /// Returns the least delay of late, in µs from the peer's reference.
    pub fn least(&self) -> Option<i32> {
        match self.least {
            [Some(one), Some(other)] => Some(one.min(other)),
            [one, other] => one.or(other),
        }
    }

    /// Returns how much longer than by the fastest an empty path by this one takes.
    fn handicap(&self, fastest: Option<i32>) -> Duration {
        let micros = self
            .least()
            .zip(fastest)
            .map_or(0, |(own, fastest)| own.saturating_sub(fastest));
        Duration::from_micros(micros.max(0).unsigned_abs().into())
    }

    /// Returns when `bytes` that are sent now are there, compared with others.
    pub fn arrival(
        &self,
        now: Time,
        bytes: usize,
        default_ns_per_byte: f64,
        fastest: Option<i32>,
    ) -> Time {
        self.busy_until.max(now)
            + self.time_of(bytes, default_ns_per_byte)
            + self.foreign(now)
            + self.handicap(fastest)
    }

    /// Returns how much later than by the fastest path a datagram arrives.
    pub fn lag(&self, now: Time, fastest: Option<i32>) -> Duration {
        let queued = self.busy_until.since(now).saturating_add(self.foreign(now));
        queued.saturating_add(self.handicap(fastest))
    }

    /// Takes note of bytes that are sent now, and returns what is to be remembered of them.
    pub fn sent(&mut self, now: Time, bytes: usize, default_ns_per_byte: f64) -> SentDatagram {
        let is_quiet = now >= self.busy_until && now.since(self.last_sent) > PAUSE;
        self.last_sent = now;
        if is_quiet {
            self.burst = Burst {
                began: now,
                bytes: 0,
            };
        }
        let is_alone = is_quiet && now >= self.own_until.max(self.busy_until + self.foreign(now));
        self.burst.bytes = self.burst.bytes.saturating_add(bytes);
        self.busy_until = self.busy_until.max(now) + self.time_of(bytes, default_ns_per_byte);
        SentDatagram {
            sent_at: now,
            burst: self.burst,
            is_alone,
        }
    }

    /// Learns from a datagram that took so long, in µs from the peer's reference, and of those before it
    /// this share got through.
    pub fn learn(&mut self, now: Time, delay: i32, mark: Option<SentDatagram>, through: f64) {
        if now.since(self.least_since) > LEAST_AGE {
            self.least = [None, self.least[0]];
            self.least_since = now;
        }
        self.least[0] = Some(self.least[0].map_or(delay, |least| least.min(delay)));
        let (Some(mark), Some(least)) = (mark, self.least()) else {
            return;
        };
        let queue = Duration::from_micros(delay.saturating_sub(least).max(0).unsigned_abs().into());
        self.own_until = self.own_until.max(mark.sent_at + queue);
        let foreign = self.foreign(now);
        if mark.is_alone {
            // The least delay is that of a short datagram; a long one takes its own time, too.
            let others = queue.saturating_sub(self.time_of(mark.burst.bytes, 0.0));
            let both = foreign.saturating_add(others);
            self.foreign = (both.checked_div(2).unwrap_or_default(), now);
        }
        let sending = mark.sent_at.since(mark.burst.began);
        let own = queue.saturating_sub(foreign);
        self.own = own;
        let is_long = mark.burst.bytes >= BURST_BYTES
            && own > NOISE.max(sending.checked_div(4).unwrap_or_default());
        let bytes_through = mark.burst.bytes as f64 * through.max(LEAST_THROUGH);
        let sample = own.saturating_add(sending).as_nanos() as f64 / bytes_through;
        let is_slow = self.ns_per_byte.is_none_or(|before| sample > before);
        if is_long && (is_slow || through >= MOST_THROUGH) {
            // If it was others who filled the queue, it says little of the rate.
            self.learn_rate(sample, own > foreign);
            self.learnt_at = now;
        } else if now.since(self.learnt_at) > STALE {
            self.probe_faster();
        }
    }

    fn learn_rate(&mut self, sample: f64, is_ours: bool) {
        self.ns_per_byte = Some(match self.ns_per_byte {
            // What others put into the queue meanwhile looks like a slow link: that it is
            // slower is believed reluctantly, that it is faster readily.
            Some(before) if sample > before => {
                let weight = match (is_ours, sample > 2.0 * before) {
                    (false, _) => 0.0,
                    (true, false) => SLOWER,
                    (true, true) => MUCH_SLOWER,
                };
                before + (sample.min(2.0 * before) - before) * weight
            }
            Some(before) => before + (sample - before) * FASTER,
            None => sample,
        });
        self.learnt = self.ns_per_byte.unwrap_or(sample);
    }

    /// Too little was sent to tell anything: perhaps it is faster than it was, up to twice.
    fn probe_faster(&mut self) {
        if let Some(ns_per_byte) = &mut self.ns_per_byte {
            *ns_per_byte = (*ns_per_byte * (1.0 - PROBE_GAIN)).max(self.learnt / 2.0);
        }
    }
}
