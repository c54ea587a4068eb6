//! Confidence intervals of means over runs.

use serde::{Deserialize, Serialize};

use crate::Summary;

/// An estimate of a mean with its 95 % confidence interval (Student's t).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The mean over all runs.
    pub mean: f64,
    /// Half the width of the interval; nothing for a single run.
    pub half_width: Option<f64>,
}

/// Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom.
const STUDENT_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];
/// Two-sided 95 % quantile of the normal distribution, for more degrees of freedom.
const NORMAL_95: f64 = 1.96;

impl Estimate {
    /// Estimates the mean from one value of each run; nothing without runs. Values that are no
    /// numbers (a class without flows) are left out.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let summary = Summary::new(values.into_iter().filter(|it| it.is_finite()));
        if summary.count() == 0 {
            return None;
        }
        let mean = summary.mean();
        let half_width = (summary.count() > 1).then(|| {
            let t = STUDENT_95.get(summary.count() - 2).unwrap_or(&NORMAL_95);
            t * summary.standard_error()
        });
        Some(Self { mean, half_width })
    }

    /// Writes the estimate for people: `12.3 ± 0.4`.
    pub fn to_text(&self, digits: usize) -> String {
        let Self { mean, half_width } = self;
        half_width.map_or_else(
            || format!("{mean:.digits$}"),
            |half| format!("{mean:.digits$} ± {half:.digits$}"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_students() {
        let it = Estimate::of([1.0, 2.0, 3.0]).expect("three values");
        // 4.303 * 1 / sqrt(3)
        assert_eq!(it.to_text(3), "2.000 ± 2.484");
        assert_eq!(
            Estimate::of([7.0]).map(|it| it.to_text(1)),
            Some("7.0".to_owned())
        );
        assert_eq!(Estimate::of([f64::NAN]), None);
    }
}
