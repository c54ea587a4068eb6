//! From advice, again and again, to a threshold that follows slowly and does not flap.

use std::time::Duration;

use super::{Advice, Verdict};

/// A smaller gain is not worth a change.
const WORTH: f64 = 0.05;
/// So often in a row advice has to point the same way.
const TIMES: u32 = 2;
/// A step is at most this factor; the next one may follow after as many looks.
const STEP: u32 = 2;

/// Follows advice; a function of what it is reported and when.
#[derive(Debug, Clone)]
pub struct Follower {
    period: Duration,
    next: Duration,
    /// Which way advice has pointed, and how often in a row.
    leaning: Option<(Direction, u32)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

/// Says what to do about the threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It stays.
    Keep,
    /// It becomes this.
    Change(u32),
}

impl Follower {
    /// Looks every `period`, for the first time one period after `now`.
    #[must_use]
    pub fn new(period: Duration, now: Duration) -> Self {
        Self {
            period,
            next: now + period,
            leaning: None,
        }
    }

    /// Returns the time of the next look.
    #[must_use]
    pub fn next(&self) -> Duration {
        self.next
    }

    /// Takes advice at `now`, with `current` in force. Only advice that is sure counts, of a gain
    /// of a twentieth or more, twice in a row in one direction; then the threshold goes there, by
    /// no more than a factor of two.
    pub fn consider(&mut self, now: Duration, current: u32, advice: &Advice) -> Decision {
        self.next = now + self.period;
        let Some(target) = worthwhile(advice) else {
            self.leaning = None;
            return Decision::Keep;
        };
        let direction = if target > current {
            Direction::Up
        } else {
            Direction::Down
        };
        let times = match self.leaning {
            Some((leaning, times)) if leaning == direction => times + 1,
            _ => 1,
        };
        if times < TIMES {
            self.leaning = Some((direction, times));
            return Decision::Keep;
        }
        self.leaning = None;
        let next = target.clamp(current.div_ceil(STEP), current.saturating_mul(STEP));
        if next == current {
            Decision::Keep
        } else {
            Decision::Change(next)
        }
    }
}

