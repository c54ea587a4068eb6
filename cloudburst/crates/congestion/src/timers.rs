//! Timers: when something is due.

use std::{cmp::Reverse, collections::BinaryHeap};

use cloudburst_wire::Time;

/// Times at which keys are due. A key may be in it several times: who is called
/// of one looks whether anything is really due.
#[derive(Debug)]
pub struct Timers<K> {
    heap: BinaryHeap<Reverse<(Time, K)>>,
}

impl<K: Ord + Copy> Default for Timers<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Ord + Copy> Timers<K> {
    /// Begins with nothing due.
    pub const fn new() -> Self {
        Self {
            heap: BinaryHeap::new(),
        }
    }

    /// Adds a time at which a key is due.
    pub fn add(&mut self, at: Time, key: K) {
        self.heap.push(Reverse((at, key)));
    }

    /// Returns the time at which the next key is due.
    pub fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes a key that is due, if there is one.
    pub fn pop(&mut self, now: Time) -> Option<K> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, key))| key)
    }
}

/// Alarm of an entity: its next time, and how that gets into [`Timers`] no more often than needed.
#[derive(Clone, Copy, Debug)]
pub struct Alarm {
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
    /// Sets the time at which it is due, which `key` stands for.
    pub fn set<K: Ord + Copy>(&mut self, due: Time, key: K, timers: &mut Timers<K>) {
        self.due = due;
        if due < self.announced {
            self.announced = due;
            timers.add(due, key);
        }
    }

    /// Returns true if it is due now, as the timers have announced it. If it is later, it is
    /// put there again.
    pub fn is_due<K: Ord + Copy>(&mut self, now: Time, key: K, timers: &mut Timers<K>) -> bool {
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
