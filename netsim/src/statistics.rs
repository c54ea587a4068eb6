//! Means over runs, and how far to trust them.

use serde::{Deserialize, Serialize};

/// A mean with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The mean over the runs.
    pub mean: f64,
    /// Half of the interval; nothing for a single run.
    pub half_width: Option<f64>,
}

/// Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom.
const STUDENT_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];
/// For more.
const NORMAL_95: f64 = 1.96;

impl Estimate {
    /// Of one value from each run; nothing without runs. Values that are no numbers (a class
    /// without flows) are left out.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.into_iter().filter(|it| it.is_finite()).collect();
        let count = values.len() as f64;
        if values.is_empty() {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|it| (it - mean) * (it - mean)).sum();
        let half_width = (values.len() > 1).then(|| {
            let t = STUDENT_95.get(values.len() - 2).unwrap_or(&NORMAL_95);
            t * (squares / (count - 1.0) / count).sqrt()
        });
        Some(Self { mean, half_width })
    }

    /// For people: `12.3 ± 0.4`.
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
