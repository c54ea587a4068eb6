//! What is kept of many trials.

/// How often each whole number was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
}

impl Histogram {
    /// Counts `value`.
    pub fn add(&mut self, value: usize) {
        if value >= self.counts.len() {
            self.counts.resize(value + 1, 0);
        }
        self.counts[value] += 1;
    }

    /// Adds what `other` has counted.
    pub fn merge(&mut self, other: Self) {
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
    }

    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The arithmetic mean; NaN without values.
    pub fn mean(&self) -> f64 {
        let sum: u64 = (0..)
            .zip(&self.counts)
            .map(|(value, count)| value * count)
            .sum();
        sum as f64 / self.count() as f64
    }

    /// The least value that `per_mille` of the values do not exceed (nearest
    /// rank); 0 without values. In whole numbers, for 99.9 % of 20,000 must
    /// not become rank 19,981.
    pub fn percentile(&self, per_mille: u64) -> usize {
        let rank = (self.count() * per_mille).div_ceil(1000).max(1);
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        found.unwrap_or(0)
    }
}

/// Mean and spread of whole numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moments {
    count: u64,
    sum: u64,
    squares: u128,
}

impl Moments {
    /// Counts `value`.
    pub fn add(&mut self, value: u64) {
        self.count += 1;
        self.sum += value;
        self.squares += u128::from(value) * u128::from(value);
    }

    /// Adds what `other` has counted.
    pub fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.sum += other.sum;
        self.squares += other.squares;
    }

    /// The arithmetic mean; NaN without values.
    pub fn mean(&self) -> f64 {
        self.sum as f64 / self.count as f64
    }

    /// How far the mean may be off: the standard error.
    pub fn standard_error(&self) -> f64 {
        let count = self.count as f64;
        let variance = (self.squares as f64 / count - self.mean().powi(2)).max(0.0);
        (variance / (count - 1.0).max(1.0)).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_rank() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.percentile(500), 0);
        for value in 1..=1000 {
            histogram.add(value);
        }
        assert_eq!(histogram.count(), 1000);
        assert_eq!(histogram.mean(), 500.5);
        for (per_mille, expected) in [
            (0, 1),
            (1, 1),
            (500, 500),
            (990, 990),
            (999, 999),
            (1000, 1000),
        ] {
            assert_eq!(histogram.percentile(per_mille), expected);
        }
    }

    #[test]
    fn halves_add_up_to_the_whole() {
        let (mut low, mut high, mut all) = <(Histogram, Histogram, Histogram)>::default();
        for value in 0..100 {
            if value < 50 {
                low.add(value)
            } else {
                high.add(value)
            }
            all.add(value);
        }
        low.merge(high);
        assert_eq!(low, all);
    }

    #[test]
    fn moments_of_a_die() {
        let mut die = Moments::default();
        for value in 1..=6 {
            die.add(value);
        }
        assert_eq!(die.mean(), 3.5);
        // Variance 35/12 over six throws: the root of 2.9167 / 5.
        assert!((die.standard_error() - 0.7638).abs() < 1e-4);
    }
}
