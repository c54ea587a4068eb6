//! Parses an exposition (OpenMetrics text) into metric families.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Exemplar,
    names::{self, Kind},
};

/// A metric family as a scrape shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// Full name, as a user queries it: with prefix, unit, and `_total` or `_info`.
    pub name: String,
    /// Kind by the `# TYPE` line.
    pub kind: Kind,
    /// Text of the `# HELP` line.
    pub help: String,
    /// Unit by the `# UNIT` line, else the base unit that the name ends in.
    pub unit: Option<String>,
    /// Samples in the order of the exposition. Those of a histogram carry their `_bucket`, `_sum`
    /// or `_count` in [`Sample::name`].
    pub samples: Vec<Sample>,
}

/// One line of a scrape.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Everything before the labels.
    pub name: String,
    /// Names and values, unescaped.
    pub labels: BTreeMap<String, String>,
    /// The value; a time stamp is dropped.
    pub value: f64,
    /// The observation that stands for it.
    pub exemplar: Option<Exemplar>,
}

impl Family {
    /// Returns the label names over all samples, without those that the format itself adds (`le` of
    /// a histogram).
    pub fn labels(&self) -> BTreeSet<&str> {
        self.samples
            .iter()
            .flat_map(|sample| sample.labels.keys())
            .map(String::as_str)
            .filter(|label| *label != "le")
            .collect()
    }

    /// Returns the values that `label` takes.
    pub fn label_values(&self, label: &str) -> BTreeSet<&str> {
        self.samples
            .iter()
            .filter_map(|sample| sample.labels.get(label))
            .map(String::as_str)
            .collect()
    }

    /// Returns the value of the first sample that carries all of `labels`; for a histogram its
    /// number of observations.
    pub fn value(&self, labels: &[(&str, &str)]) -> Option<f64> {
        let wanted = match self.kind {
            Kind::Histogram => format!("{}_count", self.name),
            Kind::Counter | Kind::Gauge | Kind::Info => self.name.clone(),
        };
        let carries = |sample: &Sample| {
            labels
                .iter()
                .all(|(name, value)| sample.labels.get(*name).is_some_and(|v| v == value))
        };
        self.samples
            .iter()
            .find(|sample| sample.name == wanted && carries(sample))
            .map(|sample| sample.value)
    }
}

/// A text that is not the OpenMetrics that this crate writes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpositionError {
    /// A line that is neither metadata nor a sample.
    #[error("line {line}: cannot read `{text}` as {expected}")]
    BadLine {
        /// Number of the line, counted from 1.
        line: usize,
        /// Text of the line.
        text: String,
        /// Form that the line should have.
        expected: &'static str,
    },
    /// A sample of a family that no `# TYPE` line announced before it.
    #[error("line {line}: sample `{name}` belongs to no family announced above it")]
    Unannounced {
        /// Number of the line, counted from 1.
        line: usize,
        /// Name of the sample.
        name: String,
    },
    /// Two `# TYPE` lines for one family.
    #[error("line {line}: family `{name}` is announced twice")]
    Repeated {
        /// Number of the line, counted from 1.
        line: usize,
        /// Name of the family.
        name: String,
    },
    /// The text is cut off.
    #[error("the exposition does not end with `# EOF`: it was cut off")]
    NoEnd,
}

/// Reads an exposition into its families, in its order.
///
/// # Errors
/// An [`ExpositionError`] with the line that is not as OpenMetrics asks.
pub fn parse_exposition(text: &str) -> Result<Vec<Family>, ExpositionError> {
    let mut families: Vec<Announced> = Vec::new();
    let mut help: BTreeMap<&str, &str> = BTreeMap::new();
    for (index, text) in text.lines().enumerate() {
        let at = Line {
            number: index + 1,
            text,
        };
        if text == "# EOF" {
            return Ok(families.into_iter().map(|a| a.finish(&help)).collect());
        }
        match text.strip_prefix("# ") {
            Some(metadata) => read_metadata(at, metadata, &mut families, &mut help)?,
            None => read_sample(at, &mut families)?,
        }
    }
    Err(ExpositionError::NoEnd)
}

/// A family under construction, and its name as the metadata lines give it.
struct Announced {
    bare_name: String,
    family: Family,
}

