//! Percentiles of completion times, from the kernel's logarithmic buckets.

use serde::Serialize;
use splitter_policy::flow::Class;
use splitter_policy::histogram::{BUCKETS, Histogram, upper_bound_ns};

use super::history::Totals;

/// How long the flows of a class took that ended with FIN or RST in a period.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Completion {
    /// "short" or "long": what they were when they ended.
    pub class: &'static str,
    /// Which flows.
    pub period: Period,
    /// The length of the period; `None` for all flows, and where nothing is known of late.
    pub window_s: Option<f64>,
    /// How many ended.
    pub finished: u64,
    /// Their mean; `None` where none ended.
    pub mean_s: Option<f64>,
    /// Half of them took no longer.
    pub p50_s: Option<f64>,
    /// Nine in ten took no longer.
    pub p90_s: Option<f64>,
    /// 99 in a hundred took no longer.
    pub p99_s: Option<f64>,
}

/// Which flows a row speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Period {
    /// Those that ended of late, a minute at most.
    Recent,
    /// All that ended since the tables were made.
    Total,
}

/// Two rows for each class; `earlier` is where "of late" begins.
pub(super) fn rows(now: &Totals, earlier: Option<&Totals>) -> Vec<Completion> {
    let mut rows = Vec::new();
    for class in Class::ALL {
        let all = now.counters.completion(class);
        let recent = earlier.map(|it| difference(all, it.counters.completion(class)));
        rows.push(Completion {
            window_s: earlier.map(|it| now.seconds_since(it)),
            ..row(class, Period::Recent, &recent.unwrap_or_default())
        });
        rows.push(row(class, Period::Total, all));
    }
    rows
}

fn row(class: Class, period: Period, times: &Histogram) -> Completion {
    let finished = times.buckets.iter().sum();
    Completion {
        class: class.name(),
        period,
        window_s: None,
        finished,
        mean_s: (finished > 0).then(|| times.sum_ns as f64 / 1e9 / finished as f64),
        p50_s: quantile_s(times, 0.5),
        p90_s: quantile_s(times, 0.9),
        p99_s: quantile_s(times, 0.99),
    }
}

fn difference(later: &Histogram, earlier: &Histogram) -> Histogram {
    let mut difference = *later;
    for (count, before) in difference.buckets.iter_mut().zip(earlier.buckets) {
        *count = count.saturating_sub(before);
    }
    difference.sum_ns = later.sum_ns.wrapping_sub(earlier.sum_ns);
    difference
}

/// The time that a share of the flows did not exceed, as Prometheus' `histogram_quantile` has it:
/// within a bucket they are taken to lie evenly, beyond the last bound at that bound.
fn quantile_s(times: &Histogram, share: f64) -> Option<f64> {
    let finished: u64 = times.buckets.iter().sum();
    let rank = share * finished as f64;
    let mut below = 0;
    for (index, &count) in times.buckets.iter().enumerate() {
        if count > 0 && (below + count) as f64 >= rank {
            let lower_ns = index.checked_sub(1).and_then(upper_bound_ns).unwrap_or(0);
            let upper_ns = upper_bound_ns(index).unwrap_or(lower_ns);
            let within = (rank - below as f64) / count as f64;
            return Some((lower_ns as f64 + (upper_ns - lower_ns) as f64 * within) / 1e9);
        }
        below += count;
    }
    None
}

const _: () = assert!(BUCKETS > 1, "the last bucket has a lower bound");

#[cfg(test)]
mod tests {
    use super::*;

    fn times(durations_ns: &[u64]) -> Histogram {
        let mut times = Histogram::EMPTY;
        durations_ns.iter().for_each(|&it| times.record(it));
        times
    }

    #[test]
    fn quantiles_lie_in_the_bucket_of_their_rank() {
        assert_eq!(quantile_s(&Histogram::EMPTY, 0.5), None);
        // Ninety of about 3 ms, ten of about 200 ms.
        let mut durations = vec![3_000_000; 90];
        durations.extend([200_000_000; 10]);
        let times = times(&durations);
        let quantile = |share| quantile_s(&times, share).expect("some ended");
        assert!(
            (0.002..0.0032).contains(&quantile(0.5)),
            "{}",
            quantile(0.5)
        );
        assert!(
            (0.002..0.0032).contains(&quantile(0.9)),
            "{}",
            quantile(0.9)
        );
        assert!((0.13..0.21).contains(&quantile(0.99)), "{}", quantile(0.99));
        assert!(quantile(0.5) < quantile(0.9));
    }

    #[test]
    fn what_is_longer_than_all_bounds_counts_at_the_last() {
        let times = times(&[u64::MAX / 4]);
        assert_eq!(quantile_s(&times, 0.99), Some((1_u64 << 37) as f64 / 1e9));
    }

    #[test]
    fn a_difference_is_what_ended_between() {
        let earlier = times(&[1_000_000, 5_000_000]);
        let later = times(&[1_000_000, 5_000_000, 80_000_000]);
        assert_eq!(difference(&later, &earlier), times(&[80_000_000]));
    }
}
