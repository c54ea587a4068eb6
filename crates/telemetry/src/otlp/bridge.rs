//! The bridge from Prometheus to OTLP: what a scrape shows, as OTLP's data model has it
//! (OpenTelemetry, "Prometheus and OpenMetrics Compatibility").
//!
//! Names stay as a scrape has them, unit and `_total` included, so that pages, dashboards and alert rules
//! hold on both ways.

use std::collections::{BTreeMap, HashMap};

use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Exemplar, Gauge, Histogram, HistogramDataPoint, Metric,
    NumberDataPoint, Sum, exemplar, metric::Data, number_data_point::Value,
};

use super::settings::text;
use crate::{
    Kind,
    docs::{Family, Sample},
};

type Labels = BTreeMap<String, String>;

/// Converts one scrape after the other, and knows since when each counter counts.
#[derive(Debug, Default)]
pub(crate) struct Bridge {
    /// By family and labels. What a scrape has no more is forgotten with it.
    counting: HashMap<(String, Labels), Counting>,
}

/// The time since when a counter is known to count, and what it showed last.
#[derive(Clone, Copy, Debug)]
struct Counting {
    since_ns: u64,
    last: f64,
}

impl Bridge {
    /// Converts what was scraped at `now_ns` (since 1970).
    pub(crate) fn convert(&mut self, families: &[Family], now_ns: u64) -> Vec<Metric> {
        let mut conversion = Conversion {
            before: std::mem::take(&mut self.counting),
            counting: HashMap::new(),
            now_ns,
        };
        let metrics = families.iter().map(|it| conversion.metric(it)).collect();
        self.counting = conversion.counting;
        metrics
    }
}

/// Counts the points of metrics: what a collector means by data points.
pub(crate) fn points(metrics: &[Metric]) -> u64 {
    let count = |metric: &Metric| match &metric.data {
        Some(Data::Gauge(it)) => it.data_points.len(),
        Some(Data::Sum(it)) => it.data_points.len(),
        Some(Data::Histogram(it)) => it.data_points.len(),
        _ => 0,
    };
    metrics.iter().map(|it| count(it) as u64).sum()
}

/// The conversion of one scrape.
struct Conversion {
    before: HashMap<(String, Labels), Counting>,
    counting: HashMap<(String, Labels), Counting>,
    now_ns: u64,
}

impl Conversion {
    fn metric(&mut self, family: &Family) -> Metric {
        let cumulative = AggregationTemporality::Cumulative as i32;
        let data = match family.kind {
            Kind::Counter => Data::Sum(Sum {
                data_points: self.totals(family),
                aggregation_temporality: cumulative,
                is_monotonic: true,
            }),
            Kind::Gauge => Data::Gauge(Gauge {
                data_points: self.values(family),
            }),
            // Constant 1, and what matters in its attributes; a sum that is not monotonic, as the
            // compatibility page asks.
            Kind::Info => Data::Sum(Sum {
                data_points: self.values(family),
                aggregation_temporality: cumulative,
                is_monotonic: false,
            }),
            Kind::Histogram => Data::Histogram(Histogram {
                data_points: self.distributions(family),
                aggregation_temporality: cumulative,
            }),
        };
        Metric {
            name: family.name.clone(),
            description: family.help.clone(),
            unit: unit(family).to_owned(),
            data: Some(data),
            ..Metric::default()
        }
    }

    fn values(&self, family: &Family) -> Vec<NumberDataPoint> {
        let point = |sample: &Sample| NumberDataPoint {
            attributes: attributes(&sample.labels),
            time_unix_nano: self.now_ns,
            value: Some(Value::AsDouble(sample.value)),
            ..NumberDataPoint::default()
        };
        family.samples.iter().map(point).collect()
    }

    fn totals(&mut self, family: &Family) -> Vec<NumberDataPoint> {
        let mut points = self.values(family);
        for (point, sample) in points.iter_mut().zip(&family.samples) {
            point.start_time_unix_nano = self.since(&family.name, &sample.labels, sample.value);
        }
        points
    }

