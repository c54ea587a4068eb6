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

    /// Takes an entry back, if it is the next one, and returns whether it was: a host need not wake
    /// for it. Another stays where it is, and comes to nothing.
    fn take_back(&mut self, at: Time, key: K) -> bool {
        let is_next = self.heap.peek() == Some(&Reverse((at, key)));
        if is_next {
            self.heap.pop();
        }
        is_next
    }

    /// Drops the next entries as long as they are of what has ended.
    pub fn drop_ended(&mut self, has_ended: impl Fn(K) -> bool) {
        while self
            .heap
            .peek()
            .is_some_and(|Reverse((_, key))| has_ended(*key))
        {
            self.heap.pop();
        }
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
        if due != self.announced && timers.take_back(self.announced, key) {
            self.announced = Time::NEVER;
        }
        if due < self.announced {
            self.announced = due;
            timers.add(due, key);
        }
    }

    /// Clears it: nothing is due any more.
    pub fn clear<K: Ord + Copy>(&mut self, key: K, timers: &mut Timers<K>) {
        self.set(Time::NEVER, key, timers);
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
        timers.add(at(5), 'b');
        alarm.set(at(10), 'a', &mut timers);
        alarm.set(at(20), 'a', &mut timers);
        assert_eq!(timers.pop(at(5)), Some('b'));
        assert_eq!(timers.next(), Some(at(10)), "it was not the next one");
        assert_eq!(timers.pop(at(9)), None);
        assert_eq!(timers.pop(at(10)), Some('a'));
        assert!(!alarm.is_due(at(10), 'a', &mut timers));
        assert_eq!(timers.pop(at(20)), Some('a'));
        assert!(alarm.is_due(at(20), 'a', &mut timers));
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn nobody_is_woken_for_what_is_put_off_or_off() {
        let at = |millis| Time::ZERO + Duration::from_millis(millis);
        let mut timers = Timers::new();
        let mut alarm = Alarm::default();
        alarm.set(at(10), 'a', &mut timers);
        alarm.set(at(20), 'a', &mut timers);
        assert_eq!(timers.next(), Some(at(20)));
        alarm.set(at(15), 'a', &mut timers);
        assert_eq!(timers.next(), Some(at(15)));
        alarm.clear('a', &mut timers);
        assert_eq!(timers.next(), None);
        alarm.set(at(30), 'a', &mut timers);
        assert_eq!(timers.pop(at(30)), Some('a'));
        assert!(alarm.is_due(at(30), 'a', &mut timers));
    }
}
