//! Empirical distributions of message sizes: points of a cumulative distribution function, joined
//! by lines.

use std::{fs, path::Path};

use thiserror::Error;

/// An empirical distribution (CDF) of message sizes. Two points of the same size are an atom.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeDistribution {
    points: Vec<(f64, f64)>,
}

/// Why a distribution cannot be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SizeDistributionError {
    /// It is neither built in nor a file.
    #[error("there is no such distribution, and the file {path} cannot be read ({reason}); built in are {}", distribution_names().join(", "))]
    Unknown {
        /// Path that was tried.
        path: String,
        /// Message of the operating system.
        reason: String,
    },
    /// A line does not hold two numbers.
    #[error("line {line} is not SIZE_BYTES,CDF with two numbers")]
    Line {
        /// Which one, from 1.
        line: u64,
    },
    /// Sizes or probabilities fall.
    #[error("line {line}: {what} {value} is less than {before} before it; both columns must rise")]
    Falls {
        /// Which one, from 1.
        line: u64,
        /// Name of the column.
        what: &'static str,
        /// Value that is there.
        value: String,
        /// Value in the line above it.
        before: String,
    },
    /// A value that cannot be.
    #[error("line {line}: {what} is {value}, which must be {must}")]
    Range {
        /// Which one, from 1.
        line: u64,
        /// Name of the column.
        what: &'static str,
        /// Value that is there.
        value: String,
        /// Values that may be there.
        must: &'static str,
    },
    /// The last probability is not 1.
    #[error("the distribution ends at {last} instead of 1")]
    Short {
        /// Value of the last probability.
        last: String,
    },
}

/// Quantiles that the share of partly filled segments is taken from.
const QUANTILES: u32 = 10_000;

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../distributions/", $name, ".csv")))),*]
    };
}

const BUILT_IN: &[(&str, &str)] = built_in![
    "cache_follower_tr_table1",
    "cache_follower_xpass",
    "cache_pias_tg",
    "data_mining_tr_table1",
    "data_mining_vl2_tg",
    "data_mining_xpass",
    "facebook_tg",
    "hadoop_tg",
    "web_search_dctcp_tg",
    "web_search_tr_table1",
    "web_search_xpass",
    "web_server_tr_table1",
    "web_server_xpass",
];

/// Names of the distributions that are built in.
pub fn distribution_names() -> Vec<&'static str> {
    BUILT_IN.iter().map(|(name, _)| *name).collect()
}

impl SizeDistribution {
    /// Returns its points: a size in bytes, and the probability of sizes up to it.
    pub fn points(&self) -> &[(f64, f64)] {
        &self.points
    }