    fn distributions(&mut self, family: &Family) -> Vec<HistogramDataPoint> {
        let mut series: Vec<(Labels, Distribution)> = Vec::new();
        for sample in &family.samples {
            let mut labels = sample.labels.clone();
            let bound = labels.remove("le");
            let index = match series.iter().position(|(known, _)| *known == labels) {
                Some(index) => index,
                None => {
                    series.push((labels, Distribution::default()));
                    series.len() - 1
                }
            };
            let distribution = &mut series[index].1;
            distribution
                .exemplars
                .extend(sample.exemplar.as_ref().map(converted));
            match (sample.name.strip_prefix(&family.name), bound) {
                (Some("_sum"), _) => distribution.sum = sample.value,
                (Some("_count"), _) => distribution.count = sample.value as u64,
                (Some("_bucket"), Some(bound)) => distribution.bucket(&bound, sample.value as u64),
                _ => {}
            }
        }
        let points = series.into_iter().map(|(labels, it)| HistogramDataPoint {
            start_time_unix_nano: self.since(&family.name, &labels, it.count as f64),
            time_unix_nano: self.now_ns,
            attributes: attributes(&labels),
            count: it.count,
            sum: Some(it.sum),
            bucket_counts: it.counts,
            explicit_bounds: it.bounds,
            exemplars: it.exemplars,
            ..HistogramDataPoint::default()
        });
        points.collect()
    }

    /// The time since when a counter counts: that of its first scrape here, for what came before may be
    /// from another process (the kernel's maps outlive the agent). Whoever reads it sees from a first point
    /// that starts when it was taken that its value is not from a known start on (OpenTelemetry, "Metrics
    /// Data Model", "Cumulative streams: handling unknown start time"). A counter that falls has begun
    /// again.
    fn since(&mut self, family: &str, labels: &Labels, value: f64) -> u64 {
        let key = (family.to_owned(), labels.clone());
        let since_ns = match self.before.get(&key) {
            Some(known) if known.last <= value => known.since_ns,
            _ => self.now_ns,
        };
        let counting = Counting {
            since_ns,
            last: value,
        };
        self.counting.insert(key, counting);
        since_ns
    }
}

/// A histogram of one series while its samples are read.
#[derive(Default)]
struct Distribution {
    sum: f64,
    count: u64,
    bounds: Vec<f64>,
    counts: Vec<u64>,
    counted: u64,
    exemplars: Vec<Exemplar>,
}

impl Distribution {
    /// Adds a bucket, whose count Prometheus has together with all those below it. The last one has no
    /// bound in OTLP.
    fn bucket(&mut self, bound: &str, cumulative: u64) {
        if let Some(bound) = bound.parse().ok().filter(|it: &f64| it.is_finite()) {
            self.bounds.push(bound);
        }
        self.counts.push(cumulative.saturating_sub(self.counted));
        self.counted = cumulative;
    }
}

fn converted(exemplar: &crate::Exemplar) -> Exemplar {
    Exemplar {
        filtered_attributes: attributes(&exemplar.labels),
        time_unix_nano: exemplar.unix_s.map_or(0, |it| (it * 1e9) as u64),
        value: Some(exemplar::Value::AsDouble(exemplar.value)),
        ..Exemplar::default()
    }
}

fn attributes(labels: &Labels) -> Vec<opentelemetry_proto::tonic::common::v1::KeyValue> {
    labels.iter().map(|(key, value)| text(key, value)).collect()
}

