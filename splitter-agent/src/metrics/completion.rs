//! Completion times, with slow flows as exemplars.

use std::fmt;
use std::time::UNIX_EPOCH;

use flow_telemetry::Exemplar;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder, NoLabelSet};
use splitter_datapath::slow_flows::SlowFlow;
use splitter_policy::counters::Counters;
use splitter_policy::flow::Class;
use splitter_policy::histogram::{BUCKETS, Histogram, upper_bound_ns};

use super::SplitterCollector;

impl SplitterCollector {
    pub(super) fn encode_completion(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        counters: &Counters,
    ) -> fmt::Result {
        let mut completion = self.families.completion.encode(encoder)?;
        for class in Class::ALL {
            let labels = [("class", class.name())];
            encode_histogram(&mut completion, &labels, counters.completion(class))?;
        }
        let slow = self.monitor.slow_flows();
        // Buckets of both classes are counted through.
        let numbered = slow
            .iter()
            .map(|it| (it.class as usize * BUCKETS + it.bucket, exemplar(it)));
        self.slow.set(numbered);
        Ok(())
    }
}

/// A flow as an exemplar: what it sent tells why it was slow, and no address is in it.
fn exemplar(flow: &SlowFlow) -> Exemplar {
    let labels = [
        ("flow", format!("{:016x}", flow.name)),
        ("packets", flow.packets.to_string()),
        ("bytes", flow.bytes.to_string()),
    ];
    let ended = flow.ended.duration_since(UNIX_EPOCH);
    Exemplar {
        labels: labels.map(|(name, value)| (name.to_owned(), value)).into(),
        value: flow.took.as_secs_f64(),
        unix_s: ended.ok().map(|it| it.as_secs_f64()),
    }
}

/// Durations as Prometheus wants them, in seconds.
pub(super) fn encode_histogram(
    family: &mut MetricEncoder<'_>,
    labels: &impl EncodeLabelSet,
    histogram: &Histogram,
) -> fmt::Result {
    let bound_s =
        |index| upper_bound_ns(index).map_or(f64::INFINITY, |bound_ns| bound_ns as f64 / 1e9);
    let counts = histogram.buckets.iter().enumerate();
    let buckets: Vec<(f64, u64)> = counts
        .map(|(index, count)| (bound_s(index), *count))
        .collect();
    let (sum_s, count) = (
        histogram.sum_ns as f64 / 1e9,
        histogram.buckets.iter().sum(),
    );
    let mut family = family.encode_family(labels)?;
    family.encode_histogram::<NoLabelSet>(sum_s, count, &buckets, None)
}
