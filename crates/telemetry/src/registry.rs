//! A registry with a prefix, and descriptors for what is read at scrape time.

use std::{collections::BTreeSet, fmt};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, text},
    metrics::info::Info,
    registry::{Metric, Registry},
};

use crate::{
    exemplars::{self, Exemplars},
    names::{self, Kind, NameError, SplitName},
};

/// The metrics of one program, all under one prefix.
///
/// Names are given as a user sees them, unit and `_total` included, without the
/// prefix: `metrics.register("evictions_total", ...)` shows as
/// `splitter_evictions_total`.
#[derive(Debug)]
pub struct Metrics {
    prefix: String,
    registry: Registry,
    registered: BTreeSet<String>,
    /// By the histogram's whole name.
    exemplars: Vec<(String, Exemplars)>,
}

impl Metrics {
    /// An empty registry whose metrics start with `prefix` and an underscore.
    ///
    /// # Errors
    /// [`NameError::NotSnakeCase`] for a prefix that is not.
    pub fn new(prefix: &str) -> Result<Self, NameError> {
        names::check_snake_case(prefix)?;
        Ok(Self {
            prefix: prefix.to_owned(),
            registry: Registry::with_prefix(prefix),
            registered: BTreeSet::new(),
            exemplars: Vec::new(),
        })
    }

    /// Registers `metric` and returns the handle to count with, which shares its
    /// state with the registered one.
    ///
    /// # Errors
    /// A [`NameError`] when the name breaks one of the [rules](names), is taken,
    /// or the help text is not one line.
    pub fn register<M: Metric + Clone>(
        &mut self,
        name: &str,
        help: &str,
        metric: M,
    ) -> Result<M, NameError> {
        let kind =
            Kind::of_metric(metric.metric_type()).ok_or_else(|| NameError::UntypedMetric {
                name: name.to_owned(),
            })?;
        let help = one_line(name, help)?;
        let SplitName { stem, unit } = self.claim(name, kind)?;
        match unit {
            Some(unit) => self
                .registry
                .register_with_unit(stem, help, unit, metric.clone()),
            None => self.registry.register(stem, help, metric.clone()),
        }
        Ok(metric)
    }

    /// Registers a collector, which is read at each scrape.
    ///
    /// `descriptors` are those that the collector encodes with: listing them
    /// here reserves their names. The collector may block (it runs on a thread
    /// for blocking work) but should be done well within a scrape time-out.
    ///
    /// # Errors
    /// A [`NameError`] when one of the names repeats the prefix or is taken.
    pub fn collect<'d>(
        &mut self,
        descriptors: impl IntoIterator<Item = &'d Descriptor>,
        collector: impl Collector,
    ) -> Result<(), NameError> {
        for descriptor in descriptors {
            self.claim(&descriptor.name, descriptor.kind)?;
        }
        self.registry.register_collector(Box::new(collector));
        Ok(())
    }

    /// Returns the exemplars of a histogram that a collector encodes, for the collector to set.
    ///
    /// Where the histogram has labels, all its buckets are counted through.
    ///
    /// # Errors
    /// [`NameError::NoHistogram`] for another kind of metric, [`NameError::Duplicate`] when called twice.
    pub fn exemplars(&mut self, of: &Descriptor) -> Result<Exemplars, NameError> {
        let name = of.name.clone();
        if of.kind != Kind::Histogram {
            let kind = of.kind;
            return Err(NameError::NoHistogram { name, kind });
        }
        let whole = format!("{}_{name}", self.prefix);
        if self.exemplars.iter().any(|(known, _)| *known == whole) {
            return Err(NameError::Duplicate { name });
        }
        let exemplars = Exemplars::default();
        self.exemplars.push((whole, exemplars.clone()));
        Ok(exemplars)
    }

    /// Registers `<prefix>_build_info`, constant 1, with the program's version.
    ///
    /// # Errors
    /// [`NameError::Duplicate`] when called twice.
    pub fn build_info(&mut self, version: &str) -> Result<(), NameError> {
        let info = Info::new([("version".to_owned(), version.to_owned())]);
        let SplitName { stem, .. } = self.claim("build_info", Kind::Info)?;
        self.registry
            .register(stem, "Version of the running program", info);
        Ok(())
    }

    /// The prefix without its underscore.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The whole exposition as OpenMetrics 1.0 text, collectors and exemplars
    /// included. Blocks for as long as collectors do.
    ///
    /// # Errors
    /// [`fmt::Error`] when a collector reports one.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut exposition = String::with_capacity(8 * 1024);
        text::encode(&mut exposition, &self.registry)?;
        Ok(exemplars::insert(exposition, &self.exemplars))
    }

    fn claim(&mut self, name: &str, kind: Kind) -> Result<SplitName, NameError> {
        let split = names::split(name, kind)?;
        if name.starts_with(&format!("{}_", self.prefix)) {
            return Err(NameError::RepeatsPrefix {
                name: name.to_owned(),
                prefix: self.prefix.clone(),
            });
        }
        // Families collide without their suffix: a gauge `flows` and a counter
        // `flows_total` would both be announced as `flows`.
        let family = name.strip_suffix(kind.suffix()).unwrap_or(name);
        if !self.registered.insert(family.to_owned()) {
            return Err(NameError::Duplicate {
                name: name.to_owned(),
            });
        }
        Ok(split)
    }
}

