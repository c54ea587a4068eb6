//! Medians of a few runs, with their bounds.

use crate::Summary;

/// A median of one value for each run, with the least and the greatest.
///
/// Those bound the true median with a probability of 1 - 2^(1-n) for n runs: 94 % for five, 75 % for three.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Median {
    /// The median over all runs.
    pub median: f64,
    /// The least of the runs' values.
    pub least: f64,
    /// The greatest of the runs' values.
    pub greatest: f64,
}

impl Median {
    /// Takes one value of each run; nothing without runs. Values that are not numbers are left out.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let summary = Summary::new(values);
        (summary.count() > 0).then(|| Self {
            median: summary.median(),
            least: summary.percentile(0.0),
            greatest: summary.percentile(100.0),
        })
    }

    /// Writes the median for people, with its bounds if they differ: `12.3 [11.8, 14.0]`.
    pub fn to_text(self, digits: usize) -> String {
        let Self {
            median,
            least,
            greatest,
        } = self;
        if least == greatest {
            return format!("{median:.digits$}");
        }
        format!("{median:.digits$} [{least:.digits$}, {greatest:.digits$}]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_has_its_bounds_beside_it() {
        let median = Median::of([3.0, 1.0, 10.0]).expect("three values");
        assert_eq!(median.to_text(1), "3.0 [1.0, 10.0]");
        assert_eq!(
            Median::of([2.0, f64::NAN])
                .map(|it| it.to_text(1))
                .as_deref(),
            Some("2.0")
        );
        assert_eq!(Median::of([]), None);
    }
}
