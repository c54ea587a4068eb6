//! Summary statistics of samples, all of which are kept: mean, median, percentiles, cumulative
//! summary.

/// Summary statistics of a sample: count, mean, median, percentiles and cumulative summary.
///
/// All samples are kept, so that every figure is exact. What runs without end keeps a histogram of
/// fixed size instead.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    sorted: Vec<f64>,
}

/// Far more than a product of two numbers is rounded by (2^-52), far less than a rank is apart.
const ROUNDING: f64 = 1e-12;

impl Summary {
    /// Takes samples in any order; those that are not numbers are left out.
    pub fn new(samples: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = samples.into_iter().filter(|it| !it.is_nan()).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        Self { sorted }
    }

    /// Returns the number of samples.
    pub fn count(&self) -> usize {
        self.sorted.len()
    }

    /// Returns the arithmetic mean; NaN without samples.
    pub fn mean(&self) -> f64 {
        self.sorted.iter().sum::<f64>() / self.sorted.len() as f64
    }

    /// Returns the standard error of the mean: the sample's standard deviation by the root of its
    /// size. NaN for fewer than two samples.
    pub fn standard_error(&self) -> f64 {
        let (count, mean) = (self.sorted.len() as f64, self.mean());
        let squares: f64 = self.sorted.iter().map(|it| (it - mean) * (it - mean)).sum();
        if self.sorted.len() < 2 {
            return f64::NAN;
        }
        (squares / (count - 1.0) / count).sqrt()
    }

    /// Returns the median: of an even number of samples, the mean of the two in the middle. NaN
    /// without samples.
    pub fn median(&self) -> f64 {
        let upper = self.sorted.len() / 2;
        match self.sorted.len() {
            0 => f64::NAN,
            count if count % 2 == 1 => self.sorted[upper],
            _ => (self.sorted[upper - 1] + self.sorted[upper]) / 2.0,
        }
    }

    /// Returns the percentile by nearest rank: the least sample that `percent` of the samples do not
    /// exceed. NaN without samples.
    pub fn percentile(&self, percent: f64) -> f64 {
        let rank = percent / 100.0 * self.sorted.len() as f64;
        // 99.9 % of 20,000 come to a little more than 19,980, and must not become rank 19,981.
        let rank = (rank * (1.0 - ROUNDING)).ceil().max(1.0) as usize;
        self.sorted
            .get(rank.min(self.sorted.len()).wrapping_sub(1))
            .copied()
            .unwrap_or(f64::NAN)
    }

    /// Returns the empirical cumulative distribution (CDF) as at most about `points` pairs of value and share of samples
    /// that do not exceed it. The first and the last sample are always there, and half of the
    /// points are spent on the uppermost tenth, where latency is decided.
    pub fn cumulative(&self, points: usize) -> Vec<(f64, f64)> {
        let count = self.sorted.len();
        let tail = count - count / 10;
        let half = (points / 2).max(1);
        let (body_step, tail_step) = ((tail / half).max(1), ((count - tail) / half).max(1));
        let mut ranks: Vec<usize> = (0..tail).step_by(body_step).collect();
        ranks.extend((tail..count).step_by(tail_step));
        if count > 0 && ranks.last() != Some(&(count - 1)) {
            ranks.push(count - 1);
        }
        ranks
            .into_iter()
            .map(|rank| (self.sorted[rank], (rank + 1) as f64 / count as f64))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_rank() {
        let summary = Summary::new((1..=100).rev().map(f64::from));
        assert_eq!(summary.count(), 100);
        assert_eq!(summary.mean(), 50.5);
        for (percent, expected) in [
            (0.0, 1.0),
            (1.0, 1.0),
            (50.0, 50.0),
            (99.0, 99.0),
            (100.0, 100.0),
        ] {
            assert_eq!(summary.percentile(percent), expected);
        }
        assert_eq!(Summary::new([7.0]).percentile(99.0), 7.0);
        let many = Summary::new((1..=20_000).map(f64::from));
        assert_eq!(many.percentile(99.9), 19_980.0);
    }

    #[test]
    fn a_median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(Summary::new([9.0, 1.0, 2.0]).median(), 2.0);
        assert_eq!(Summary::new([9.0, 1.0, 2.0, 3.0]).median(), 2.5);
    }

    #[test]
    fn the_standard_error_of_a_die_is_that_of_six_throws() {
        let die = Summary::new((1..=6).map(f64::from));
        // Variance 35/12 over six throws: the root of 2.9167 / 5.
        assert!((die.standard_error() - 0.7638).abs() < 1e-4);
        assert!(Summary::new([3.0]).standard_error().is_nan());
    }

    #[test]
    fn nothing_has_no_mean() {
        let nothing = Summary::new([f64::NAN]);
        assert_eq!(nothing.count(), 0);
        assert!(nothing.mean().is_nan() && nothing.median().is_nan());
        assert!(nothing.percentile(50.0).is_nan());
        assert!(nothing.cumulative(10).is_empty());
    }

    #[test]
    fn cumulative_rises_from_first_to_last() {
        let summary = Summary::new((0..10_000).map(f64::from));
        let points = summary.cumulative(200);
        assert!(points.len() <= 205, "{}", points.len());
        assert_eq!(points.first().map(|it| it.0), Some(0.0));
        assert_eq!(points.last(), Some(&(9_999.0, 1.0)));
        assert!(
            points
                .windows(2)
                .all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1)
        );
    }
}
