//! Rules for metric names, checked when a metric is made.
//!
//! They are those of the Prometheus project (best practices on naming) and of
//! OpenMetrics 1.0:
//!
//! 1. `snake_case` of lower-case ASCII letters and digits, starting with a letter;
//! 2. the registry's prefix is added, so a name does not repeat it;
//! 3. counters end in `_total`, infos in `_info`, nothing else does;
//! 4. quantities come in base units: seconds, bytes, ratios; never milliseconds,
//!    kilobytes, bits or percent;
//! 5. `_count`, `_sum`, `_bucket` and `_created` belong to the exposition format.

use prometheus_client::{metrics::MetricType, registry::Unit};

/// The kind of a metric, as its `# TYPE` line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Only rises, and starts at 0 with the process or the map it lives in.
    Counter,
    /// Value that rises and falls.
    Gauge,
    /// Histogram: observations counted in buckets.
    Histogram,
    /// Constant 1; what matters is in its labels.
    Info,
}

impl Kind {
    /// Returns the type as the `# TYPE` line has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Info => "info",
        }
    }

    /// Parses the type of a `# TYPE` line.
    pub fn parse_type(name: &str) -> Option<Self> {
        [Kind::Counter, Kind::Gauge, Kind::Histogram, Kind::Info]
            .into_iter()
            .find(|kind| kind.as_str() == name)
    }

    /// Returns the suffix that the exposition format appends to the family's name in each sample
    /// and a user therefore takes as part of the name.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram => "",
        }
    }

    pub(crate) fn to_metric_type(self) -> MetricType {
        match self {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Histogram => MetricType::Histogram,
            Kind::Info => MetricType::Info,
        }
    }

    pub(crate) fn of_metric(metric_type: MetricType) -> Option<Self> {
        match metric_type {
            MetricType::Counter => Some(Kind::Counter),
            MetricType::Gauge => Some(Kind::Gauge),
            MetricType::Histogram => Some(Kind::Histogram),
            MetricType::Info => Some(Kind::Info),
            MetricType::Unknown => None,
        }
    }
}

/// A name that breaks one of the [rules](self).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Rule 1: names are in snake_case.
    #[error(
        "metric name `{name}` is not snake_case; use lower-case ASCII letters, digits and single underscores, starting with a letter"
    )]
    NotSnakeCase {
        /// The name as it was given.
        name: String,
    },
    /// Rule 2: the prefix is added to every name.
    #[error(
        "metric name `{name}` repeats the prefix `{prefix}_`, which is added to every name; leave it out"
    )]
    RepeatsPrefix {
        /// The name as it was given.
        name: String,
        /// Prefix of the registry.
        prefix: String,
    },
    /// Rule 3: the ending that the kind asks for is missing.
    #[error("{} name `{name}` must end in `{}`", kind.as_str(), kind.suffix())]
    MissingSuffix {
        /// The name as it was given.
        name: String,
        /// Kind of the metric.
        kind: Kind,
    },
    /// Rules 3 and 5: the ending belongs to another kind or to the format.
    #[error("{} name `{name}` must not end in `{suffix}`, which is reserved", kind.as_str())]
    ReservedSuffix {
        /// The name as it was given.
        name: String,
        /// Kind of the metric.
        kind: Kind,
        /// The ending that is reserved.
        suffix: &'static str,
    },
    /// Rule 4: quantities come in base units.
    #[error("metric name `{name}` carries the unit `{unit}`; convert the values and use `{base}`")]
    NotBaseUnit {
        /// The name as it was given.
        name: String,
        /// Unit that the name carries.
        unit: &'static str,
        /// The unit to use.
        base: &'static str,
    },
    /// Two metrics of one registry share a name.
    #[error(
        "metric name `{name}` is registered twice; a family is registered once and then labelled"
    )]
    Duplicate {
        /// The name as it was given.
        name: String,
    },
    /// The metric's help text is empty or more than one line.
    #[error("metric `{name}` needs a help text of one line")]
    BadHelp {
        /// The name of the metric.
        name: String,
    },
    /// Only histograms have exemplars here.
    #[error("{} `{name}` has no exemplars; a histogram has", kind.as_str())]
    NoHistogram {
        /// The name of the metric.
        name: String,
        /// Kind of the metric.
        kind: Kind,
    },
    /// The metric's type is `unknown`.
    #[error("metric `{name}` is of type `unknown`; use a counter, gauge, histogram or info")]
    UntypedMetric {
        /// The name of the metric.
        name: String,
    },
}

/// A checked name, split into what the encoder puts together again.
#[derive(Clone, Debug)]
pub(crate) struct SplitName {
    /// Without prefix, unit and suffix.
    pub(crate) stem: String,
    pub(crate) unit: Option<Unit>,
}

/// Checks `name` (without the registry's prefix) against the rules and splits it.
pub(crate) fn split(name: &str, kind: Kind) -> Result<SplitName, NameError> {
    check_snake_case(name)?;
    let family = strip_suffix(name, kind)?;
    check_base_unit(name, family)?;
    let (stem, unit) = split_unit(family);
    Ok(SplitName {
        stem: stem.to_owned(),
        unit,
    })
}

