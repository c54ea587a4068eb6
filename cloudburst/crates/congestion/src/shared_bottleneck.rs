//! Shared-bottleneck detection (RFC 8382): finds out which paths to a peer share a bottleneck.
//!
//! Ports that networks choose paths by (ECMP) tell nothing of where they lead.
//! So, when nothing waits to be sent, a short train of long pings goes by one path,
//! and a short ping by each other before and after it. Those that the train
//! delays go through the same queue. What others have in that queue hardly changes
//! meanwhile, and answers tell of the way there alone.

use core::time::Duration;

use cloudburst_wire::Time;

/// Paths to a peer that are told apart, at most.
pub const MAX_PATHS: usize = 64;

/// Pings of a train, at first and at most: as many as make a queue that is still
/// there when the last short ping comes, for hosts take their time to send.
const PROBE_TRAINS: [usize; 2] = [4, 16];
/// How much later the end of a train must be than its beginning to tell anything: hosts, too,
/// take their time to send a train.
const LEAST_DELAY_US: i32 = 300;
/// And how much of it must be answered: what a full queue turned away delays nobody.
const LEAST_ANSWERED_PERCENT: usize = 75;
/// Ways that the train has delayed by this much of what it was delayed itself share its queue.
const SHARED_PERCENT: i64 = 60;
/// And to be long enough.
const ENOUGH_DELAY_US: i32 = 1_500;
/// When the paths are examined again, at the earliest and at the latest: less and less often,
/// whatever comes out, for a detection costs more than a message.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(60)];
/// How much longer each pause is than the one before, and if a detection has agreed with the
/// one before.
const LONGER: u32 = 4;
const MUCH_LONGER: u32 = 64;
/// How long a train may stand in a queue.
const STAY: Duration = Duration::from_millis(5);
/// Of a hundred pairs of paths, those of which two detections may say different things.
const ODD_PAIRS_PERCENT: usize = 10;

/// Parts of a detection, by which its pings are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Short pings before the train.
    Before,
    /// The train, and short pings after it.
    After,
}

/// Shared-bottleneck detector (RFC 8382): the detection under way, and the result of the last one.
#[derive(Debug)]
pub struct SharedBottleneckDetector {
    /// Tells detections apart: pongs of an earlier one may come late.
    number: u32,
    state: State,
    /// Pings of a train.
    probe_train: usize,
    next_at: Time,
    pause: Duration,
    /// By path: the group that it was found to be in, this time and the last.
    found: Vec<Option<u16>>,
    last_found: Vec<Option<u16>>,
    before: Vec<Option<i32>>,
    after: Vec<Option<i32>>,
    /// Pings of the train that were answered.
    answered: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No detection is under way.
    Resting,
    /// The train went by this path, and answers may come until then.
    Waiting { loaded: usize, until: Time },
}

/// Steps of a detection: what is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DetectorStep {
    /// It is not time yet, or answers may come.
    Nothing,
    /// Send a train by this path, and pings around it by all.
    SendTrain(usize),
    /// Twice the same was found: the groups are valid.
    Done,
}

impl SharedBottleneckDetector {
    /// Knows nothing yet of a peer's paths.
    pub fn new(now: Time) -> Self {
        Self {
            number: 0,
            state: State::Resting,
            probe_train: PROBE_TRAINS[0],
            next_at: now,
            pause: PAUSES[0],
            found: Vec::new(),
            last_found: Vec::new(),
            before: Vec::new(),
            after: Vec::new(),
            answered: 0,
        }
    }

    /// Forgets what was found: the paths are not those that they were.
    pub fn restart(&mut self, now: Time) {
        let (number, probe_train) = (self.number, self.probe_train);
        *self = Self {
            number,
            probe_train,
            next_at: now + PAUSES[0],
            ..Self::new(now)
        };
    }

    /// Returns how many pings a train has.
    pub fn probe_train(&self) -> usize {
        self.probe_train
    }

    /// Returns the nonce of a part's pings.
    pub fn nonce(&self, phase: Phase) -> u64 {
        1 << 63 | u64::from(self.number) << 1 | u64::from(phase == Phase::After)
    }

