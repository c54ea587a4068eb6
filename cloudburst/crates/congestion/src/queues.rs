//! Queues that paths share, as far as delays tell (passive shared-bottleneck detection, after RFC 8382).
//!
//! A datagram that comes into a queue first leaves it first. Where datagrams of two paths arrive in an order that one queue cannot have left them
//! in, whichever path is longer, and their delays do not mostly change together, each path has a queue of its own, and one flow's
//! share of each is due to a sender (RFC 6356 §1.1). Until that is shown, paths share. All pairs of paths are compared, and those that
//! share a queue count together.

mod order;
mod shares;

use core::time::Duration;

use cloudburst_wire::Time;

use self::order::{DelaySample, Evidence, Overtaking, OwnDelays, Pair};
pub use self::shares::{QueueSet, QueueShares};
use crate::{MAX_PATHS, in_flight::Resolved};

/// Queues that are told apart, at most.
pub const MAX_QUEUES: usize = 4;

/// How long a path stands for a queue of which nothing is heard, and how long that is believed that nothing shows any more,
/// counted from when it was last compared: what was for nothing is over soon.
const LEADS_FOR: Duration = Duration::from_secs(60);
const BELIEVED_FOR: Duration = Duration::from_secs(10);
/// Paths that all others are compared with: each with each, up to so many.
const REFERENCES: usize = 16;

/// Delays of a path, and beside those of others.
#[derive(Clone, Copy, Debug)]
struct PathDelays {
    path: u16,
    heard_at: Time,
    own: OwnDelays,
    /// The queue that it counts as going through, and which part of what is sent goes by it.
    queue: u8,
    share: f64,
    /// Beside the paths in front of it, of those that all are compared with.
    pairs: [Pair; REFERENCES],
    /// Paths that stand for queues which it does not go through, and until when that is believed.
    apart: [(u16, Time); MAX_QUEUES],
}

impl PathDelays {
    fn is_gone(&self, now: Time) -> bool {
        now.since(self.heard_at) > LEADS_FOR
    }

    fn is_apart(&self, now: Time, queue: usize, leader: u16) -> bool {
        let (from, until) = self.apart[queue];
        from == leader && now < until
    }
}

