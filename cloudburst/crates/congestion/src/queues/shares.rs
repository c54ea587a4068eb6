//! Sets of queues, and which part of what is sent goes through each.

use super::MAX_QUEUES;

/// Set of queues, of those that are told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueSet(u8);

impl QueueSet {
    /// Adds a queue to the set, if that is so.
    pub fn insert_if(&mut self, is_so: bool, queue: usize) {
        if is_so {
            self.insert(queue);
        }
    }

    /// Adds a queue to the set.
    pub fn insert(&mut self, queue: usize) {
        self.0 |= 1_u8.wrapping_shl(queue as u32);
    }

    /// Returns the queues; the first, of an empty set, for paths share what is not known better.
    pub fn iter(self) -> impl Iterator<Item = usize> + Clone {
        let bits = self.0.max(1);
        (0..MAX_QUEUES).filter(move |&queue| bits.wrapping_shr(queue as u32) & 1 == 1)
    }
}

/// Parts of what is sent that go through each queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueShares([f64; MAX_QUEUES]);

impl QueueShares {
    /// Shares of which nothing is known.
    pub const NONE: Self = Self([0.0; MAX_QUEUES]);
    /// Bytes over which they are taken.
    const MEMORY: f64 = 500_000.0;

    /// Returns the weights of what was before so many bytes, and of these.
    pub(super) fn weights(bytes: u64) -> (f64, f64) {
        let sum = Self::MEMORY + bytes as f64;
        (Self::MEMORY / sum, bytes as f64 / sum)
    }

    /// Counts bytes that went through a queue.
    pub(crate) fn count(&mut self, queue: usize, bytes: u64) {
        let (before, part) = Self::weights(bytes);
        for share in &mut self.0 {
            *share *= before;
        }
        self.0[queue] += part;
    }

    /// Has a part of a queue be that of another.
    pub(super) fn shift(&mut self, queue: usize, other: usize, part: f64) {
        let part = part.min(self.0[queue]);
        self.0[queue] -= part;
        self.0[other] += part;
    }

    /// Has a queue's part be another's.
    pub(super) fn join(&mut self, queue: usize, other: usize) {
        let part = core::mem::take(&mut self.0[queue]);
        self.0[other] += part;
    }

    fn sum(&self) -> f64 {
        self.0.iter().sum()
    }

    /// Returns how many flows of one queue each would be spread as evenly: 1 where all goes through one.
    pub fn flows(&self) -> f64 {
        let squares: f64 = self.0.iter().map(|share| share * share).sum();
        let sum = self.sum();
        if squares > 0.0 {
            (sum * sum / squares).clamp(1.0, MAX_QUEUES as f64)
        } else {
            1.0
        }
    }

    /// Returns the part that goes through these queues, 1 if nothing is known.
    pub fn of(&self, queues: impl Iterator<Item = usize>) -> f64 {
        let sum = self.sum();
        if sum > 0.0 {
            let these: f64 = queues.map(|queue| self.0[queue]).sum();
            (these / sum).clamp(0.0, 1.0)
        } else {
            1.0
        }
    }
}
