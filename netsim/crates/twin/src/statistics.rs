//! Completion times, counted in memory of a fixed size.

use serde::Serialize;

/// Completion times of connections of one class: from the first packet of the handshake to the last byte of
/// both directions, as an application sees it that calls `connect` and waits for the answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FlowStatistics {
    /// Connections that completed.
    pub flows: u64,
    /// Connections that did not until the end.
    pub unfinished: u64,
    /// Mean completion time in milliseconds; `None` without connections.
    pub mean_ms: Option<f64>,
    /// Median of completion times in milliseconds.
    pub p50_ms: Option<f64>,
    /// 99th percentile of completion times in milliseconds.
    pub p99_ms: Option<f64>,
    /// Longest completion time in milliseconds.
    pub max_ms: Option<f64>,
    /// Mean of completion time over serialisation and the round trips that there must be, on the uplink on
    /// which that is least for the connection. Below 1 only where one connection fills several uplinks.
    pub mean_slowdown: Option<f64>,
    /// The distribution of completion times.
    #[serde(skip)]
    pub distribution: Distribution,
}

/// Counts of times in buckets of a hundredth, with exact sum and maximum.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    buckets: Vec<u64>,
    count: u64,
    sum_ns: f64,
    max_ns: u64,
    slowdowns: f64,
}

/// Buckets to each doubling: a bucket's bound is within 0.8 % of any time in it.
const PER_DOUBLING_LOG2: u32 = 7;
/// Times up to 2^47 ns, a day and a half.
const BUCKETS: usize = (48 - PER_DOUBLING_LOG2 as usize) << PER_DOUBLING_LOG2;

impl Default for Distribution {
    fn default() -> Self {
        Self {
            buckets: vec![0; BUCKETS],
            count: 0,
            sum_ns: 0.0,
            max_ns: 0,
            slowdowns: 0.0,
        }
    }
}

impl Distribution {
    pub(super) fn add(&mut self, time_ns: u64, slowdown: f64) {
        let index = index(time_ns).min(BUCKETS - 1);
        self.buckets[index] += 1;
        self.count += 1;
        self.sum_ns += time_ns as f64;
        self.max_ns = self.max_ns.max(time_ns);
        self.slowdowns += slowdown;
    }

    /// Returns the time in milliseconds that so many percent do not exceed, within 0.8 %; `None` without
    /// any.
    pub fn percentile_ms(&self, percent: f64) -> Option<f64> {
        let rank = (percent / 100.0 * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let index = self.buckets.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        Some(upper(index).min(self.max_ns) as f64 / 1e6)
    }

    /// Returns the distribution as pairs of milliseconds and the share of times that do not exceed them.
    pub fn cumulative(&self) -> Vec<(f64, f64)> {
        let mut seen = 0;
        let filled = self.buckets.iter().enumerate().filter(|(_, it)| **it > 0);
        filled
            .map(|(index, count)| {
                seen += count;
                let share = seen as f64 / self.count as f64;
                (upper(index).min(self.max_ns) as f64 / 1e6, share)
            })
            .collect()
    }

    pub(super) fn statistics(self, unfinished: u64) -> FlowStatistics {
        let some = (self.count > 0).then_some(self.count as f64);
        FlowStatistics {
            flows: self.count,
            unfinished,
            mean_ms: some.map(|count| self.sum_ns / count / 1e6),
            p50_ms: self.percentile_ms(50.0),
            p99_ms: self.percentile_ms(99.0),
            max_ms: some.map(|_| self.max_ns as f64 / 1e6),
            mean_slowdown: some.map(|count| self.slowdowns / count),
            distribution: self,
        }
    }
}

fn index(time_ns: u64) -> usize {
    let octave = time_ns.max(1).ilog2().saturating_sub(PER_DOUBLING_LOG2);
    ((octave as usize) << PER_DOUBLING_LOG2) + (time_ns >> octave) as usize
}

/// The longest time in a bucket.
fn upper(index: usize) -> u64 {
    const WITHIN: usize = 1 << PER_DOUBLING_LOG2;
    if index < 2 * WITHIN {
        return index as u64;
    }
    let octave = index / WITHIN - 1;
    ((index % WITHIN + WITHIN + 1) as u64) << octave
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_times_within_a_hundredth() {
        let mut distribution = Distribution::default();
        // 1 to 10,000 us.
        for us in 1..=10_000u64 {
            distribution.add(us * 1_000, 2.0);
        }
        for (percent, expected) in [(50.0, 5.0), (99.0, 9.9), (100.0, 10.0), (0.0, 0.001)] {
            let found = distribution.percentile_ms(percent).unwrap();
            assert!((found / expected - 1.0).abs() < 0.01, "{percent}: {found}");
        }
        let cumulative = distribution.cumulative();
        assert_eq!(cumulative.last(), Some(&(10.0, 1.0)));
        assert!(cumulative.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1));
        let statistics = distribution.statistics(3);
        assert_eq!(statistics.mean_ms, Some(5.0005));
        assert_eq!((statistics.max_ms, statistics.unfinished), (Some(10.0), 3));
        assert_eq!(statistics.mean_slowdown, Some(2.0));
        let none = Distribution::default().statistics(0);
        assert_eq!((none.mean_ms, none.p99_ms, none.max_ms), (None, None, None));
    }

    #[test]
    fn times_beyond_all_buckets_are_in_the_last() {
        let mut distribution = Distribution::default();
        distribution.add(u64::MAX, 1.0);
        distribution.add(0, 1.0);
        assert_eq!(distribution.count, 2);
        assert_eq!(distribution.buckets[BUCKETS - 1], 1);
    }
}
