//! What Prometheus sees: the endpoint's counters, read when somebody scrapes.
//!
//! docs/src/reference/cloudburst-metrics.md documents each; a test holds the two together.

mod families;

use std::{fmt, net::SocketAddr, time::Duration};

use anyhow::Context as _;
use cloudburst::{
    CompletionExemplar, CompletionHistogram, Endpoint, EndpointStatistics, Health, PathReport,
};
use flow_telemetry::{
    Descriptor, Exemplar, Exemplars, Metrics, MetricsEndpoint, NameError, Readiness, Server,
    otlp::{self, Export, Exporter, Recorder},
    prometheus_client::{
        collector::Collector,
        encoding::{DescriptorEncoder, NoLabelSet},
    },
};
use tokio::runtime::Handle;

use self::families::{COUNTERS, Families, GAUGES, OF_PATHS};
pub(crate) use self::families::{Figure, carries_ecn};
use crate::{cli::TelemetryArgs, status_page};

/// Paths of a peer that have figures of their own: a fixed set of labels.
pub(crate) const PATHS: usize = 16;

/// Serves the endpoint's metrics from now on, and exports them; neither unless it is asked for.
pub(crate) fn serve(
    endpoint: &Endpoint,
    args: &TelemetryArgs,
    recorder: &Recorder,
) -> anyhow::Result<Export> {
    let exporter = Exporter::configured(&export_of(args), &|name| std::env::var(name).ok())?;
    let metrics = registry(endpoint.clone(), recorder)?;
    let page = status_page::page(endpoint.clone());
    let endpoint = MetricsEndpoint::new(metrics, Readiness::new()).with_page(page);
    let export = exporter.start(recorder, &endpoint)?;
    if let Some(address) = args.metrics {
        serve_at(address, endpoint)?;
    }
    Ok(export)
}

/// What is exported over OTLP, and as whom. Of several on one machine each has a process.
fn export_of(args: &TelemetryArgs) -> otlp::Request {
    otlp::Request {
        endpoint: args.otlp.clone(),
        service: "cloudburst",
        version: env!("CARGO_PKG_VERSION"),
        instance: std::process::id().to_string(),
        sites: Vec::new(),
    }
}

fn serve_at(address: SocketAddr, endpoint: MetricsEndpoint) -> anyhow::Result<()> {
    let server = Server::bind(address).context("--metrics")?;
    tracing::info!(
        event = "metrics_served",
        address = %server.local_addr(),
        "serving /metrics, /live, /ready and the status page"
    );
    tokio::spawn(async move {
        if let Err(error) = server.serve(endpoint, std::future::pending()).await {
            tracing::error!(event = "metrics_failed", %error, "metrics are not served any more");
        }
    });
    Ok(())
}

fn registry(endpoint: Endpoint, recorder: &Recorder) -> Result<Metrics, NameError> {
    let mut metrics = Metrics::new("cloudburst")?;
    metrics.build_info(env!("CARGO_PKG_VERSION"))?;
    let families = Families::new()?;
    let collector = EndpointCollector {
        slow: metrics.exemplars(&families.completion)?,
        families: families.clone(),
        endpoint,
        runtime: Handle::current(),
    };
    metrics.collect(families.all(), collector)?;
    recorder.register(&mut metrics)?;
    Ok(metrics)
}

/// Asks the endpoint, from the thread for blocking work that collectors run on.
#[derive(Debug)]
struct EndpointCollector {
    families: Families,
    slow: Exemplars,
    endpoint: Endpoint,
    runtime: Handle,
}

impl Collector for EndpointCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (statistics, paths) = self
            .runtime
            .block_on(read(&self.endpoint))
            .ok_or(fmt::Error)?;
        self.encode_numbers(&mut encoder, &statistics)?;
        self.encode_paths(&mut encoder, &paths)?;
        self.encode_completion(&mut encoder, &statistics.completion)
    }
}

/// Counters, and the paths to each peer.
pub(crate) async fn read(
    endpoint: &Endpoint,
) -> Option<(EndpointStatistics, Vec<Vec<PathReport>>)> {
    let statistics = endpoint.statistics().await.ok()?;
    let mut paths = Vec::new();
    for peer in endpoint.peers().await.ok()? {
        paths.push(endpoint.paths(peer).await.ok()?);
    }
    Some((statistics, paths))
}