    /// Takes a pong of the path of this index, whose ping was delayed by so much.
    pub fn take(&mut self, nonce: u64, path: usize, delay: i32) {
        let list = if nonce == self.nonce(Phase::Before) {
            &mut self.before
        } else if nonce == self.nonce(Phase::After) {
            &mut self.after
        } else {
            return;
        };
        if let Some(entry) = list.get_mut(path) {
            // Of a train the last counts.
            *entry = Some(entry.map_or(delay, |earlier| earlier.max(delay)));
            let is_train = matches!(self.state, State::Waiting { loaded, .. } if loaded == path);
            let is_of_train = is_train && nonce == self.nonce(Phase::After);
            self.answered = self.answered.saturating_add(is_of_train.into());
        }
    }

    /// Returns when [`step`](Self::step) has something to do.
    pub fn next_due(&self) -> Time {
        match self.state {
            State::Resting => self.next_at,
            State::Waiting { until, .. } => until,
        }
    }

    /// Says what is to be done now, with `live` telling the paths that deliver.
    pub fn step(&mut self, now: Time, ack_timeout: Duration, live: &[bool]) -> DetectorStep {
        if now < self.next_due() {
            return DetectorStep::Nothing;
        }
        match self.state {
            State::Waiting { loaded, .. } if self.found.len() == live.len() => self.judge(loaded),
            _ => {
                self.found.clear();
                self.found.resize(live.len(), None);
            }
        }
        let missing =
            (0..live.len()).find(|&path| live[path] && self.found.get(path) == Some(&None));
        let Some(loaded) = missing else {
            return self.finish(now);
        };
        self.number = self.number.wrapping_add(1);
        for list in [&mut self.before, &mut self.after] {
            list.clear();
            list.resize(live.len(), None);
        }
        let until = now + ack_timeout.saturating_mul(2).saturating_add(STAY);
        self.answered = 0;
        self.state = State::Waiting { loaded, until };
        DetectorStep::SendTrain(loaded)
    }

    /// Which paths the train has delayed.
    fn judge(&mut self, loaded: usize) {
        let delayed = |path: usize| {
            let before = (*self.before.get(path)?)?;
            Some((*self.after.get(path)?)?.saturating_sub(before))
        };
        let is_whole = percent(self.answered) >= of(LEAST_ANSWERED_PERCENT, self.probe_train);
        let probe_train = delayed(loaded).filter(|&delay| is_whole && delay >= LEAST_DELAY_US);
        let is_short = probe_train.is_none_or(|delay| delay < ENOUGH_DELAY_US);
        if is_short && self.probe_train < PROBE_TRAINS[1] {
            self.probe_train = self.probe_train.saturating_mul(2);
            self.found.fill(None);
            return;
        }
        let mut shares = [false; MAX_PATHS];
        for (path, shares) in (0..self.found.len()).zip(&mut shares) {
            *shares = probe_train
                .zip(delayed(path))
                .is_some_and(|(probe_train, own)| {
                    // Of 32 bits each: neither product comes near 64.
                    let least = i64::from(probe_train).saturating_mul(SHARED_PERCENT);
                    i64::from(own).saturating_mul(100) > least
                });
        }
        // What is missing of one train, as pings get lost, the next may tell: it joins a group.
        let known = self.found.iter().zip(shares);
        let known = known.filter(|(_, shares)| *shares).find_map(|it| *it.0);
        let group = known.unwrap_or(loaded as u16);
        for (found, shares) in self.found.iter_mut().zip(shares) {
            if shares && found.is_none() {
                *found = Some(group);
            }
        }
        self.found[loaded] = Some(group);
    }

    fn finish(&mut self, now: Time) -> DetectorStep {
        self.state = State::Resting;
        let agrees = agree(&self.found, &self.last_found);
        self.last_found.clone_from(&self.found);
        self.next_at = now + self.pause;
        let longer = if agrees { MUCH_LONGER } else { LONGER };
        self.pause = self.pause.saturating_mul(longer).min(PAUSES[1]);
        if agrees {
            DetectorStep::Done
        } else {
            DetectorStep::Nothing
        }
    }

    /// Returns true for a path that is pinged around a train: those of which it is not known yet what they
    /// share, and of each group that was found two, as pings get lost.
    pub fn takes_part(&self, path: usize) -> bool {
        let group = self.group(path);
        let earlier = self.found.iter().take(path);
        group.is_none() || earlier.filter(|found| **found == group).count() < 2
    }

    /// Returns the group that a path is in: the same number for those that share a
    /// bottleneck.
    pub fn group(&self, path: usize) -> Option<u16> {
        self.found.get(path).copied().flatten()
    }
}