    /// One that is built in, or a file of `directory`.
    ///
    /// # Errors
    /// When there is none, or when it is no distribution.
    pub fn load(name: &str, directory: &Path) -> Result<Self, SizeDistributionError> {
        if let Some((_, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
            return Self::parse(text);
        }
        let path = directory.join(name);
        let text = fs::read_to_string(&path).map_err(|error| SizeDistributionError::Unknown {
            path: path.display().to_string(),
            reason: error.to_string(),
        })?;
        Self::parse(&text)
    }

    /// Reads lines of `size_bytes,cdf`. Lines that start with `#` and a heading are skipped.
    ///
    /// # Errors
    /// When it is no distribution.
    pub fn parse(text: &str) -> Result<Self, SizeDistributionError> {
        let mut reader = csv::ReaderBuilder::new()
            .comment(Some(b'#'))
            .has_headers(false)
            .flexible(true)
            .trim(csv::Trim::All)
            .from_reader(text.as_bytes());
        let mut points: Vec<(f64, f64)> = Vec::new();
        for (index, record) in reader.records().enumerate() {
            let record = record.map_err(|error| SizeDistributionError::Line {
                line: error.position().map_or(0, csv::Position::line),
            })?;
            let line = record.position().map_or(0, csv::Position::line);
            if index == 0 && record.get(0) == Some("size_bytes") {
                continue;
            }
            let point = point(&record, line)?;
            if let Some(before) = points.last() {
                rises(line, "size", before.0, point.0)?;
                rises(line, "probability", before.1, point.1)?;
            }
            points.push(point);
        }
        match points.last() {
            Some((_, last)) if *last == 1.0 => Ok(Self { points }),
            last => Err(SizeDistributionError::Short {
                last: last.map_or(0.0, |it| it.1).to_string(),
            }),
        }
    }

    /// The size that `share` of all do not exceed; at least 1 byte.
    pub fn at(&self, share: f64) -> u64 {
        let above = self.points.partition_point(|(_, cdf)| *cdf < share);
        let Some((size, cdf)) = self.points.get(above).copied() else {
            return self.points.last().map_or(1, |it| it.0 as u64).max(1);
        };
        let Some((size_below, cdf_below)) = above.checked_sub(1).map(|it| self.points[it]) else {
            return (size as u64).max(1);
        };
        let part = (share - cdf_below) / (cdf - cdf_below);
        ((size_below + part * (size - size_below)) as u64).max(1)
    }

    /// The mean size in bytes.
    pub fn mean(&self) -> f64 {
        let first = self.points.first().map_or(0.0, |it| it.0 * it.1);
        let lines = self.points.windows(2).map(|pair| {
            let [(a, from), (b, to)] = [pair[0], pair[1]];
            (a + b) / 2.0 * (to - from)
        });
        first + lines.sum::<f64>()
    }

    /// The mean number of segments, the last of which is mostly not full.
    pub fn mean_segments(&self, mss: u16) -> f64 {
        let mss = u64::from(mss);
        let rest = |quantile: u32| {
            let bytes = self.at((f64::from(quantile) + 0.5) / f64::from(QUANTILES));
            bytes.div_ceil(mss) as f64 - bytes as f64 / mss as f64
        };
        let rests = (0..QUANTILES).map(rest).sum::<f64>() / f64::from(QUANTILES);
        self.mean() / mss as f64 + rests
    }
}

fn point(record: &csv::StringRecord, line: u64) -> Result<(f64, f64), SizeDistributionError> {
    let number = |column| record.get(column).and_then(|it| it.parse::<f64>().ok());
    let (Some(size), Some(cdf), 2) = (number(0), number(1), record.len()) else {
        return Err(SizeDistributionError::Line { line });
    };
    let range = |what, value: f64, must| SizeDistributionError::Range {
        line,
        what,
        value: value.to_string(),
        must,
    };
    if !(0.0..=1e11).contains(&size) {
        return Err(range("the size", size, "between 0 and 1e11"));
    }
    if !(0.0..=1.0).contains(&cdf) {
        return Err(range("the probability", cdf, "between 0 and 1"));
    }
    Ok((size, cdf))
}

fn rises(
    line: u64,
    what: &'static str,
    before: f64,
    value: f64,
) -> Result<(), SizeDistributionError> {
    if value < before {
        return Err(SizeDistributionError::Falls {
            line,
            what,
            value: value.to_string(),
            before: before.to_string(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_are_built_in_are_distributions_with_the_means_they_state() {
        for (name, text) in BUILT_IN {
            let distribution = SizeDistribution::parse(text).expect(name);
            let stated = text
                .lines()
                .find_map(|it| it.strip_prefix("# mean(linear)="));
            let stated: f64 = stated
                .and_then(|it| it.strip_suffix(" B"))
                .and_then(|it| it.parse().ok())
                .expect(name);
            let ratio = distribution.mean() / stated;
            assert!((ratio - 1.0).abs() < 0.001, "{name}: {ratio}");
        }
    }

    #[test]
    fn sizes_lie_on_the_lines_and_atoms_at_their_points() {
        let it = SizeDistribution::parse("10,0\n10,0.5\n20,0.5\n30,1").expect("rises to 1");
        assert_eq!(it.at(0.25), 10);
        assert_eq!(it.at(0.75), 25);
        assert_eq!(it.at(1.0), 30);
        assert_eq!(it.mean(), 17.5);
        // Half have one segment, half have three; where they lie between 20 and 21 bytes, two.
        assert!((it.mean_segments(10) - 2.0).abs() < 0.05);
    }

    #[test]
    fn what_is_none_is_refused_with_line_and_reason() {
        let message = |text: &str| {
            SizeDistribution::parse(text)
                .map(|_| ())
                .map_err(|it| it.to_string())
        };
        let error = |text: &str| message(text).expect_err("it is none");
        assert_eq!(
            error("1,0\n2,0.9"),
            "the distribution ends at 0.9 instead of 1"
        );
        assert_eq!(error(""), "the distribution ends at 0 instead of 1");
        assert!(error("1,0\n2,0.9\n3,0.8\n4,1").starts_with("line 3: probability 0.8 is less"));
        assert!(error("# x\n5,0\n2,1").starts_with("line 3: size 2 is less than 5"));
        assert!(error("1,0\n2,1.5").starts_with("line 2: the probability is 1.5"));
        assert!(error("-1,0\n2,1").starts_with("line 1: the size is -1"));
        assert!(error("1,nan\n2,1").starts_with("line 1: the probability is NaN"));
        assert!(error("a,b").starts_with("line 1 is not"));
        assert!(error("1,0,0").starts_with("line 1 is not"));
        let missing = SizeDistribution::load("no_such", Path::new("/nowhere"));
        let message = missing.expect_err("there is none").to_string();
        assert!(message.contains("web_search_xpass") && message.contains("/nowhere/no_such"));
    }
}
