//! Bands: the paper's claim of a number, and how ours stands to it.

use flow_report::Estimate;

use crate::figure::Check;

/// A band that counts as reproduced, and what would be the contrary.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Band {
    low: f64,
    high: f64,
    contrary: Contrary,
    unit: Unit,
}

/// Limit beyond which a claim is contradicted.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Contrary {
    Above(f64),
    Below(f64),
    Nowhere,
}

/// How numbers are printed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Unit {
    /// A factor between two.
    Times,
    /// A difference in percent.
    Percent,
}

impl Band {
    /// A factor between these; above 1 is the contrary.
    pub fn less(low: f64, high: f64) -> Self {
        Self::new(low, high, Contrary::Above(1.0), Unit::Times)
    }

    /// A factor between these; below 1 is the contrary.
    pub fn more(low: f64, high: f64) -> Self {
        Self::new(low, high, Contrary::Below(1.0), Unit::Times)
    }

    /// A factor between these that nothing is the contrary of, such as one that is said to be close to 1:
    /// leaving a band that is ours refutes nothing.
    pub fn about(low: f64, high: f64) -> Self {
        Self::new(low, high, Contrary::Nowhere, Unit::Times)
    }

    /// A change in percent between these; more than 0 is the contrary.
    pub fn drop(low: f64, high: f64) -> Self {
        Self::new(low, high, Contrary::Above(0.0), Unit::Percent)
    }

    /// A share in percent between these.
    pub fn share(low: f64, high: f64) -> Self {
        Self::new(low, high, Contrary::Nowhere, Unit::Percent)
    }

    fn new(low: f64, high: f64, contrary: Contrary, unit: Unit) -> Self {
        Self {
            low,
            high,
            contrary,
            unit,
        }
    }

    /// Holds `ours` against it. It is refuted when the whole confidence interval is the contrary:
    /// one run refutes nothing.
    pub fn check(self, what: &str, paper: &str, ours: Option<Estimate>) -> Check {
        let Some(ours) = ours else {
            let miss = Some("there was nothing to measure".to_owned());
            return Check::new(what, paper, &self.to_text(), String::new(), miss);
        };
        let miss = if ours.mean < self.low {
            Some(format!("{} too little", self.number(self.low - ours.mean)))
        } else if ours.mean > self.high {
            Some(format!("{} too much", self.number(ours.mean - self.high)))
        } else {
            None
        };
        let text = match ours.half_width {
            Some(half) => format!("{} ± {}", self.number(ours.mean), self.number(half)),
            None => self.number(ours.mean),
        };
        let refuted = miss.is_some()
            && ours.half_width.is_some_and(|half| match self.contrary {
                Contrary::Above(bound) => ours.mean - half > bound,
                Contrary::Below(bound) => ours.mean + half < bound,
                Contrary::Nowhere => false,
            });
        let check = Check::new(what, paper, &self.to_text(), text, miss);
        Check { refuted, ..check }
    }

    /// Like [`check`](Self::check), but what reaches over an end of the band with its confidence
    /// interval, or comes from one run, is not decided.
    pub fn decide(self, what: &str, paper: &str, ours: Option<Estimate>) -> Check {
        let check = self.check(what, paper, ours);
        let Some(ours) = ours else {
            return Check {
                undecided: true,
                ..check
            };
        };
        let why = match ours.half_width {
            None => Some("one round tells no interval".to_owned()),
            Some(half) => {
                let reaches = |end: f64| (ours.mean - end).abs() < half;
                let reached = [self.low, self.high].into_iter().find(|it| reaches(*it));
                let reached = reached.filter(|_| !check.refuted);
                reached.map(|end| format!("the interval reaches over {}", self.number(end)))
            }
        };
        match why {
            Some(why) => Check {
                holds: false,
                miss: Some(why),
                undecided: true,
                ..check
            },
            None => check,
        }
    }

    fn to_text(self) -> String {
        if self.high.is_infinite() {
            format!("at least {}", self.number(self.low))
        } else if self.low.is_infinite() || self.low == 0.0 {
            format!("at most {}", self.number(self.high))
        } else {
            format!("{} to {}", self.number(self.low), self.number(self.high))
        }
    }

    fn number(self, value: f64) -> String {
        match self.unit {
            Unit::Times => format!("{value:.3}"),
            Unit::Percent => format!("{value:.1} %"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(band: Band, values: &[f64]) -> (bool, bool) {
        let check = band.check("x", "y", Estimate::of(values.iter().copied()));
        (check.holds, check.refuted)
    }

    #[test]
    fn only_the_contrary_refutes() {
        let band = Band::drop(-45.0, -10.0);
        assert_eq!(check(band, &[-20.0, -22.0]), (true, false));
        assert_eq!(check(band, &[-2.0, -2.1, -1.9]), (false, false));
        assert_eq!(check(band, &[20.0, 21.0, 19.0]), (false, true));
        assert_eq!(check(band, &[20.0, -21.0, 19.0]), (false, false));
        assert_eq!(check(band, &[20.0]), (false, false), "one run");
        assert_eq!(check(band, &[]), (false, false));
        assert_eq!(
            check(Band::more(2.0, 9.0), &[0.5, 0.6, 0.55]),
            (false, true)
        );
        assert_eq!(
            check(Band::less(0.0, 0.9), &[1.5, 1.6, 1.55]),
            (false, true)
        );
        assert_eq!(
            check(Band::about(0.9, 1.1), &[1.5, 1.6, 1.55]),
            (false, false)
        );
    }

    #[test]
    fn interval_over_an_end_of_the_band_decides_nothing() {
        let decided = |band: Band, values: &[f64]| {
            let check = band.decide("x", "y", Estimate::of(values.iter().copied()));
            (check.holds, check.refuted, check.undecided)
        };
        let band = Band::more(1.3, 2.5);
        assert_eq!(decided(band, &[1.9, 2.0, 1.95]), (true, false, false));
        assert_eq!(decided(band, &[1.2, 1.9, 1.5]), (false, false, true));
        assert_eq!(decided(band, &[3.0, 3.1, 2.9]), (false, false, false));
        assert_eq!(decided(band, &[0.8, 0.81, 0.79]), (false, true, false));
        assert_eq!(decided(band, &[1.9]), (false, false, true), "one round");
        assert_eq!(decided(band, &[]), (false, false, true));
    }

    #[test]
    fn bands_read_well() {
        let text = |band: Band| band.check("x", "y", None).band;
        assert_eq!(text(Band::more(2.0, f64::INFINITY)), "at least 2.000");
        assert_eq!(text(Band::share(0.0, 0.1)), "at most 0.1 %");
        assert_eq!(text(Band::drop(-45.0, -10.0)), "-45.0 % to -10.0 %");
    }
}