/// The mean of a figure over the paths that are the peers' first, second and so on; `None` where
/// it is known of none.
pub(crate) fn mean(peers: &[Vec<PathReport>], index: usize, figure: Figure) -> Option<f64> {
    let known = peers.iter().filter_map(|paths| figure(paths.get(index)?));
    let (sum, count) = known.fold((0.0, 0), |(sum, count), it| (sum + it, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

/// Writes a family with a count for each reason.
fn encode_reasons(
    encoder: &mut DescriptorEncoder<'_>,
    family: &Descriptor,
    counts: impl Iterator<Item = (&'static str, u64)>,
) -> fmt::Result {
    let mut family = family.encode(encoder)?;
    for (reason, count) in counts {
        family
            .encode_family(&[("reason", reason)])?
            .encode_counter::<NoLabelSet, _, u64>(&count, None)?;
    }
    Ok(())
}

impl EndpointCollector {
    fn encode_numbers(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        statistics: &EndpointStatistics,
    ) -> fmt::Result {
        for (family, (_, _, count)) in self.families.counters.iter().zip(COUNTERS) {
            family
                .encode(encoder)?
                .encode_counter::<NoLabelSet, _, u64>(&count(statistics), None)?;
        }
        for (family, (_, _, count)) in self.families.gauges.iter().zip(GAUGES) {
            family.encode(encoder)?.encode_gauge(&count(statistics))?;
        }
        let protocol = &statistics.protocol;
        let needed = crate::summary::ratio(protocol.symbols_needed, protocol.symbols_delivered);
        let overhead = (needed - 1.0).max(0.0);
        self.families
            .overhead
            .encode(encoder)?
            .encode_gauge(&overhead)?;
        let Families {
            refused,
            busy_sent,
            busy_received,
            ..
        } = &self.families;
        encode_reasons(encoder, refused, protocol.refused.iter())?;
        encode_reasons(encoder, busy_sent, protocol.busy_sent.iter())?;
        encode_reasons(encoder, busy_received, protocol.busy_received.iter())
    }

    fn encode_paths(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        peers: &[Vec<PathReport>],
    ) -> fmt::Result {
        let mut paths = self.families.paths.encode(encoder)?;
        for (name, health) in [
            ("unknown", Health::Unknown),
            ("good", Health::Good),
            ("dead", Health::Dead),
        ] {
            let count = peers
                .iter()
                .flatten()
                .filter(|path| path.health == health)
                .count() as u64;
            paths
                .encode_family(&[("health", name)])?
                .encode_gauge(&count)?;
        }
        for (family, (_, _, figure)) in self.families.of_paths.iter().zip(OF_PATHS) {
            let mut family = family.encode(encoder)?;
            for index in 0..PATHS {
                if let Some(mean) = mean(peers, index, figure) {
                    family
                        .encode_family(&[("path", index.to_string())])?
                        .encode_gauge(&mean)?;
                }
            }
        }
        Ok(())
    }

    fn encode_completion(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        completion: &CompletionHistogram,
    ) -> fmt::Result {
        let bound = |bound: Option<Duration>| bound.map_or(f64::INFINITY, |it| it.as_secs_f64());
        let buckets: Vec<(f64, u64)> = completion
            .buckets()
            .map(|(upper, count)| (bound(upper), count))
            .collect();
        let exemplars = completion.exemplars();
        self.slow
            .set(exemplars.map(|(bucket, it)| (bucket, exemplar(it))));
        self.families
            .completion
            .encode(encoder)?
            .encode_histogram::<NoLabelSet>(
                completion.sum().as_secs_f64(),
                completion.count(),
                &buckets,
                None,
            )
    }
}

/// A message as an exemplar: what it took tells why it was slow, and no address is in it.
fn exemplar(message: &CompletionExemplar) -> Exemplar {
    let CompletionExemplar { receipt, .. } = message;
    let [_, peer, _] = message.peer.to_words();
    let labels = [
        ("message", message.number),
        ("peer", peer.into()),
        ("symbols", receipt.symbols.into()),
        ("sent", receipt.sent.into()),
        ("paths", receipt.paths.into()),
    ];
    Exemplar {
        labels: labels
            .map(|(name, value)| (name.to_owned(), value.to_string()))
            .into(),
        value: receipt.completion.as_secs_f64(),
        unix_s: message.unix_time.map(|it| it.as_secs_f64()),
    }
}