/// The base unit that a family's name ends in, `bytes` in `splitter_bytes`.
pub(crate) fn unit_in_name(family: &str) -> Option<&'static str> {
    BASE_UNITS
        .into_iter()
        .find(|unit| family.rsplit('_').next() == Some(unit))
}

pub(crate) fn check_snake_case(name: &str) -> Result<(), NameError> {
    let well_formed = name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('_')
        && !name.contains("__")
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if well_formed {
        Ok(())
    } else {
        Err(NameError::NotSnakeCase {
            name: name.to_owned(),
        })
    }
}

fn strip_suffix(name: &str, kind: Kind) -> Result<&str, NameError> {
    let family = match kind.suffix() {
        "" => name,
        suffix => name
            .strip_suffix(suffix)
            .filter(|stem| !stem.is_empty())
            .ok_or_else(|| NameError::MissingSuffix {
                name: name.to_owned(),
                kind,
            })?,
    };
    match RESERVED_SUFFIXES.iter().find(|s| family.ends_with(**s)) {
        None => Ok(family),
        Some(suffix) => Err(NameError::ReservedSuffix {
            name: name.to_owned(),
            kind,
            suffix,
        }),
    }
}

fn check_base_unit(name: &str, family: &str) -> Result<(), NameError> {
    for (unit, base) in DERIVED_UNITS {
        if family.split('_').any(|word| word == unit) {
            return Err(NameError::NotBaseUnit {
                name: name.to_owned(),
                unit,
                base,
            });
        }
    }
    Ok(())
}

/// The encoder writes the unit after the stem, so a name that is nothing but a
/// unit (`bytes_total`) keeps it as its stem and goes without a `# UNIT` line.
fn split_unit(family: &str) -> (&str, Option<Unit>) {
    let Some((stem, last)) = family.rsplit_once('_') else {
        return (family, None);
    };
    match last {
        "seconds" => (stem, Some(Unit::Seconds)),
        "bytes" => (stem, Some(Unit::Bytes)),
        "ratio" => (stem, Some(Unit::Other("ratio".to_owned()))),
        _ => (family, None),
    }
}

const BASE_UNITS: [&str; 3] = ["seconds", "bytes", "ratio"];

const RESERVED_SUFFIXES: [&str; 6] = ["_total", "_info", "_count", "_sum", "_bucket", "_created"];

const DERIVED_UNITS: [(&str, &str); 20] = [
    ("ms", "seconds"),
    ("millis", "seconds"),
    ("milliseconds", "seconds"),
    ("us", "seconds"),
    ("micros", "seconds"),
    ("microseconds", "seconds"),
    ("ns", "seconds"),
    ("nanos", "seconds"),
    ("nanoseconds", "seconds"),
    ("minutes", "seconds"),
    ("hours", "seconds"),
    ("bits", "bytes"),
    ("kb", "bytes"),
    ("kilobytes", "bytes"),
    ("kib", "bytes"),
    ("mb", "bytes"),
    ("megabytes", "bytes"),
    ("mbit", "bytes"),
    ("percent", "ratio"),
    ("percentage", "ratio"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn parts(name: &str, kind: Kind) -> (String, Option<String>) {
        let split = split(name, kind).unwrap();
        (split.stem, split.unit.map(|unit| unit.as_str().to_owned()))
    }

    #[test]
    fn splits_a_name_into_stem_and_unit() {
        let owned = |stem: &str, unit: Option<&str>| (stem.to_owned(), unit.map(str::to_owned));
        assert_eq!(
            parts("packets_total", Kind::Counter),
            owned("packets", None)
        );
        assert_eq!(parts("bytes_total", Kind::Counter), owned("bytes", None));
        assert_eq!(
            parts("sent_bytes_total", Kind::Counter),
            owned("sent", Some("bytes"))
        );
        assert_eq!(
            parts("flow_completion_seconds", Kind::Histogram),
            owned("flow_completion", Some("seconds"))
        );
        assert_eq!(parts("build_info", Kind::Info), owned("build", None));
    }

    #[test]
    fn names_the_rule_that_is_broken() {
        let error = |name, kind| split(name, kind).unwrap_err().to_string();
        assert!(error("Packets_total", Kind::Counter).contains("snake_case"));
        assert!(error("packets__total", Kind::Counter).contains("snake_case"));
        assert!(error("packets", Kind::Counter).contains("must end in `_total`"));
        assert!(error("_total", Kind::Counter).contains("snake_case"));
        assert!(error("packets_total", Kind::Gauge).contains("must not end in `_total`"));
        assert!(error("rtt_count", Kind::Histogram).contains("reserved"));
        assert!(error("build", Kind::Info).contains("`_info`"));
        assert!(error("rtt_ms", Kind::Gauge).contains("use `seconds`"));
        assert!(error("sent_bits_total", Kind::Counter).contains("use `bytes`"));
    }
}
