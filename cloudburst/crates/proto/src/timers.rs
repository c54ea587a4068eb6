//! When something is due.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{
    event::{PeerId, SendId},
    time::Time,
};

/// What a timer of the machine is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TimerKey {
    Message(SendId),
    Peer(PeerId),
    /// Symbols of a peer wait to be acknowledged.
    Feedback(PeerId),
    /// Messages that were given up, of which the peer has not answered.
    Cancellations(PeerId),
    /// Somebody has keys that are not ours.
    KeyMismatches,
}

/// Times at which keys are due. A key may be in it several times: who is called
/// of one looks whether anything is really due.
#[derive(Debug)]
pub(super) struct Timers<K> {
    heap: BinaryHeap<Reverse<(Time, K)>>,
}

impl<K: Ord + Copy> Timers<K> {
    pub(super) const fn new() -> Self {
        Self {
            heap: BinaryHeap::new(),
        }
    }

    pub(super) fn add(&mut self, at: Time, key: K) {
        self.heap.push(Reverse((at, key)));
    }

    pub(super) fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// One that is due, if there is one.
    pub(super) fn pop(&mut self, now: Time) -> Option<K> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, key))| key)
    }
}

/// An entity's next time, and how it gets into [`Timers`] no more often than needed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alarm {
    /// When it is due; [`Time::NEVER`] if it is not.
    due: Time,
    /// The earliest time at which the timers will announce it.
    announced: Time,
}

impl Default for Alarm {
    fn default() -> Self {
        Self {
            due: Time::NEVER,
            announced: Time::NEVER,
        }
    }
}

impl Alarm {
    pub(super) fn set<K: Ord + Copy>(&mut self, due: Time, key: K, timers: &mut Timers<K>) {
        self.due = due;
        if due < self.announced {
            self.announced = due;
            timers.add(due, key);
        }
    }

    /// The timers have announced it: whether it is due now. If it is later, it is
    /// put there again.
    pub(super) fn is_due<K: Ord + Copy>(
        &mut self,
        now: Time,
        key: K,
        timers: &mut Timers<K>,
    ) -> bool {
        if self.announced <= now {
            self.announced = Time::NEVER;
        }
        if self.due <= now {
            self.due = Time::NEVER;
            return true;
        }
        if self.due < self.announced {
            self.announced = self.due;
            timers.add(self.due, key);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    #[test]
    fn tells_each_time_once() {
        let at = |millis| Time::ZERO + Duration::from_millis(millis);
        let mut timers = Timers::new();
        let mut alarm = Alarm::default();
        alarm.set(at(10), 'a', &mut timers);
        alarm.set(at(20), 'a', &mut timers);
        assert_eq!(timers.next(), Some(at(10)));
        assert_eq!(timers.pop(at(9)), None);
        assert_eq!(timers.pop(at(10)), Some('a'));
        assert!(!alarm.is_due(at(10), 'a', &mut timers));
        assert_eq!(timers.pop(at(20)), Some('a'));
        assert!(alarm.is_due(at(20), 'a', &mut timers));
        assert_eq!(timers.next(), None);
    }
}