/// Queues that a peer's paths lead through, as far as they were told apart.
#[derive(Clone, Debug, Default)]
pub struct Queues {
    /// Paths of which delays are known.
    paths: Vec<PathDelays>,
    /// The path that stands for each queue.
    leaders: [Option<u16>; MAX_QUEUES],
    /// How often datagrams of one path overtake each other.
    overtaking: Overtaking,
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
                let Some(index) = index else {
                    self.shares.count(0, resolved.bytes);
                    return 0;
                };
                let queue = self.place(now, index);
                self.count(index, resolved.bytes);
                queue
            }
        }
    }

    fn sample(&mut self, now: Time, path: u16, sample: DelaySample, bytes: u64) -> usize {
        self.forget_leaders(now);
        let index = self.note(now, path, sample);
        for other in 0..self.paths.len() {
            self.compare(index, other);
        }
        let queue = self.place(now, index);
        self.count(index, bytes);
        queue
    }

    /// Counts bytes that went by a path.
    fn count(&mut self, index: usize, bytes: u64) {
        let (before, part) = QueueShares::weights(bytes);
        for path in &mut self.paths {
            path.share *= before;
        }
        self.paths[index].share += part;
        self.shares.count(self.paths[index].queue.into(), bytes);
    }

    /// Returns which parts of what is sent go through each.
    pub const fn shares(&self) -> QueueShares {
        self.shares
    }

    /// Forgets delays: a clock was set.
    pub fn forget_delays(&mut self) {
        self.paths.clear();
        self.overtaking = Overtaking::default();
        self.leaders = [None; MAX_QUEUES];
        self.shares = QueueShares::default();
    }

    /// Takes a sample of a path. Returns its index.
    fn note(&mut self, now: Time, path: u16, sample: DelaySample) -> usize {
        let known = self.paths.iter().position(|it| it.path == path);
        if let Some(index) = known.map(|index| self.move_forward(now, index)) {
            let delays = &mut self.paths[index];
            delays.own.note(sample, &mut self.overtaking);
            delays.heard_at = now;
            return index;
        }
        let new = PathDelays {
            path,
            heard_at: now,
            own: OwnDelays::new(sample),
            queue: 0,
            share: 0.0,
            pairs: [Pair::default(); REFERENCES],
            apart: [(0, Time::ZERO); MAX_QUEUES],
        };
        let gone = self.paths.iter().position(|it| it.is_gone(now));
        if gone.is_none() && self.paths.len() < MAX_PATHS {
            self.paths.push(new);
            return self.paths.len().saturating_sub(1);
        }
        // Paths are replaced by others: one of them is the one that was heard of least lately.
        let indices = 0..self.paths.len();
        let oldest = indices.min_by_key(|&index| self.paths[index].heard_at);
        let replaced = gone.or(oldest).unwrap_or_default();
        self.replace(replaced, new);
        replaced
    }

    /// Has a path be another one, of which nothing is known beside others.
    fn replace(&mut self, index: usize, new: PathDelays) {
        self.paths[index] = new;
        if index < REFERENCES {
            let behind = self.paths[index..].iter_mut();
            behind.for_each(|other| other.pairs[index] = Pair::default());
        }
    }

    /// Has a path that is compared with few take the place of one that all are compared with and that is gone: where all were
    /// replaced at once, as by a NAT, they would never be compared with each other. Returns its index.
    fn move_forward(&mut self, now: Time, index: usize) -> usize {
        if index < REFERENCES {
            return index;
        }
        let references = &self.paths[..REFERENCES];
        let Some(gone) = references.iter().position(|it| it.is_gone(now)) else {
            return index;
        };
        let moved = self.paths.swap_remove(index);
        let pairs = [Pair::default(); REFERENCES];
        self.replace(gone, PathDelays { pairs, ..moved });
        gone
    }

    /// Forgets paths that stand for queues and of which nothing was heard for long.
    fn forget_leaders(&mut self, now: Time) {
        for queue in 0..MAX_QUEUES {
            let heard_at = self.leader(queue).map(|index| self.paths[index].heard_at);
            let is_forgotten = heard_at.is_none_or(|at| now.since(at) > LEADS_FOR);
            if is_forgotten && self.leaders[queue].is_some() {
                self.join(queue, 0);
            }
        }
    }

    /// Has a queue be another one.
    fn join(&mut self, queue: usize, other: usize) {
        self.leaders[queue] = None;
        self.shares.join(queue, other);
        let members = self.paths.iter_mut();
        for path in members.filter(|path| usize::from(path.queue) == queue) {
            path.queue = other as u8;
        }
    }

    fn leader(&self, queue: usize) -> Option<usize> {
        let leader = self.leaders[queue]?;
        self.paths.iter().position(|it| it.path == leader)
    }

    /// The two of a pair: the one in front, and the one that keeps it. None if it is one path, or not compared.
    fn pair_of(one: usize, other: usize) -> Option<(usize, usize)> {
        let (front, behind) = (one.min(other), one.max(other));
        (front < behind && front < REFERENCES).then_some((front, behind))
    }

    /// Finds the pair of two paths, if they were compared of late: routes change, and clients wake on other networks.
    fn pair(&self, now: Time, one: usize, other: usize) -> Option<&Pair> {
        let (front, behind) = Self::pair_of(one, other)?;
        let pair = &self.paths[behind].pairs[front];
        (now.since(pair.compared_at()) < BELIEVED_FOR).then_some(pair)
    }

    /// Holds the latest samples of two paths against each other.
    fn compare(&mut self, one: usize, other: usize) {
        if let Some((front, behind)) = Self::pair_of(one, other) {
            let own = self.paths[front].own;
            let behind = &mut self.paths[behind];
            behind.pairs[front].compare(&own, &behind.own, &self.overtaking);
        }
    }

    /// Adds up evidence that a path misses a queue: its order beside the path that stands for it, and beside those that share it in all
    /// likelihood.
    fn evidence(&self, now: Time, index: usize, queue: usize, leader: usize) -> Evidence {
        let own = self.paths[index].own;
        let mut evidence = Evidence::default();
        for (other, path) in self.paths.iter().enumerate() {
            let is_member = other == leader
                || usize::from(path.queue) == queue
                    && self.pair(now, other, leader).is_some_and(Pair::is_alike);
            if is_member && let Some(pair) = self.pair(now, index, other) {
                let variance = own.variance().zip(path.own.variance());
                evidence.add(pair, variance.map(|(own, other)| own + other));
            }
        }
        evidence
    }

    /// Finds the queue of a path: the one that it stands for, or the first that it is not known to miss, but for one that it is
    /// as likely to go through as it is unlikely to go through that.
    fn place(&mut self, now: Time, index: usize) -> usize {
        let queue = self.placed(now, index);
        let path = &mut self.paths[index];
        let before = core::mem::replace(&mut path.queue, queue as u8);
        // What went by it before did not go through that one either.
        self.shares.shift(before.into(), queue, path.share);
        queue
    }

    fn placed(&mut self, now: Time, index: usize) -> usize {
        let path = self.paths[index].path;
        let (mut own, mut first): (Option<usize>, Option<(usize, Evidence)>) = (None, None);
        let mut like = None;
        for queue in 0..MAX_QUEUES {
            let Some(leader) = self.leader(queue) else {
                continue;
            };
            if leader == index {
                own = Some(queue);
                continue;
            }
            let evidence = self.evidence(now, index, queue, leader);
            let leader = self.paths[leader].path;
            let delays = &mut self.paths[index];
            if evidence.is_apart() {
                delays.apart[queue] = (leader, evidence.compared_at() + BELIEVED_FOR);
            }
            if delays.is_apart(now, queue, leader) {
                continue;
            }
            match first {
                None => first = Some((queue, evidence)),
                Some(_) if like.is_none() && evidence.is_like() => like = Some(queue),
                Some(_) => {}
            }
        }
        match (own, first) {
            // It has turned out to share an earlier one's.
            (Some(own), Some((first, _))) if first < own => {
                self.join(own, first);
                first
            }
            (Some(own), _) => own,
            (None, Some((first, evidence))) => {
                like.filter(|_| evidence.is_unlike()).unwrap_or(first)
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
