//! What the export itself is measured by: requests, and items that were lost.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, NoLabelSet},
};

use crate::{Descriptor, Kind, Metrics, NameError};

/// A kind of telemetry, each with a path of its own at the collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Metrics, to `/v1/metrics`.
    Metrics,
    /// Spans, to `/v1/traces`.
    Traces,
    /// Events, to `/v1/logs`.
    Logs,
}

impl Signal {
    /// All signals, in the order of labels.
    pub const ALL: [Self; 3] = [Self::Metrics, Self::Traces, Self::Logs];

    /// Returns the name, as in the path and in the label `signal`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Traces => "traces",
            Self::Logs => "logs",
        }
    }
}

/// The reason why data points, spans or log records never reached the collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The queue was full, because the collector took nothing or too little.
    QueueFull,
    /// The collector refused them for good.
    Refused,
    /// The program ended before the collector had taken them.
    Ended,
}

impl Lost {
    /// All reasons, in the order of labels.
    pub const ALL: [Self; 3] = [Self::QueueFull, Self::Refused, Self::Ended];

    /// Returns the name, as in the label `reason`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::Refused => "refused",
            Self::Ended => "ended",
        }
    }
}

/// Counts of an export, shared by all who count.
#[derive(Clone, Debug, Default)]
pub(crate) struct Statistics(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// By signal; whether the collector took the request comes second.
    requests: [[AtomicU64; 2]; 3],
    lost: [[AtomicU64; 3]; 3],
}

impl Statistics {
    #[cfg(feature = "otlp")]
    pub(crate) fn count_request(&self, signal: Signal, is_taken: bool) {
        self.0.requests[signal as usize][usize::from(is_taken)].fetch_add(1, Ordering::Relaxed);
    }

    #[cfg(feature = "otlp")]
    pub(crate) fn count_lost(&self, signal: Signal, reason: Lost, items: u64) {
        self.0.lost[signal as usize][reason as usize].fetch_add(items, Ordering::Relaxed);
    }

    fn requests(&self, signal: Signal, is_taken: bool) -> u64 {
        self.0.requests[signal as usize][usize::from(is_taken)].load(Ordering::Relaxed)
    }

    pub(crate) fn lost(&self, signal: Signal, reason: Lost) -> u64 {
        self.0.lost[signal as usize][reason as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn register(&self, metrics: &mut Metrics) -> Result<(), NameError> {
        let [requests, lost] =
            FAMILIES.map(|(name, help, _)| Descriptor::new(name, Kind::Counter, help));
        let (requests, lost) = (requests?, lost?);
        let collector = StatisticsCollector {
            statistics: self.clone(),
            requests: requests.clone(),
            lost: lost.clone(),
        };
        metrics.collect([&requests, &lost], collector)
    }
}

/// Name, help, and labels as a reference page has them.
const FAMILIES: [(&str, &str, &str); 2] = [
    (
        "otlp_requests_total",
        "Requests made to the OpenTelemetry collector, by whether it took them",
        "`signal` (metrics, traces, logs), `result` (failed, taken)",
    ),
    (
        "otlp_lost_items_total",
        "Data points, spans and log records that the OpenTelemetry collector never got",
        "`signal` (metrics, traces, logs), `reason` (queue_full, refused, ended)",
    ),
];

/// Writes the rows of a reference page for the metrics of the export itself, of a program with this
/// prefix.
pub fn reference_rows(prefix: &str) -> String {
    let units = ["requests", "items"];
    let row = |((name, help, labels), unit): ((&str, &str, &str), &str)| {
        format!("| `{prefix}_{name}` | counter | {unit} | {labels} | {help}. {MORE} |\n")
    };
    FAMILIES.into_iter().zip(units).map(row).collect()
}

const MORE: &str = "0 where [none is configured](../how-to/prometheus.md#opentelemetry).";

#[derive(Debug)]
struct StatisticsCollector {
    statistics: Statistics,
    requests: Descriptor,
    lost: Descriptor,
}

impl Collector for StatisticsCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut requests = self.requests.encode(&mut encoder)?;
        for signal in Signal::ALL {
            for (is_taken, result) in [(false, "failed"), (true, "taken")] {
                requests
                    .encode_family(&[("signal", signal.as_str()), ("result", result)])?
                    .encode_counter::<NoLabelSet, _, u64>(
                        &self.statistics.requests(signal, is_taken),
                        None,
                    )?;
            }
        }
        let mut lost = self.lost.encode(&mut encoder)?;
        for signal in Signal::ALL {
            for reason in Lost::ALL {
                lost.encode_family(&[("signal", signal.as_str()), ("reason", reason.as_str())])?
                    .encode_counter::<NoLabelSet, _, u64>(
                        &self.statistics.lost(signal, reason),
                        None,
                    )?;
            }
        }
        Ok(())
    }
}