/// Name, kind, unit and help of a metric that a [`Collector`] encodes.
///
/// ```
/// use flow_telemetry::{Descriptor, Kind, Metrics};
/// use flow_telemetry::prometheus_client::{collector::Collector, encoding::DescriptorEncoder};
///
/// #[derive(Debug)]
/// struct Table {
///     entries: Descriptor,
/// }
///
/// impl Collector for Table {
///     fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
///         let mut family = self.entries.encode(&mut encoder)?;
///         for (name, entries) in [("ipv4", 12_i64), ("ipv6", 3)] {
///             family.encode_family(&[("family", name)])?.encode_gauge(&entries)?;
///         }
///         Ok(())
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let entries = Descriptor::new("flow_table_entries", Kind::Gauge, "Flows in the table")?;
/// let mut metrics = Metrics::new("splitter")?;
/// metrics.collect([&entries.clone()], Table { entries })?;
/// assert!(metrics.encode()?.contains("splitter_flow_table_entries{family=\"ipv4\"} 12"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Descriptor {
    name: String,
    kind: Kind,
    split: SplitName,
    help: String,
}

impl Descriptor {
    /// Checks `name` (without prefix, with unit and suffix) and `help`.
    ///
    /// # Errors
    /// A [`NameError`] when the name breaks one of the [rules](names) or the
    /// help text is not one line.
    pub fn new(name: &str, kind: Kind, help: &str) -> Result<Self, NameError> {
        Ok(Self {
            name: name.to_owned(),
            kind,
            split: names::split(name, kind)?,
            help: format!("{}.", one_line(name, help)?),
        })
    }

    /// Announces the family and returns the encoder for its samples.
    ///
    /// # Errors
    /// [`fmt::Error`] when the exposition cannot be written to.
    pub fn encode<'s>(
        &'s self,
        encoder: &'s mut DescriptorEncoder<'_>,
    ) -> Result<MetricEncoder<'s>, fmt::Error> {
        encoder.encode_descriptor(
            &self.split.stem,
            &self.help,
            self.split.unit.as_ref(),
            self.kind.to_metric_type(),
        )
    }
}

/// The help text without its full stop, which the encoder adds.
fn one_line<'h>(name: &str, help: &'h str) -> Result<&'h str, NameError> {
    let help = help.trim().trim_end_matches('.');
    if help.is_empty() || help.contains(['\n', '\r', '\\']) {
        return Err(NameError::BadHelp {
            name: name.to_owned(),
        });
    }
    Ok(help)
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::{counter::Counter, gauge::Gauge};

    use super::*;

    #[test]
    fn a_name_shows_as_it_was_written() {
        let mut metrics = Metrics::new("splitter").unwrap();
        let bytes = metrics
            .register("sent_bytes_total", "Bytes sent.", Counter::<u64>::default())
            .unwrap();
        bytes.inc_by(1500);
        metrics.build_info("1.2.3").unwrap();

        let exposition = metrics.encode().unwrap();
        assert!(exposition.contains("# HELP splitter_sent_bytes Bytes sent.\n"));
        assert!(exposition.contains("# UNIT splitter_sent_bytes bytes\n"));
        assert!(exposition.contains("\nsplitter_sent_bytes_total 1500\n"));
        assert!(exposition.contains("\nsplitter_build_info{version=\"1.2.3\"} 1\n"));
        assert!(exposition.ends_with("# EOF\n"));
    }

    #[test]
    fn exemplars_are_of_one_histogram_each() {
        let mut metrics = Metrics::new("splitter").unwrap();
        let times = Descriptor::new("answer_seconds", Kind::Histogram, "Time").unwrap();
        let flows = Descriptor::new("flows", Kind::Gauge, "Flows").unwrap();
        metrics.exemplars(&times).unwrap();
        assert!(matches!(
            metrics.exemplars(&times),
            Err(NameError::Duplicate { .. })
        ));
        assert!(matches!(
            metrics.exemplars(&flows),
            Err(NameError::NoHistogram { .. })
        ));
    }

    #[test]
    fn refuses_a_repeated_prefix_and_a_name_that_is_taken() {
        let mut metrics = Metrics::new("splitter").unwrap();
        let mut gauge = |name: &str| {
            metrics
                .register(name, "Some flows", Gauge::<i64>::default())
                .map(|_| ())
        };
        assert!(matches!(
            gauge("splitter_flows"),
            Err(NameError::RepeatsPrefix { .. })
        ));
        assert_eq!(gauge("flows"), Ok(()));
        assert!(matches!(gauge("flows"), Err(NameError::Duplicate { .. })));
        assert!(matches!(
            metrics.register("flows_total", "Flows", Counter::<u64>::default()),
            Err(NameError::Duplicate { .. })
        ));
    }
}
