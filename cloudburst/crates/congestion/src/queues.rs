//! Queues that paths share, as far as delays tell (passive shared-bottleneck detection, after RFC 8382).
//!
//! What stands in one queue delays all that go through it: the delays of two paths through the same
//! bottleneck differ by a constant, and by what changes between two samples. Where they differ by
//! more, and neither rises and falls with the other, each path has a queue of its own, and one flow's share
//! of each is due to a sender (RFC 6356 §1.1). Until that is shown, paths share.

mod comparison;
mod shares;

use core::time::Duration;

use cloudburst_wire::Time;

use self::comparison::{Change, Comparison, DelaySample, ENOUGH, ENOUGH_OF_ALL, MeanChange};
pub use self::shares::{QueueSet, QueueShares};
use crate::{MAX_PATHS, in_flight::Resolved};

/// Queues that are told apart, at most.
pub const MAX_QUEUES: usize = 4;

/// How long that is believed that was shown, and a path stands for a queue of which nothing is heard.
const BELIEVED_FOR: Duration = Duration::from_secs(60);

/// Delays of a path, and beside those of paths that stand for queues.
#[derive(Clone, Copy, Debug)]
struct PathDelays {
    path: u16,
    latest: DelaySample,
    heard_at: Time,
    change: Change,
    comparisons: [Comparison; MAX_QUEUES],
}

/// Queues that a peer's paths lead through, as far as they were told apart.
#[derive(Clone, Debug, Default)]
pub struct Queues {
    /// Paths of which delays are known.
    paths: Vec<PathDelays>,
    /// The path that stands for each queue.
    leaders: [Option<u16>; MAX_QUEUES],
    /// By how much the delays of all of them change, for who has told too little.
    change: MeanChange,
    shares: QueueShares,
}

impl Queues {
    /// Takes a report on the path of this number, which is not 0: how long its newest datagram was under way, by the
    /// difference of two clocks, and what has left the network with it. Returns the queue that the path counts as going through.
    pub fn hear(&mut self, now: Time, path: u16, delay_us: i32, resolved: &Resolved) -> usize {
        match resolved.newest {
            Some((sent_at, _)) if resolved.is_newest_known => {
                let sample = DelaySample { sent_at, delay_us };
                self.sample(now, path, sample, resolved.bytes)
            }
            // Answers are in no window, and nobody knows when they were sent.
            _ => {
                let index = self.paths.iter().position(|it| it.path == path);
                let queue = index.map_or(0, |index| self.place(now, index));
                self.shares.count(queue, resolved.bytes);
                queue
            }
        }
    }

    fn sample(&mut self, now: Time, path: u16, sample: DelaySample, bytes: u64) -> usize {
        self.forget_leaders(now);
        let index = self.note(now, path, sample);
        for queue in 0..MAX_QUEUES {
            let Some(leader) = self.leader(queue) else {
                continue;
            };
            if leader == index {
                // The others are held against it.
                for other in (0..self.paths.len()).filter(|&other| other != leader) {
                    self.compare(now, queue, other, leader);
                }
            } else {
                self.compare(now, queue, index, leader);
            }
        }
        let queue = self.place(now, index);
        self.shares.count(queue, bytes);
        queue
    }

    /// Returns which parts of what is sent go through each.
    pub const fn shares(&self) -> QueueShares {
        self.shares
    }

    /// Forgets delays: a clock was set.
    pub fn forget_delays(&mut self) {
        self.paths.clear();
        self.change = MeanChange::default();
        self.leaders = [None; MAX_QUEUES];
        self.shares = QueueShares::default();
    }

    /// Takes a sample of a path. Returns its index.
    fn note(&mut self, now: Time, path: u16, sample: DelaySample) -> usize {
        if let Some(index) = self.paths.iter().position(|it| it.path == path) {
            let delays = &mut self.paths[index];
            if let Some(square) = delays.change.note(sample) {
                self.change.add(square);
            }
            (delays.latest, delays.heard_at) = (sample, now);
            return index;
        }
        let new = PathDelays {
            path,
            latest: sample,
            heard_at: now,
            change: Change::since(sample),
            comparisons: [Comparison::default(); MAX_QUEUES],
        };
        if self.paths.len() < MAX_PATHS {
            self.paths.push(new);
            return self.paths.len().saturating_sub(1);
        }
        // Paths are replaced by others: one of them is the one that was heard of least lately.
        let indices = 0..self.paths.len();
        let oldest = indices.min_by_key(|&index| self.paths[index].heard_at);
        let oldest = oldest.unwrap_or_default();
        self.paths[oldest] = new;
        oldest
    }

    /// Forgets paths that stand for queues and of which nothing was heard for long.
    fn forget_leaders(&mut self, now: Time) {
        for queue in 0..MAX_QUEUES {
            let heard_at = self.leader(queue).map(|index| self.paths[index].heard_at);
            if heard_at.is_none_or(|at| now.since(at) > BELIEVED_FOR) {
                self.leaders[queue] = None;
                self.shares.join(queue, 0);
            }
        }
    }

    fn leader(&self, queue: usize) -> Option<usize> {
        let leader = self.leaders[queue]?;
        self.paths.iter().position(|it| it.path == leader)
    }

    /// Holds the latest sample of a path against that of one that stands for a queue.
    fn compare(&mut self, now: Time, queue: usize, index: usize, leader: usize) {
        let leader = self.paths[leader];
        let all = self.change.known(ENOUGH_OF_ALL);
        let path = &mut self.paths[index];
        let samples = (path.latest, leader.latest);
        let changes = [path.change, leader.change];
        let [path_change, leader_change] = changes.map(|own| own.mean.known(ENOUGH).or(all));
        // What each of both changes by, or is delayed by alone, is in their difference once.
        if let Some((one, other)) = path_change.zip(leader_change) {
            let gap_us = path.change.gap_us.max(leader.change.gap_us);
            let change = ((one + other) / 2.0, gap_us);
            path.comparisons[queue].add(now, leader.path, samples, change);
        }
    }

    /// The queue of a path: the one that it stands for, or the first that it is not known to miss, but for one that it is as
    /// likely to go through as it is unlikely to go through that.
    fn place(&mut self, now: Time, index: usize) -> usize {
        let PathDelays {
            path, comparisons, ..
        } = self.paths[index];
        let own = self.leaders.iter().position(|it| *it == Some(path));
        let is_shared = |(leader, comparison): (&Option<u16>, &Comparison)| {
            leader.is_some_and(|it| it != path && !comparison.is_apart(now, it))
        };
        let first = self.leaders.iter().zip(&comparisons).position(is_shared);
        match (own, first) {
            // It has turned out to share an earlier one's.
            (Some(own), Some(first)) if first < own => {
                self.leaders[own] = None;
                self.shares.join(own, first);
                first
            }
            (Some(own), _) => own,
            (None, Some(first)) => {
                let is_like = |&queue: &usize| {
                    self.leaders[queue].is_some_and(|it| comparisons[queue].is_like(it))
                };
                let is_unlike =
                    self.leaders[first].is_some_and(|it| comparisons[first].is_unlike(it));
                let like = (first..MAX_QUEUES).find(|queue| is_unlike && is_like(queue));
                like.unwrap_or(first)
            }
            (None, None) => self.lead(path),
        }
    }

    /// Has a path stand for a queue of its own, if there is one left. Returns it.
    fn lead(&mut self, path: u16) -> usize {
        let free = self.leaders.iter().position(Option::is_none);
        if let Some(free) = free {
            self.leaders[free] = Some(path);
        }
        free.unwrap_or(MAX_QUEUES.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests;
