//! Samples and what is said about them.

/// Samples in ascending order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution {
    sorted: Vec<f64>,
}

impl Distribution {
    /// Takes samples in any order; those that are not numbers are left out.
    pub fn new(samples: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = samples.into_iter().filter(|it| !it.is_nan()).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        Self { sorted }
    }

    /// How many samples there are.
    pub fn count(&self) -> usize {
        self.sorted.len()
    }

    /// The arithmetic mean; NaN without samples.
    pub fn mean(&self) -> f64 {
        self.sorted.iter().sum::<f64>() / self.sorted.len() as f64
    }

    /// The value that `percent` of the samples do not exceed (nearest rank: it is one of the
    /// samples). NaN without samples.
    pub fn percentile(&self, percent: f64) -> f64 {
        let rank = (percent / 100.0 * self.sorted.len() as f64).ceil().max(1.0) as usize;
        self.sorted
            .get(rank.min(self.sorted.len()).wrapping_sub(1))
            .copied()
            .unwrap_or(f64::NAN)
    }

    /// The cumulative distribution as at most about `points` pairs of value and share of samples
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
        let distribution = Distribution::new((1..=100).rev().map(f64::from));
        assert_eq!(distribution.count(), 100);
        assert_eq!(distribution.mean(), 50.5);
        for (percent, expected) in [
            (0.0, 1.0),
            (1.0, 1.0),
            (50.0, 50.0),
            (99.0, 99.0),
            (100.0, 100.0),
        ] {
            assert_eq!(distribution.percentile(percent), expected);
        }
        assert_eq!(Distribution::new([7.0]).percentile(99.0), 7.0);
    }

    #[test]
    fn nothing_has_no_mean() {
        let nothing = Distribution::new([f64::NAN]);
        assert_eq!(nothing.count(), 0);
        assert!(nothing.mean().is_nan() && nothing.percentile(50.0).is_nan());
        assert!(nothing.cumulative(10).is_empty());
    }

    #[test]
    fn cumulative_rises_from_first_to_last() {
        let distribution = Distribution::new((0..10_000).map(f64::from));
        let points = distribution.cumulative(200);
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
