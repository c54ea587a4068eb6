//! Finds out which ways to a peer share a bottleneck.
//!
//! Ports that networks choose paths by (ECMP) tell nothing of where they lead.
//! So, while nothing else is sent, a short train of long pings goes by one way,
//! and a short ping by each other before and after it. Those that the train
//! delays go through the same queue.

use core::time::Duration;

use super::time::Time;

/// Pings of a train.
pub(super) const TRAIN: usize = 4;
/// How much later the end of a train must be than its beginning to tell anything.
const LEAST_DELAY_US: i32 = 150;
/// When the ways are surveyed again: soon while the result is not the same as
/// before, then less and less often.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(60)];

/// How long after something else was sent a train goes: queues are empty then.
const CALM: Duration = Duration::from_millis(5);

/// Which part of a survey a ping is: its nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Before,
    After,
}

/// The survey under way, and the result of the last one.
#[derive(Debug)]
pub(super) struct Survey {
    /// Tells surveys apart: pongs of an earlier one may come late.
    number: u32,
    state: State,
    next_at: Time,
    pause: Duration,
    /// By path: the group that it was found to be in, this time and the last.
    found: Vec<Option<u16>>,
    last_found: Vec<Option<u16>>,
    before: Vec<Option<i32>>,
    after: Vec<Option<i32>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No survey is under way.
    Resting,
    /// One is, and its next step is due.
    Between,
    /// The train went by this path, and answers may come until then.
    Waiting { leader: usize, until: Time },
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Nothing,
    /// Send a train by this path, and pings around it by those not yet in a group.
    Train(usize),
    /// Twice the same was found: the groups are valid.
    Done,
}

impl Survey {
    pub(super) fn new(now: Time) -> Self {
        Self {
            number: 0,
            state: State::Resting,
            next_at: now,
            pause: PAUSES[0],
            found: Vec::new(),
            last_found: Vec::new(),
            before: Vec::new(),
            after: Vec::new(),
        }
    }

    /// The nonce of a ping.
    pub(super) fn nonce(&self, phase: Phase) -> u64 {
        1 << 63 | u64::from(self.number) << 1 | u64::from(phase == Phase::After)
    }

    /// A pong has come by the `path`th way, delayed by so much.
    pub(super) fn take(&mut self, nonce: u64, path: usize, delay: i32) {
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
        }
    }

    /// Something else was sent: what is measured now is worth nothing.
    pub(super) fn disturb(&mut self, now: Time) {
        if matches!(self.state, State::Waiting { .. }) {
            self.state = State::Between;
            self.number = self.number.wrapping_add(1);
            self.next_at = now + CALM;
        }
    }

    pub(super) fn next_due(&self) -> Time {
        match self.state {
            State::Resting | State::Between => self.next_at,
            State::Waiting { until, .. } => until,
        }
    }

    /// What is to be done now, with `live` telling the ways that deliver.
    pub(super) fn step(&mut self, now: Time, patience: Duration, live: &[bool]) -> Next {
        if now < self.next_due() {
            return Next::Nothing;
        }
        match self.state {
            State::Waiting { leader, .. } if self.found.len() == live.len() => self.judge(leader),
            State::Between if self.found.len() == live.len() => {}
            _ => {
                self.found.clear();
                self.found.resize(live.len(), None);
            }
        }
        let missing =
            (0..live.len()).find(|&path| live[path] && self.found.get(path) == Some(&None));
        let Some(leader) = missing else {
            return self.finish(now);
        };
        self.number = self.number.wrapping_add(1);
        for list in [&mut self.before, &mut self.after] {
            list.clear();
            list.resize(live.len(), None);
        }
        let until = now + patience * 2 + Duration::from_millis(2);
        self.state = State::Waiting { leader, until };
        Next::Train(leader)
    }

    /// Whether a path has no group yet, so that it is to be pinged.
    pub(super) fn wants(&self, path: usize) -> bool {
        self.found.get(path) == Some(&None)
    }

    /// Which paths the train has delayed.
    fn judge(&mut self, leader: usize) {
        let delayed = |path: usize| {
            let before = (*self.before.get(path)?)?;
            Some((*self.after.get(path)?)?.saturating_sub(before))
        };
        let train = delayed(leader).filter(|&delay| delay >= LEAST_DELAY_US);
        let shares: Vec<usize> = (0..self.found.len())
            .filter(|&path| self.found[path].is_none())
            .filter(|&path| {
                train.is_some_and(|train| delayed(path).is_some_and(|own| own > train / 2))
            })
            .collect();
        for path in shares {
            self.found[path] = Some(leader as u16);
        }
        self.found[leader] = Some(leader as u16);
    }

    fn finish(&mut self, now: Time) -> Next {
        self.state = State::Resting;
        let agrees = self.found == self.last_found;
        self.last_found.clone_from(&self.found);
        self.pause = if agrees {
            (self.pause * 2).min(PAUSES[1])
        } else {
            PAUSES[0]
        };
        self.next_at = now + self.pause;
        if agrees { Next::Done } else { Next::Nothing }
    }

    /// The group that a path is in: the same number for those that share a
    /// bottleneck.
    pub(super) fn group(&self, path: usize) -> Option<u16> {
        self.found.get(path).copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_millis(1);

    /// Surveys ways of which `truth` tells the bottleneck.
    fn survey(survey: &mut Survey, now: &mut Time, truth: &[usize]) -> bool {
        let live = vec![true; truth.len()];
        loop {
            *now = survey.next_due();
            match survey.step(*now, PATIENCE, &live) {
                Next::Nothing => return false,
                Next::Done => return true,
                Next::Train(leader) => {
                    let (before, after) = (survey.nonce(Phase::Before), survey.nonce(Phase::After));
                    for path in 0..truth.len() {
                        survey.take(before, path, 1_000 * path as i32);
                        let delay = if truth[path] == truth[leader] {
                            800
                        } else {
                            20
                        };
                        survey.take(after, path, 1_000 * path as i32 + delay);
                    }
                }
            }
        }
    }

    #[test]
    fn finds_who_shares() {
        let truth = [0, 1, 0, 2, 1, 1, 3, 0];
        let mut now = Time::ZERO;
        let mut map = Survey::new(now);
        assert!(!survey(&mut map, &mut now, &truth), "once may be chance");
        assert!(survey(&mut map, &mut now, &truth));
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
    fn disturbed_step_is_done_again() {
        let mut map = Survey::new(Time::ZERO);
        assert_eq!(
            map.step(Time::ZERO, PATIENCE, &[true, true]),
            Next::Train(0)
        );
        let stale = map.nonce(Phase::Before);
        map.disturb(Time::ZERO);
        assert_eq!(map.step(Time::ZERO, PATIENCE, &[true, true]), Next::Nothing);
        assert_ne!(map.nonce(Phase::Before), stale);
    }
}