/// The unit in UCUM, as OTLP writes units.
fn unit(family: &Family) -> &str {
    match family.unit.as_deref() {
        Some("seconds") => "s",
        Some("bytes") => "By",
        Some("ratio") => "1",
        Some(other) => other,
        None => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::docs::parse_exposition;

    fn exposition(short: u32, fast: u32, all: u32) -> Vec<Family> {
        let text = format!(
            "# HELP a_sent_bytes Bytes sent.\n# TYPE a_sent_bytes counter\n# UNIT a_sent_bytes bytes\n\
             a_sent_bytes_total{{class=\"short\"}} {short}\n\
             # HELP a_used_ratio Share.\n# TYPE a_used_ratio gauge\n# UNIT a_used_ratio ratio\n\
             a_used_ratio 0.25\n\
             # HELP a_build Version.\n# TYPE a_build info\na_build_info{{version=\"1\"}} 1\n\
             # HELP a_time_seconds Times.\n# TYPE a_time_seconds histogram\n# UNIT a_time_seconds seconds\n\
             a_time_seconds_sum{{class=\"long\"}} 7.5\na_time_seconds_count{{class=\"long\"}} {all}\n\
             a_time_seconds_bucket{{le=\"0.5\",class=\"long\"}} {fast}\n\
             a_time_seconds_bucket{{le=\"1.0\",class=\"long\"}} {fast}\n\
             a_time_seconds_bucket{{le=\"+Inf\",class=\"long\"}} {all} # {{id=\"7\"}} 6.5 1700000000.5\n# EOF\n"
        );
        parse_exposition(&text).unwrap()
    }

    fn sum(metric: &Metric) -> &Sum {
        match &metric.data {
            Some(Data::Sum(sum)) => sum,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn families_keep_their_names_and_say_what_they_are() {
        let metrics = Bridge::default().convert(&exposition(3, 1, 4), 5);
        let named: Vec<_> = metrics
            .iter()
            .map(|it| (it.name.as_str(), it.unit.as_str(), it.description.as_str()))
            .collect();
        assert_eq!(
            named,
            [
                ("a_sent_bytes_total", "By", "Bytes sent."),
                ("a_used_ratio", "1", "Share."),
                ("a_build_info", "", "Version."),
                ("a_time_seconds", "s", "Times."),
            ]
        );
        let total = sum(&metrics[0]);
        assert!(total.is_monotonic);
        assert_eq!(total.aggregation_temporality, 2);
        assert_eq!(total.data_points[0].value, Some(Value::AsDouble(3.0)));
        assert_eq!(total.data_points[0].attributes, [text("class", "short")]);
        assert!(!sum(&metrics[2]).is_monotonic);
        assert_eq!(points(&metrics), 4);
    }

    #[test]
    fn histogram_counts_each_bucket_by_itself() {
        let metrics = Bridge::default().convert(&exposition(3, 1, 4), 5);
        let Some(Data::Histogram(histogram)) = &metrics[3].data else {
            panic!("{metrics:?}");
        };
        let [point] = &histogram.data_points[..] else {
            panic!("{histogram:?}");
        };
        assert_eq!(point.explicit_bounds, [0.5, 1.0]);
        assert_eq!(point.bucket_counts, [1, 0, 3]);
        assert_eq!((point.count, point.sum), (4, Some(7.5)));
        assert_eq!(point.attributes, [text("class", "long")]);
        let [exemplar] = &point.exemplars[..] else {
            panic!("{point:?}");
        };
        assert_eq!(exemplar.value, Some(exemplar::Value::AsDouble(6.5)));
        assert_eq!(exemplar.time_unix_nano, 1_700_000_000_500_000_000);
        assert_eq!(exemplar.filtered_attributes, [text("id", "7")]);
    }

    #[test]
    fn counter_counts_since_its_first_scrape_and_again_since_it_fell() {
        let mut bridge = Bridge::default();
        let mut since = |short, at_ns| {
            let metrics = bridge.convert(&exposition(short, 0, 0), at_ns);
            let point = sum(&metrics[0]).data_points[0].clone();
            (point.start_time_unix_nano, point.time_unix_nano)
        };
        assert_eq!(since(3, 100), (100, 100));
        assert_eq!(since(3, 200), (100, 200));
        assert_eq!(since(9, 300), (100, 300));
        assert_eq!(since(2, 400), (400, 400));
        assert_eq!(since(5, 500), (400, 500));
    }
}
