//! Confidence intervals of means over runs.

use serde::{Deserialize, Serialize};

use crate::{
    Summary,
    student::{probability_within, two_sided_quantile},
};

/// An estimate of a mean with its 95 % confidence interval (Student's t).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The mean over all runs.
    pub mean: f64,
    /// Half the width of the interval; nothing for a single run.
    pub half_width: Option<f64>,
    /// Number of runs with a value.
    #[serde(skip)]
    pub runs: usize,
}

/// Confidence of intervals.
const CONFIDENCE: f64 = 0.95;

/// Sums of equal values differ by rounding.
const ALIKE: f64 = 1e-9;

impl Estimate {
    /// Estimates the mean from one value of each run; nothing without runs. Values that are no
    /// numbers (a class without flows) are left out.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let summary = Summary::new(values.into_iter().filter(|it| it.is_finite()));
        let runs = summary.count();
        if runs == 0 {
            return None;
        }
        let half_width =
            (runs > 1).then(|| two_sided_quantile(CONFIDENCE, runs - 1) * summary.standard_error());
        Some(Self {
            mean: summary.mean(),
            half_width,
            runs,
        })
    }

    /// Returns the two-sided p-value of a true mean of `value`: how probable an estimate at least as far from it would be,
    /// by Student's t. Runs that are all alike, as ranks may be, have no spread to tell that by: what is left is on
    /// which side they lie (the sign test). Nothing for a single run.
    pub fn p_value(&self, value: f64) -> Option<f64> {
        let half = self.half_width.filter(|_| self.runs > 1)?;
        let distance = (self.mean - value).abs();
        if distance == 0.0 {
            return Some(1.0);
        }
        let degrees = self.runs - 1;
        if half <= ALIKE * self.mean.abs() {
            return Some(0.5_f64.powi(i32::try_from(degrees).unwrap_or(i32::MAX)));
        }
        let t = distance / half * two_sided_quantile(CONFIDENCE, degrees);
        Some(1.0 - probability_within(t, degrees))
    }

    /// Widens the interval so that those of `count` such estimates hold together with 95 % confidence (Bonferroni), as
    /// one needs that was picked from so many.
    pub fn of_several(self, count: usize) -> Self {
        let together = 1.0 - (1.0 - CONFIDENCE) / count.max(1) as f64;
        let widened = |half: f64| {
            let degrees = self.runs.max(2) - 1;
            half * two_sided_quantile(together, degrees) / two_sided_quantile(CONFIDENCE, degrees)
        };
        Self {
            half_width: self.half_width.map(widened),
            ..self
        }
    }

    /// Writes the estimate for people: `12.3 ± 0.4`.
    pub fn to_text(&self, digits: usize) -> String {
        let Self {
            mean, half_width, ..
        } = self;
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
        let finite = Estimate::of([2.0, f64::INFINITY, f64::NAN]);
        assert_eq!(finite.map(|it| (it.mean, it.runs)), Some((2.0, 1)));
    }

    #[test]
    fn p_value_is_5_percent_at_the_ends_of_the_interval() {
        let it = Estimate::of([1.0, 2.0, 3.0]).expect("three values");
        let half = it.half_width.expect("three runs");
        for end in [2.0 - half, 2.0 + half] {
            let p = it.p_value(end).expect("three runs");
            assert!((p - 0.05).abs() < 1e-9, "{p}");
        }
        assert_eq!(it.p_value(2.0), Some(1.0));
        // t = 3.4641 with two degrees of freedom.
        let p = it.p_value(0.0).expect("three runs");
        assert!((p - 0.0742).abs() < 5e-5, "{p}");
        assert_eq!(Estimate::of([7.0]).and_then(|it| it.p_value(1.0)), None);
        let same = Estimate::of([2.0, 2.0]).expect("two values");
        let thrice = Estimate::of([0.4; 3]).expect("three values");
        assert_eq!(thrice.p_value(-0.8), Some(0.25));
        assert_eq!(
            (same.p_value(2.0), same.p_value(1.0)),
            (Some(1.0), Some(0.5))
        );
    }

    #[test]
    fn interval_of_several_is_that_of_a_smaller_level() {
        let it = Estimate::of([1.0, 2.0, 3.0, 4.0]).expect("four values");
        let of_five = it.of_several(5).half_width.expect("four runs");
        // The 99 % quantile with three degrees of freedom, by the standard error.
        assert!((of_five - 5.841 * 0.645_497).abs() < 1e-3, "{of_five}");
        let of_one = it.of_several(1);
        assert!((of_one.half_width.unwrap_or(0.0) - it.half_width.unwrap_or(1.0)).abs() < 1e-9);
        assert_eq!(of_one.mean, it.mean);
    }
}
