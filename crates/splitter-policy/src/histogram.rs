//! Flow completion times in logarithmic buckets, counted in the kernel.

/// Counts of durations; two buckets to each doubling, from 1 us to 137 s.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// How many durations fell into each bucket; the last takes what is longer
    /// than all bounds.
    pub buckets: [u64; BUCKETS],
    /// Sum of all durations.
    pub sum_ns: u64,
}

/// Number of buckets, the unbounded last one included.
pub const BUCKETS: usize = 2 * (LAST_OCTAVE - FIRST_OCTAVE) as usize + 2;

/// The first bucket ends at 2^10 ns.
const FIRST_OCTAVE: u32 = 10;
/// The last bounded bucket ends at 2^37 ns.
const LAST_OCTAVE: u32 = 37;

impl Histogram {
    /// A histogram without any duration.
    pub const EMPTY: Self = Self {
        buckets: [0; BUCKETS],
        sum_ns: 0,
    };

    /// Counts one duration in its bucket.
    #[inline(always)]
    pub fn record(&mut self, duration_ns: u64) {
        if let Some(count) = self.buckets.get_mut(bucket(duration_ns)) {
            *count += 1;
        }
        self.sum_ns = self.sum_ns.wrapping_add(duration_ns);
    }

    /// A duration that `percent` of all do not exceed: the upper bound of a bucket. `None` without
    /// any duration, and where it is longer than all bounds.
    pub fn quantile_ns(&self, percent: u64) -> Option<u64> {
        let all: u64 = self.buckets.iter().sum();
        let rank = (all.saturating_mul(percent)).div_ceil(100).max(1);
        let mut below = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            below += count;
            if below >= rank {
                return upper_bound_ns(index);
            }
        }
        None
    }

    /// Adds what another CPU counted.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.buckets.iter_mut().zip(other.buckets) {
            *count += more;
        }
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// The bucket of a duration: the first whose bound is not below it.
#[inline(always)]
pub const fn bucket(duration_ns: u64) -> usize {
    // Bounds are inclusive, as in Prometheus' `le`; the minus one makes them so.
    let below = duration_ns.saturating_sub(1);
    if below < 1 << FIRST_OCTAVE {
        return 0;
    }
    // Counted up rather than taken from `ilog2`, whose bit tricks leave the
    // verifier without a bound for the index.
    let mut octave = FIRST_OCTAVE;
    while octave < LAST_OCTAVE {
        let within = below >> octave;
        if within < 2 {
            let upper_half = (below >> (octave - 1)) & 1;
            return 1 + 2 * (octave - FIRST_OCTAVE) as usize + upper_half as usize;
        }
        octave += 1;
    }
    BUCKETS - 1
}

/// The upper bound of a bucket in nanoseconds; `None` for the unbounded last.
pub const fn upper_bound_ns(bucket: usize) -> Option<u64> {
    if bucket + 1 >= BUCKETS {
        return None;
    }
    let octave = FIRST_OCTAVE as usize + bucket / 2;
    let bound = 1 << octave;
    Some(if bucket.is_multiple_of(2) {
        bound
    } else {
        bound + bound / 2
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_duration_lies_within_its_bucket(duration_ns in prop_oneof![any::<u64>(), 0u64..1 << 40]) {
            let index = bucket(duration_ns);
            prop_assert!(upper_bound_ns(index).is_none_or(|bound| duration_ns <= bound));
            if index > 0 {
                prop_assert!(upper_bound_ns(index - 1).expect("bounded") < duration_ns);
            }
        }
    }

    #[test]
    fn bounds_rise_and_end() {
        let bounds: std::vec::Vec<_> = (0..BUCKETS).map_while(upper_bound_ns).collect();
        assert_eq!(bounds.len(), BUCKETS - 1);
        assert!(bounds.is_sorted());
        assert_eq!((bounds[0], bounds[BUCKETS - 2]), (1 << 10, 1 << 37));
    }

    #[test]
    fn quantiles_are_bounds_of_buckets() {
        let mut times = Histogram::EMPTY;
        assert_eq!(times.quantile_ns(50), None);
        for _ in 0..99 {
            times.record(1_000);
        }
        times.record(u64::MAX);
        assert_eq!(times.quantile_ns(50), Some(1 << 10));
        assert_eq!(times.quantile_ns(99), Some(1 << 10));
        assert_eq!(times.quantile_ns(100), None);
    }

    #[test]
    fn sums_of_cpus_add_up() {
        let (mut one, mut other) = (Histogram::EMPTY, Histogram::EMPTY);
        one.record(5_000);
        other.record(5_000);
        other.record(u64::MAX);
        one.add(&other);
        assert_eq!(one.buckets.iter().sum::<u64>(), 3);
        assert_eq!(one.buckets[bucket(5_000)], 2);
    }
}