/// Whether two detections say nearly the same of which paths belong together.
fn agree(one: &[Option<u16>], other: &[Option<u16>]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let known: Vec<(u16, u16)> = one
        .iter()
        .zip(other)
        .filter_map(|(one, other)| Some(((*one)?, (*other)?)))
        .collect();
    let both = one
        .iter()
        .flatten()
        .count()
        .min(other.iter().flatten().count());
    let known = &known;
    let pairs = (0..known.len()).flat_map(|a| (0..a).map(move |b| (known[a], known[b])));
    let (odd, all) = pairs.fold((0, 0), |(odd, all), (a, b)| {
        let differs = (a.0 == b.0) != (a.1 == b.1);
        // At most as many as there are pairs of paths.
        let odd = usize::saturating_add(odd, differs.into());
        (odd, usize::saturating_add(all, 1))
    });
    known.len() == both && percent(odd) <= of(ODD_PAIRS_PERCENT, all)
}

/// A count as it is compared with [`of`].
fn percent(count: usize) -> usize {
    count.saturating_mul(100)
}

/// So many per cent of a count.
fn of(percent: usize, count: usize) -> usize {
    percent.saturating_mul(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    const ACK_TIMEOUT: Duration = Duration::from_millis(1);

    /// Examines paths of which `truth` tells the bottleneck.
    fn shared_bottleneck(
        shared_bottleneck: &mut SharedBottleneckDetector,
        now: &mut Time,
        truth: &[usize],
    ) -> bool {
        let live = vec![true; truth.len()];
        loop {
            *now = shared_bottleneck.next_due();
            match shared_bottleneck.step(*now, ACK_TIMEOUT, &live) {
                DetectorStep::Nothing => return false,
                DetectorStep::Done => return true,
                DetectorStep::SendTrain(loaded) => {
                    let (before, after) = (
                        shared_bottleneck.nonce(Phase::Before),
                        shared_bottleneck.nonce(Phase::After),
                    );
                    for _ in 1..shared_bottleneck.probe_train() {
                        shared_bottleneck.take(after, loaded, 1_000 * loaded as i32);
                    }
                    for path in 0..truth.len() {
                        shared_bottleneck.take(before, path, 1_000 * path as i32);
                        let delay = if truth[path] == truth[loaded] {
                            800
                        } else {
                            20
                        };
                        shared_bottleneck.take(after, path, 1_000 * path as i32 + delay);
                    }
                }
            }
        }
    }

    #[test]
    fn finds_who_shares() {
        let truth = [0, 1, 0, 2, 1, 1, 3, 0];
        let mut now = Time::ZERO;
        let mut map = SharedBottleneckDetector::new(now);
        assert!(
            !shared_bottleneck(&mut map, &mut now, &truth),
            "once may be chance"
        );
        assert!(shared_bottleneck(&mut map, &mut now, &truth));
        for one in 0..truth.len() {
            for other in 0..truth.len() {
                assert_eq!(
                    map.group(one) == map.group(other),
                    truth[one] == truth[other]
                );
            }
        }
    }

    #[test]
    fn nearly_the_same_is_the_same() {
        let group = |list: &[u16]| list.iter().map(|&group| Some(group)).collect::<Vec<_>>();
        let sixteen: Vec<u16> = (0..16).map(|path| path % 4).collect();
        let mut other = sixteen.clone();
        assert!(agree(&group(&sixteen), &group(&other)));
        other[5] = 9;
        assert!(agree(&group(&sixteen), &group(&other)), "one pair in fifty");
        let apart: Vec<u16> = (0..16).collect();
        assert!(!agree(&group(&sixteen), &group(&apart)));
        assert!(!agree(&group(&sixteen), &[]));
    }

    proptest! {
        /// Overflow checks are on in tests; 21 s were too much once.
        #[test]
        fn no_delay_that_a_peer_reports_overflows(
            pongs in vec((0usize..4, any::<bool>(), any::<i32>()), 1..200),
            steps in vec(0u64..u64::MAX, 1..8),
        ) {
            let mut detector = SharedBottleneckDetector::new(Time::ZERO);
            for step in steps {
                let now = detector.next_due() + Duration::from_nanos(step);
                detector.step(now, Duration::from_nanos(step), &[true; 4]);
                for &(path, is_after, delay) in &pongs {
                    let phase = if is_after { Phase::After } else { Phase::Before };
                    detector.take(detector.nonce(phase), path, delay);
                }
            }
        }
    }
}
