//! Completion times, with slow flows as exemplars.

use std::fmt;
use std::time::UNIX_EPOCH;

use flow_telemetry::Exemplar;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
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
            let Exposed {
                sum_s,
                count,
                buckets,
            } = Exposed::of(counters.completion(class));
            completion
                .encode_family(&labels)?
                .encode_histogram::<NoLabelSet>(sum_s, count, &buckets, None)?;
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

/// A kernel histogram as Prometheus wants it.
struct Exposed {
    sum_s: f64,
    count: u64,
    buckets: Vec<(f64, u64)>,
}

impl Exposed {
    fn of(histogram: &Histogram) -> Self {
        let buckets = histogram.buckets.iter().enumerate().map(|(index, &count)| {
            (
                upper_bound_ns(index).map_or(f64::INFINITY, |bound_ns| bound_ns as f64 / 1e9),
                count,
            )
        });
        Self {
            sum_s: histogram.sum_ns as f64 / 1e9,
            count: histogram.buckets.iter().sum(),
            buckets: buckets.collect(),
        }
    }
}
