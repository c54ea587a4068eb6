//! Numbers of a text that claim something was measured, and values that they may be rounded from.

use std::fmt;

/// A number as a text has it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    value: f64,
    /// Decimals that it is written with.
    decimals: usize,
    /// The half width of an interval behind `±`, with its decimals.
    half: Option<(f64, usize)>,
    unit: Unit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    None,
    Percent,
    Times,
}

impl fmt::Display for Claim {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:.*}", self.decimals, self.value)?;
        if let Some((half, decimals)) = self.half {
            write!(formatter, " ± {half:.decimals$}")?;
        }
        formatter.write_str(match self.unit {
            Unit::None => "",
            Unit::Percent => " %",
            Unit::Times => " times",
        })
    }
}

/// Finds the numbers of a text with an interval, in percent, or that count times. The level of a confidence interval
/// is none of them.
pub fn claims(text: &str) -> Vec<Claim> {
    let words: Vec<&str> = words(text).collect();
    let mut claims = Vec::new();
    let mut place = 0;
    while place < words.len() {
        let Some((value, decimals)) = number(words[place]) else {
            place += 1;
            continue;
        };
        place += 1;
        let half = match words[place..] {
            ["±", half, ..] => number(half),
            _ => None,
        };
        place += if half.is_some() { 2 } else { 0 };
        let unit = match words[place..] {
            ["%", "confidence", ..] => None,
            ["%", ..] => Some(Unit::Percent),
            ["times", ..] => Some(Unit::Times),
            _ => half.map(|_| Unit::None),
        };
        claims.extend(unit.map(|unit| Claim {
            value,
            decimals,
            half,
            unit,
        }));
    }
    claims
}

/// Words and signs; what surrounds a number in a sentence or a table is none of it.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split(|it: char| it.is_whitespace() || "|()[]`*;:".contains(it));
    let parts = parts.map(|it| it.trim_end_matches(['.', ',']));
    parts.filter(|it| !it.is_empty())
}

/// A number without its sign, and how many decimals it is written with.
fn number(word: &str) -> Option<(f64, usize)> {
    let word = word.trim_start_matches(['-', '+']).replace(',', "");
    let is_one = word.starts_with(|it: char| it.is_ascii_digit());
    let value = word.parse().ok().filter(|_| is_one)?;
    Some((value, word.split_once('.').map_or(0, |it| it.1.len())))
}

/// Numbers that are known, and those of them with intervals.
#[derive(Clone, Debug, Default)]
pub struct Values {
    single: Vec<f64>,
    pairs: Vec<(f64, f64)>,
}

impl Values {
    /// Adds all numbers of a text.
    pub fn add(&mut self, text: &str) {
        let words: Vec<&str> = words(text).collect();
        for (place, word) in words.iter().enumerate() {
            let Some((value, _)) = number(word) else {
                continue;
            };
            self.single.push(value);
            // A change in percent stands between as `-18.4 % ± 4.1 %` and `-18.4 ± 4.1 %`.
            let half = match words[place + 1..] {
                ["±", half, ..] | ["%", "±", half, ..] => number(half),
                _ => None,
            };
            self.pairs.extend(half.map(|half| (value, half.0)));
        }
    }

    /// Returns whether a number is one of them, rounded; as a change in percent it may be of a ratio.
    pub fn have(&self, claim: &Claim) -> bool {
        let is_rounded = |value: f64, of: f64, decimals: usize| {
            let half_a_digit = 0.5 * 10f64.powi(-(decimals as i32));
            (value - of).abs() <= half_a_digit * (1.0 + 1e-9)
        };
        let scales: &[fn(f64) -> f64] = match claim.unit {
            Unit::Percent => &[|it| it, |it| 100.0 * (it - 1.0).abs(), |it| 100.0 * it],
            Unit::None | Unit::Times => &[|it| it],
        };
        let fits = |of: f64| {
            scales
                .iter()
                .any(|scale| is_rounded(claim.value, scale(of), claim.decimals))
        };
        match claim.half {
            None => self.single.iter().any(|it| fits(*it)),
            Some((half, decimals)) => self.pairs.iter().any(|(mean, of)| {
                let factors = [1.0, 100.0];
                fits(*mean)
                    && factors
                        .iter()
                        .any(|factor| is_rounded(half, factor * of, decimals))
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<String> {
        claims(text).iter().map(Claim::to_string).collect()
    }

    #[test]
    fn numbers_that_claim_something_are_found() {
        let text = "At 2.5 times | -18.4 ± 4.1 % | (1,017.3 ± 0.02) of 100 kB, 20 seeds, a 95 % confidence interval; 7 %.";
        assert_eq!(
            texts(text),
            ["2.5 times", "18.4 ± 4.1 %", "1017.3 ± 0.02", "7 %"]
        );
        assert_eq!(texts("C4 to C11 and 100 kB"), [""; 0]);
    }

    #[test]
    fn a_rounded_value_is_known_and_another_is_not() {
        let mut values = Values::default();
        values.add("-18.44 % ± 4.06 %");
        values.add("1.176 ± 0.052");
        let have = |text: &str| claims(text).iter().all(|it| values.have(it));
        for known in [
            "18 %",
            "18.4 ± 4.1 %",
            "1.18 ± 0.05",
            "1.2 times",
            "17.6 %",
            "17.6 ± 5.2 %",
        ] {
            assert!(have(known), "{known}");
        }
        for unknown in [
            "19 %",
            "18.4 ± 4.2 %",
            "18.5 ± 4.1 %",
            "1.17 ± 0.05",
            "1.1 times",
            "4.06 ± 1.2",
        ] {
            assert!(!have(unknown), "{unknown}");
        }
    }
}