impl Announced {
    fn owns(&self, sample: &str) -> bool {
        let Some(suffix) = sample.strip_prefix(self.bare_name.as_str()) else {
            return false;
        };
        match self.family.kind {
            Kind::Counter => matches!(suffix, "_total" | "_created"),
            Kind::Info => suffix == "_info",
            Kind::Gauge => suffix.is_empty(),
            Kind::Histogram => matches!(suffix, "_bucket" | "_sum" | "_count" | "_created"),
        }
    }

    fn finish(mut self, help: &BTreeMap<&str, &str>) -> Family {
        if let Some(help) = help.get(self.bare_name.as_str()) {
            self.family.help = (*help).to_owned();
        }
        self.family
    }
}

#[derive(Clone, Copy)]
struct Line<'t> {
    number: usize,
    text: &'t str,
}

impl Line<'_> {
    fn is_not(self, expected: &'static str) -> ExpositionError {
        ExpositionError::BadLine {
            line: self.number,
            text: self.text.to_owned(),
            expected,
        }
    }
}

fn read_metadata<'t>(
    at: Line<'t>,
    metadata: &'t str,
    families: &mut Vec<Announced>,
    help: &mut BTreeMap<&'t str, &'t str>,
) -> Result<(), ExpositionError> {
    let mut words = metadata.splitn(3, ' ');
    let (Some(word), Some(name)) = (words.next(), words.next()) else {
        return Err(at.is_not("metadata"));
    };
    let rest = words.next().unwrap_or("");
    match word {
        "HELP" => {
            help.insert(name, rest);
        }
        "TYPE" => {
            let kind = Kind::parse_type(rest)
                .ok_or_else(|| at.is_not("a counter, gauge, histogram or info"))?;
            if families.iter().any(|known| known.bare_name == name) {
                return Err(ExpositionError::Repeated {
                    line: at.number,
                    name: name.to_owned(),
                });
            }
            families.push(announce(name, kind));
        }
        "UNIT" => {
            let family = families
                .iter_mut()
                .find(|known| known.bare_name == name)
                .ok_or_else(|| at.is_not("the unit of a family announced above"))?;
            family.family.unit = Some(rest.to_owned());
        }
        _ => return Err(at.is_not("HELP, TYPE, UNIT or EOF")),
    }
    Ok(())
}

fn announce(bare_name: &str, kind: Kind) -> Announced {
    Announced {
        bare_name: bare_name.to_owned(),
        family: Family {
            name: format!("{bare_name}{}", kind.suffix()),
            kind,
            help: String::new(),
            unit: names::unit_in_name(bare_name).map(str::to_owned),
            samples: Vec::new(),
        },
    }
}

fn read_sample(at: Line<'_>, families: &mut [Announced]) -> Result<(), ExpositionError> {
    let sample = parse_sample(at)?;
    let owner = families
        .iter_mut()
        .find(|known| known.owns(&sample.name))
        .ok_or_else(|| ExpositionError::Unannounced {
            line: at.number,
            name: sample.name.clone(),
        })?;
    owner.family.samples.push(sample);
    Ok(())
}

fn parse_sample(at: Line<'_>) -> Result<Sample, ExpositionError> {
    let name_length = at
        .text
        .find(['{', ' '])
        .ok_or_else(|| at.is_not("a sample"))?;
    let (name, mut rest) = at.text.split_at(name_length);
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = parse_labels(at, inside, &mut labels)?;
    }
    // Labels are behind us, and nothing else is in quotation marks.
    let (rest, exemplar) = match rest.split_once(" # {") {
        Some((rest, inside)) => (rest, Some(parse_exemplar(at, inside)?)),
        None => (rest, None),
    };
    let value = rest
        .trim_start()
        .split(' ')
        .next()
        .and_then(|value| value.parse().ok())
        .ok_or_else(|| at.is_not("a sample with a value"))?;
    Ok(Sample {
        name: name.to_owned(),
        labels,
        value,
        exemplar,
    })
}

