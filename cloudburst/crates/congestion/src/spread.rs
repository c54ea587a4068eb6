//! Spread of a message over bottlenecks.

use core::time::Duration;

use crate::MAX_PATHS;

/// Spread of a message over bottlenecks: how much each has been given, and what that costs, as a queue
/// that overflows loses all of it.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    symbols: [u16; MAX_PATHS],
    cost: Duration,
}

impl Spread {
    /// Begins with nothing given; `cost` is that of a symbol more through the same bottleneck.
    pub const fn new(cost: Duration) -> Self {
        Self {
            symbols: [0; MAX_PATHS],
            cost,
        }
    }

    /// Counts symbols that a bottleneck is given.
    pub fn add(&mut self, group: usize, symbols: u32) {
        let sum = u32::from(self.symbols[group]).saturating_add(symbols);
        self.symbols[group] = sum.min(u16::MAX.into()) as u16;
    }

    /// Returns the cost of another symbol through a bottleneck.
    pub fn cost(&self, group: usize) -> Duration {
        self.cost.saturating_mul(self.symbols[group].into())
    }
}

/// Bottlenecks side by side: when the first datagram is through, and how much later the
/// next, in ns.
#[derive(Debug)]
pub struct ParallelPaths {
    list: [Option<(f64, f64)>; MAX_PATHS],
    count: usize,
}

impl Default for ParallelPaths {
    fn default() -> Self {
        Self::new()
    }
}

impl ParallelPaths {
    /// Begins without any bottleneck.
    pub const fn new() -> Self {
        Self {
            list: [None; MAX_PATHS],
            count: 0,
        }
    }

    /// Adds a path through a bottleneck.
    pub fn add(&mut self, group: usize, first: Duration, each: Duration) {
        let first = first.as_nanos() as f64;
        let path = &mut self.list[group];
        self.count = self.count.max(group.saturating_add(1));
        match path {
            Some((earliest, _)) => *earliest = earliest.min(first),
            None => *path = Some((first, each.as_nanos().max(1) as f64)),
        }
    }

    /// Returns how many of `count` datagrams should go through the bottleneck that is first: the
    /// others take their share of those that are not through before theirs.
    pub fn share(&self, group: usize, count: u32) -> u32 {
        let Some((first, each)) = self.list[group] else {
            return 1;
        };
        let mut end = f64::INFINITY;
        // Ways that are not through with one by the end do not take part, which may make it
        // earlier for the others; each round takes out one at least.
        for _ in 0..self.count {
            let paths = self.list[..self.count].iter().flatten();
            let (rate, load) = paths
                .filter(|(first, _)| *first <= end)
                .fold((0.0, f64::from(count)), |(rate, load), (first, each)| {
                    (rate + 1.0 / each, load + first / each - 1.0)
                });
            if rate == 0.0 || load / rate >= end {
                break;
            }
            end = load / rate;
        }
        let through = ((end - first) / each).round() + 1.0;
        (through as u32).clamp(1, count.max(1))
    }
}