fn worthwhile(advice: &Advice) -> Option<u32> {
    (advice.verdict == Verdict::Change && advice.gain >= WORTH)
        .then_some(advice.recommended)
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::super::{FlowSize, Question, Sizes, Traffic, advise};
    use super::*;
    use crate::ThresholdUnit;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

    /// An agent in virtual time: flows come, end and are counted; every period it looks.
    struct Agent {
        sizes: Sizes,
        follower: Follower,
        threshold: u32,
        now: Duration,
        random: Xoshiro256PlusPlus,
        changes: Vec<(Duration, u32)>,
    }

    const PERIOD: Duration = Duration::from_secs(60);

    impl Agent {
        fn new(threshold: u32, seed: u64) -> Self {
            let mut sizes = Sizes::default();
            sizes.advance(Duration::ZERO);
            Self {
                sizes,
                follower: Follower::new(PERIOD, Duration::ZERO),
                threshold,
                now: Duration::ZERO,
                random: Xoshiro256PlusPlus::seed_from_u64(seed),
                changes: Vec::new(),
            }
        }

        /// Lets flows of sizes that `draw` makes of a number in 0..1 come for so long, at a rate.
        fn run(&mut self, time: Duration, per_second: u32, draw: impl Fn(f64) -> u64) {
            let end = self.now + time;
            while self.now < end {
                self.now += Duration::from_secs(5);
                self.sizes.advance(self.now);
                for _ in 0..per_second * 5 {
                    let number = (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
                    self.sizes.add(FlowSize::of_payload(draw(number)));
                }
                if self.now >= self.follower.next() {
                    self.look();
                }
            }
        }

        fn look(&mut self) {
            let question = Question {
                unit: ThresholdUnit::Packets,
                current: self.threshold,
                bounds: [10, 400],
                rates: Some([100e6, 100e6]),
                rtt: Duration::from_millis(20),
                traffic: Traffic::FlowsPerSecond(self.sizes.flows_per_second()),
            };
            let advice = advise(self.sizes.sample(question.unit), &question, true);
            if let Decision::Change(next) =
                self.follower.consider(self.now, self.threshold, &advice)
            {
                self.threshold = next;
                self.changes.push((self.now, next));
            }
        }
    }

    /// Nine of ten carry 5 to 40 kB, the others so many bytes.
    fn mixed(long: u64) -> impl Fn(f64) -> u64 {
        move |number| {
            if number < 0.9 {
                5_000 + (number * 38_000.0) as u64
            } else {
                long
            }
        }
    }

    #[test]
    fn settles_within_bounds_and_stays() {
        for seed in 1..=3 {
            let mut agent = Agent::new(400, seed);
            agent.run(Duration::from_secs(3_600), 150, mixed(400_000));
            let settled = agent.threshold;
            assert!((10..400).contains(&settled), "{settled}");
            let before = agent.changes.len();
            assert!(
                before >= 1 && agent.changes.is_sorted_by(|a, b| a.1 > b.1),
                "{:?}",
                agent.changes
            );
            // The same traffic for four more hours: noise alone moves nothing.
            agent.run(Duration::from_secs(4 * 3_600), 150, mixed(400_000));
            assert_eq!(agent.changes.len(), before, "{:?}", agent.changes);
        }
    }

    #[test]
    fn follows_traffic_that_changes_once() {
        let mut agent = Agent::new(40, 7);
        // As many flows of 20 kB to 40 kB as of 1 MB to 2 MB.
        let spread = |number: f64| (20_000.0 * 100f64.powf(number)) as u64;
        agent.run(Duration::from_secs(3_600), 25, spread);
        let high = agent.threshold;
        assert!(high > 60, "{high}: {:?}", agent.changes);
        agent.run(Duration::from_secs(4 * 3_600), 150, mixed(400_000));
        let low = agent.threshold;
        assert!(low < high, "{low} after {high}: {:?}", agent.changes);
        let steps: Vec<u32> = agent.changes.iter().map(|it| it.1).collect();
        let turns = steps
            .windows(3)
            .filter(|it| (it[0] < it[1]) != (it[1] < it[2]))
            .count();
        assert!(turns <= 1, "{:?}", agent.changes);
        for pair in agent.changes.windows(2) {
            assert!(
                pair[1].0 - pair[0].0 >= PERIOD * TIMES,
                "{:?}",
                agent.changes
            );
            let (one, other) = (pair[0].1.min(pair[1].1), pair[0].1.max(pair[1].1));
            assert!(other <= one * STEP + 1, "{:?}", agent.changes);
        }
    }

    #[test]
    fn few_flows_move_nothing() {
        let mut agent = Agent::new(40, 1);
        agent.run(Duration::from_secs(20), 40, mixed(400_000));
        for _ in 0..10 {
            agent.look();
        }
        assert_eq!(agent.changes, []);
    }

    #[test]
    fn one_swallow_makes_no_summer() {
        let advice = |recommended, gain| Advice {
            verdict: Verdict::Change,
            unit: "packets".to_owned(),
            recommended: Some(recommended),
            range: None,
            gain,
            present: None,
            expected: None,
            flows: 5_000.0,
            flows_per_second: 10.0,
            notes: Vec::new(),
        };
        let mut follower = Follower::new(PERIOD, Duration::ZERO);
        let mut at = 0;
        let mut consider = |recommended, gain| {
            at += 60;
            follower.consider(Duration::from_secs(at), 40, &advice(recommended, gain))
        };
        assert_eq!(consider(60, 0.2), Decision::Keep);
        assert_eq!(consider(20, 0.2), Decision::Keep, "the other way");
        assert_eq!(consider(60, 0.2), Decision::Keep);
        assert_eq!(consider(60, 0.04), Decision::Keep, "not worth it");
        assert_eq!(consider(60, 0.2), Decision::Keep);
        assert_eq!(consider(50, 0.2), Decision::Change(50));
        assert_eq!(consider(1_000, 0.2), Decision::Keep);
        assert_eq!(
            consider(1_000, 0.2),
            Decision::Change(80),
            "a step at a time"
        );
        assert_eq!(consider(1, 0.2), Decision::Keep);
        assert_eq!(consider(1, 0.2), Decision::Change(20));
    }
}
