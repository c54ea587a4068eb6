//! Empirical distributions of message sizes: points of a cumulative distribution function, joined
//! by lines.

use std::{fs::File, io::Read as _, path::Path};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// An empirical distribution (CDF) of message sizes. Two points of the same size are an atom.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeDistribution {
    points: Vec<(f64, f64)>,
}

/// The formats in which other simulators keep distributions: a point a line, columns between blanks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SizeFormat {
    /// What `RandomVariable/Empirical` of ns-2 loads: size, a count that nobody reads, and probability up to 1.
    Ns2,
    /// What the traffic generator of ns-3's RDMA simulations (HPCC) reads: size, and percent up to 100.
    Ns3,
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
    /// A line of another format does not hold its columns.
    #[error("line {line} is not {must}")]
    Columns {
        /// Which one, from 1.
        line: u64,
        /// The columns that there should be.
        must: &'static str,
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
        Self::parse(&read(&directory.join(name))?)
    }

    /// Reads a file in the format of another simulator, whose sizes are in units of so many bytes.
    ///
    /// # Errors
    /// When it cannot be read, or when it is no distribution.
    pub fn load_as(
        format: SizeFormat,
        unit_bytes: u32,
        path: &Path,
    ) -> Result<Self, SizeDistributionError> {
        Self::parse_as(format, unit_bytes, &read(path)?)
    }

    /// Reads lines in the format of another simulator. Empty ones and those that start with `#` are skipped.
    ///
    /// # Errors
    /// When it is no distribution.
    pub fn parse_as(
        format: SizeFormat,
        unit_bytes: u32,
        text: &str,
    ) -> Result<Self, SizeDistributionError> {
        let mut points = Vec::new();
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let numbers: Result<Vec<f64>, _> = text.split_whitespace().map(str::parse).collect();
            let (size, cdf) = match (format, numbers.as_deref()) {
                (SizeFormat::Ns2, Ok(&[size, _, cdf])) => (size, cdf),
                (SizeFormat::Ns3, Ok(&[size, percent])) => (size, percent / 100.0),
                _ => {
                    let must = format.columns();
                    return Err(SizeDistributionError::Columns { line, must });
                }
            };
            push(&mut points, line, (size * f64::from(unit_bytes), cdf))?;
        }
        Self::whole(points)
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
            push(&mut points, line, point(&record, line)?)?;
        }
        Self::whole(points)
    }

    fn whole(points: Vec<(f64, f64)>) -> Result<Self, SizeDistributionError> {
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

impl SizeFormat {
    fn columns(self) -> &'static str {
        match self {
            Self::Ns2 => "SIZE COUNT PROBABILITY with three numbers",
            Self::Ns3 => "SIZE PERCENT with two numbers",
        }
    }
}

/// Most bytes that a file may have: a hundred times what any known one has.
const MAX_FILE: u64 = 1 << 20;

fn read(path: &Path) -> Result<String, SizeDistributionError> {
    let unknown = |reason: String| SizeDistributionError::Unknown {
        path: path.display().to_string(),
        reason,
    };
    let mut text = String::new();
    let file = File::open(path).map_err(|it| unknown(it.to_string()))?;
    let read = file.take(MAX_FILE + 1).read_to_string(&mut text);
    match read.map_err(|it| unknown(it.to_string()))? as u64 {
        ..=MAX_FILE => Ok(text),
        _ => Err(unknown(format!("it has more than {MAX_FILE} bytes"))),
    }
}

fn point(record: &csv::StringRecord, line: u64) -> Result<(f64, f64), SizeDistributionError> {
    let number = |column| record.get(column).and_then(|it| it.parse::<f64>().ok());
    let (Some(size), Some(cdf), 2) = (number(0), number(1), record.len()) else {
        return Err(SizeDistributionError::Line { line });
    };
    Ok((size, cdf))
}

/// Adds a point that can be, behind the one before.
fn push(
    points: &mut Vec<(f64, f64)>,
    line: u64,
    (size, cdf): (f64, f64),
) -> Result<(), SizeDistributionError> {
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
    if let Some(before) = points.last() {
        rises(line, "size", before.0, size)?;
        rises(line, "probability", before.1, cdf)?;
    }
    points.push((size, cdf));
    Ok(())
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
    fn formats_of_other_simulators_give_the_points_of_their_files() {
        let expected = SizeDistribution::parse("0,0\n1460,0.25\n14600,1");
        let ns2 = "0 1 0\n1 1 0.25\n\n# packets\n 10\t1 1\n";
        assert_eq!(
            SizeDistribution::parse_as(SizeFormat::Ns2, 1460, ns2),
            expected
        );
        let ns3 = "0 0\n1460 25\n14600 100\n";
        assert_eq!(
            SizeDistribution::parse_as(SizeFormat::Ns3, 1, ns3),
            expected
        );
        for (format, text, message) in [
            (
                SizeFormat::Ns2,
                ns3,
                "line 1 is not SIZE COUNT PROBABILITY with three numbers",
            ),
            (
                SizeFormat::Ns3,
                "# x\n0 x",
                "line 2 is not SIZE PERCENT with two numbers",
            ),
            (
                SizeFormat::Ns3,
                "0 0\n1 101",
                "line 2: the probability is 1.01",
            ),
            (
                SizeFormat::Ns3,
                "0 0\n1 99",
                "the distribution ends at 0.99",
            ),
            (
                SizeFormat::Ns2,
                "5 1 0\n1 1 1",
                "line 2: size 1460 is less than 7300",
            ),
            (
                SizeFormat::Ns2,
                "1e9 1 0",
                "line 1: the size is 1460000000000",
            ),
        ] {
            let error = SizeDistribution::parse_as(format, 1460, text).expect_err("it is none");
            assert!(error.to_string().starts_with(message), "{error}");
        }
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