/// Reads `a="x"} 0.5 1700000000.5`, of which the time may be missing.
fn parse_exemplar(at: Line<'_>, inside: &str) -> Result<Exemplar, ExpositionError> {
    let mut labels = BTreeMap::new();
    let rest = parse_labels(at, inside, &mut labels)?;
    let wrong = || at.is_not("an exemplar with a value");
    let mut numbers = rest
        .split_whitespace()
        .map(|it| it.parse().map_err(|_| wrong()));
    Ok(Exemplar {
        labels,
        value: numbers.next().ok_or_else(wrong)??,
        unix_s: numbers.next().transpose()?,
    })
}

/// Reads `a="x",b="y"}` and returns what follows the brace.
fn parse_labels<'t>(
    at: Line<'t>,
    mut rest: &'t str,
    labels: &mut BTreeMap<String, String>,
) -> Result<&'t str, ExpositionError> {
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Ok(after);
        }
        let (name, quoted) = rest
            .split_once("=\"")
            .ok_or_else(|| at.is_not("labels in braces"))?;
        let (value, after) =
            unquote(quoted).ok_or_else(|| at.is_not("a label value in quotation marks"))?;
        labels.insert(name.to_owned(), value);
        rest = after.strip_prefix(',').unwrap_or(after);
    }
}

/// The text up to the closing quotation mark, unescaped, and what follows it.
fn unquote(quoted: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((index, character)) = characters.next() {
        match character {
            '"' => return Some((value, &quoted[index + 1..])),
            '\\' => value.push(match characters.next()?.1 {
                'n' => '\n',
                escaped => escaped,
            }),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRAPE: &str = r##"# HELP splitter_packets Packets.
# TYPE splitter_packets counter
splitter_packets_total{class="short",tunnel="a \"b\", {c}\\"} 12
splitter_packets_total{class="long",tunnel="wan1"} 3.5e2
# HELP splitter_flow_completion_seconds Completion time.
# TYPE splitter_flow_completion_seconds histogram
# UNIT splitter_flow_completion_seconds seconds
splitter_flow_completion_seconds_sum{class="short"} 1.5
splitter_flow_completion_seconds_count{class="short"} 2
splitter_flow_completion_seconds_bucket{class="short",le="+Inf"} 2 # {id="a # {b"} 1.2 1700000000.5
# EOF
"##;

    #[test]
    fn reads_families_samples_and_labels() {
        let families = parse_exposition(SCRAPE).unwrap();
        let [packets, completion] = families.as_slice() else {
            panic!("{families:?}");
        };
        assert_eq!(packets.name, "splitter_packets_total");
        assert_eq!(packets.help, "Packets.");
        assert_eq!(packets.unit, None);
        assert_eq!(packets.value(&[("class", "long")]), Some(350.0));
        assert!(packets.label_values("tunnel").contains("a \"b\", {c}\\"));
        assert_eq!(completion.unit.as_deref(), Some("seconds"));
        assert_eq!(completion.labels(), BTreeSet::from(["class"]));
        assert_eq!(completion.value(&[]), Some(2.0));
        let exemplar = completion.samples[2].exemplar.as_ref().unwrap();
        assert_eq!(exemplar.to_string(), r#"# {id="a # {b"} 1.2 1700000000.5"#);
        assert_eq!(completion.samples[2].value, 2.0);
        assert_eq!(completion.samples[1].exemplar, None);
    }

    #[test]
    fn says_which_line_is_wrong() {
        let error = |text: &str| parse_exposition(text).unwrap_err();
        assert_eq!(error(""), ExpositionError::NoEnd);
        assert!(matches!(
            error("stray 1\n# EOF\n"),
            ExpositionError::Unannounced { line: 1, .. }
        ));
        assert!(matches!(
            error("# TYPE a gauge\na{x=\"1} 2\n# EOF\n"),
            ExpositionError::BadLine { line: 2, .. }
        ));
        assert!(matches!(
            error("# TYPE a histogram\na_bucket{le=\"1\"} 2 # {id=\"7\"} soon\n# EOF\n"),
            ExpositionError::BadLine { line: 2, .. }
        ));
        assert!(matches!(
            error("# TYPE a gauge\n# TYPE a gauge\n# EOF\n"),
            ExpositionError::Repeated { line: 2, .. }
        ));
    }
}
