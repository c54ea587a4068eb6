//! Bands: the paper's claim of a number, and how ours stands to it.

use flow_report::Estimate;

use crate::check::{Check, Comparison, Numbers};

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
    /// A factor of at most this; above 1 is the contrary.
    pub fn less(high: f64) -> Self {
        Self::new(f64::NEG_INFINITY, high, Contrary::Above(1.0), Unit::Times)
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

    /// Holds `ours` against it, by itself: those of an item are [judged together](crate::check::correct).
    pub fn check(self, what: &str, paper: &str, ours: Option<Estimate>) -> Check {
        let comparison = self.compare("", self.stated(paper), ours);
        Check::of_all(what, paper, &self.to_text(), vec![comparison])
    }

    /// Like [`check`](Self::check) with several estimates, each with its name, that all have to lie in it. The farthest from the middle of a
    /// claim, which a reader would pick, is compared as one of so many.
    pub fn check_all<'a>(
        self,
        what: &str,
        paper: &str,
        ours: impl IntoIterator<Item = (&'a str, Estimate)>,
    ) -> Check {
        let mut ours: Vec<(&str, Estimate)> = ours.into_iter().collect();
        ours.sort_by(|a, b| self.margin(a.1.mean).total_cmp(&self.margin(b.1.mean)));
        let each = ours.into_iter();
        let each = each.map(|(name, ours)| self.compare(name, self.stated(paper), Some(ours)));
        let mut each: Vec<Comparison> = each.collect();
        if each.is_empty() {
            each.push(self.compare("", self.stated(paper), None));
        }
        Check::of_all(what, paper, &self.to_text(), each)
    }

    /// Like [`check`](Self::check) at each of several loads, where the paper names none: what the paper says
    /// may hold at some and be contradicted at others. With a load at which neither is the case, and none at which it holds,
    /// that is not decided.
    pub fn over_loads(
        self,
        what: &str,
        paper: &str,
        ours: impl IntoIterator<Item = (f64, Option<Estimate>)>,
    ) -> Check {
        let each = ours.into_iter();
        let each = each.map(|(load, ours)| self.compare(&load.to_string(), None, ours));
        let mut each: Vec<Comparison> = each.collect();
        if each.is_empty() {
            each.push(self.compare("no load", None, None));
        }
        Check::over_loads(what, paper, &self.to_text(), each)
    }

    /// Holds a value against it that chance has no part in, or of which no interval is known, as the fit of a line through means.
    pub fn check_value(self, what: &str, paper: &str, ours: Option<f64>) -> Check {
        let Some(ours) = ours else {
            return self.check(what, paper, None);
        };
        let check = Check::new(
            what,
            paper,
            &self.to_text(),
            self.number(ours),
            self.miss(ours),
        );
        check.with_numbers((self.low, self.high), self.stated(paper), ours)
    }

    /// An estimate beside it, for a check of several. `name` is that among these, and `paper` the value that it states.
    pub fn compare(self, name: &str, paper: Option<f64>, ours: Option<Estimate>) -> Comparison {
        let numbers = Some(Numbers {
            band: (self.low, self.high),
            paper,
            ours,
        });
        let Some(ours) = ours else {
            return Comparison::unclear(name, numbers, "there was nothing to measure");
        };
        let Some(half) = ours.half_width else {
            return Comparison {
                ours: self.number(ours.mean),
                miss: self.miss(ours.mean),
                ..Comparison::unclear(name, numbers, "one run tells no interval")
            };
        };
        let is_beyond = ours.mean < self.low || ours.mean > self.high;
        let end = if ours.mean < self.low {
            self.low
        } else {
            self.high
        };
        let p_value = |is: bool, of: f64| match ours.p_value(of) {
            Some(p) if is => p,
            _ => 1.0,
        };
        let reached = [self.low, self.high]
            .into_iter()
            .find(|end| (ours.mean - end).abs() < half)
            .map_or_else(String::new, |end| {
                format!("the interval reaches over {}", self.number(end))
            });
        Comparison {
            name: name.to_owned(),
            ours: format!("{} ± {}", self.number(ours.mean), self.number(half)),
            numbers,
            is_inside: ours.mean - half >= self.low && ours.mean + half <= self.high,
            p_outside: p_value(is_beyond, end),
            p_contrary: match self.contrary {
                Contrary::Above(bound) => p_value(is_beyond && ours.mean > bound, bound),
                Contrary::Below(bound) => p_value(is_beyond && ours.mean < bound, bound),
                Contrary::Nowhere => 1.0,
            },
            miss: self.miss(ours.mean),
            unclear: reached,
        }
    }

    /// The distance to the nearer end, negative beyond it.
    fn margin(self, ours: f64) -> f64 {
        (ours - self.low).min(self.high - ours)
    }

    fn miss(self, ours: f64) -> Option<String> {
        if ours < self.low {
            Some(format!("{} too little", self.number(self.low - ours)))
        } else if ours > self.high {
            Some(format!("{} too much", self.number(ours - self.high)))
        } else {
            None
        }
    }

    /// The value that a text of the paper states, in the unit of the band; nothing if it states a direction
    /// alone.
    fn stated(self, paper: &str) -> Option<f64> {
        let number = |it: &str| it.replace(',', "").parse::<f64>().ok();
        let words: Vec<&str> = paper.split_whitespace().collect();
        match (self.unit, &words[..]) {
            (Unit::Times, [.., percent, "%", "longer"]) => Some(1.0 + number(percent)? / 100.0),
            (Unit::Percent, [.., percent, "%"]) => number(percent),
            (Unit::Times, [.., times, "times"] | [.., times]) => number(times),
            (Unit::Percent, [.., "near", nothing]) => number(nothing),
            _ => None,
        }
    }

    fn to_text(self) -> String {
        if self.high.is_infinite() {
            format!("at least {}", self.number(self.low))
        } else if self.low.is_infinite() {
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
        assert_eq!(check(band, &[-20.0, -22.0, -21.0]), (true, false));
        assert_eq!(check(band, &[-2.0, -2.1, -1.9]), (false, false));
        assert_eq!(check(band, &[20.0, 21.0, 19.0]), (false, true));
        assert_eq!(check(band, &[20.0, -21.0, 19.0]), (false, false));
        assert_eq!(check(band, &[20.0]), (false, false), "one run");
        assert_eq!(check(band, &[]), (false, false));
        assert_eq!(
            check(Band::more(2.0, 9.0), &[0.5, 0.6, 0.55]),
            (false, true)
        );
        assert_eq!(check(Band::less(0.9), &[1.5, 1.6, 1.55]), (false, true));
        assert_eq!(
            check(Band::about(0.9, 1.1), &[1.5, 1.6, 1.55]),
            (false, false)
        );
    }

    #[test]
    fn interval_over_an_end_of_the_band_decides_nothing() {
        let decided = |band: Band, values: &[f64]| {
            let check = band.check("x", "y", Estimate::of(values.iter().copied()));
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
    fn contrary_at_some_loads_alone_depends_on_them() {
        let over = |runs: &[(f64, [f64; 3])]| {
            let ours = runs
                .iter()
                .map(|(load, values)| (*load, Estimate::of(*values)));
            Band::more(1.0, f64::INFINITY).over_loads("x", "y", ours)
        };
        let (above, below) = ([1.2, 1.3, 1.25], [0.5, 0.6, 0.55]);
        let unclear = [0.6, 0.9, 1.4];
        let check = over(&[(0.1, above), (0.5, below), (0.9, below)]);
        assert!(check.by_load && !check.refuted && !check.holds);
        assert_eq!(
            check.verdict(),
            "depends on load: holds at 0.1, is contradicted at 0.5, 0.9"
        );
        assert!(
            check.ours.starts_with("1.250 ± 0.124 at 0.1, 0.550"),
            "{}",
            check.ours
        );
        let check = over(&[(0.1, below), (0.5, below)]);
        assert!(check.refuted && !check.by_load);
        assert!(over(&[(0.1, above), (0.5, above)]).holds);
        let check = over(&[(0.1, above), (0.5, unclear)]);
        assert!(!check.holds && !check.refuted && !check.by_load);
        let check = over(&[(0.1, unclear), (0.5, below)]);
        assert!(check.undecided && !check.refuted);
        assert_eq!(
            check.verdict(),
            "not decided: contradicted at 0.5, unclear at 0.1"
        );
        assert!(!over(&[]).holds);
    }

    #[test]
    fn paper_states_a_value_or_a_direction() {
        let times = Band::more(1.0, 2.0);
        let percent = Band::drop(-45.0, -10.0);
        for (band, text, value) in [
            (times, "up to 3.02 times", Some(3.02)),
            (times, "51 % longer", Some(1.51)),
            (times, "5,412 to 6,907 us: 1.276", Some(1.276)),
            (times, "100 kB is best", None),
            (times, "RPS is lowest", None),
            (percent, "about -20 %", Some(-20.0)),
            (percent, "near 0", Some(0.0)),
            (percent, "much higher", None),
        ] {
            let numbers = band.check("x", text, None).numbers;
            assert_eq!(numbers.and_then(|it| it.paper), value, "{text}");
        }
    }

    #[test]
    fn bands_read_well() {
        let text = |band: Band| band.check("x", "y", None).band;
        assert_eq!(text(Band::more(2.0, f64::INFINITY)), "at least 2.000");
        assert_eq!(text(Band::share(f64::NEG_INFINITY, 0.1)), "at most 0.1 %");
        assert_eq!(text(Band::drop(-45.0, -10.0)), "-45.0 % to -10.0 %");
    }
}
