//! What Prometheus sees: the endpoint's counters, read when somebody scrapes.
//!
//! docs/src/reference/cloudburst-metrics.md documents each; a test holds the two together.

use std::{fmt, net::SocketAddr, time::Duration};

use anyhow::Context as _;
use cloudburst::{
    Endpoint,
    net::{CompletionHistogram, Statistics},
    protocol::{Health, PathReport},
};
use flow_telemetry::{
    Descriptor, Endpoint as HttpEndpoint, Kind, Metrics, NameError, Readiness, Server,
    prometheus_client::{
        collector::Collector,
        encoding::{DescriptorEncoder, NoLabelSet},
    },
};
use tokio::runtime::Handle;

use crate::status_page;

/// Paths of a peer that have figures of their own: a fixed set of labels.
pub(crate) const PATHS: usize = 16;

/// Serves the endpoint's metrics from now on; nothing without an address.
pub(crate) fn serve(endpoint: &Endpoint, address: Option<SocketAddr>) -> anyhow::Result<()> {
    let Some(address) = address else {
        return Ok(());
    };
    let server = Server::bind(address).context("--metrics")?;
    tracing::info!(
        address = %server.local_addr(),
        "serving /metrics, /live, /ready and the status page"
    );
    let metrics = registry(endpoint.clone())?;
    let page = status_page::page(endpoint.clone());
    let endpoint = HttpEndpoint::new(metrics, Readiness::new()).with_page(page);
    tokio::spawn(async move {
        if let Err(error) = server.serve(endpoint, std::future::pending()).await {
            tracing::error!(%error, "metrics are not served any more");
        }
    });
    Ok(())
}

fn registry(endpoint: Endpoint) -> Result<Metrics, NameError> {
    let mut metrics = Metrics::new("cloudburst")?;
    metrics.build_info(env!("CARGO_PKG_VERSION"))?;
    let families = Families::new()?;
    let collector = EndpointCollector {
        families: families.clone(),
        endpoint,
        runtime: Handle::current(),
    };
    metrics.collect(families.all(), collector)?;
    Ok(metrics)
}

type Count = fn(&Statistics) -> u64;

/// Name, help and value of what only grows.
const COUNTERS: [(&str, &str, Count); 29] = [
    (
        "messages_accepted_total",
        "Messages taken to be sent",
        |it| it.protocol.messages_accepted,
    ),
    (
        "messages_delivered_total",
        "Messages that their receivers have",
        |it| it.protocol.messages_delivered,
    ),
    ("messages_undelivered_total", "Messages given up", |it| {
        it.protocol.messages_undelivered
    }),
    (
        "messages_received_total",
        "Messages that arrived whole",
        |it| it.protocol.messages_received,
    ),
    (
        "symbols_delivered_total",
        "Source symbols of delivered messages",
        |it| it.protocol.symbols_delivered,
    ),
    (
        "symbols_sent_total",
        "Symbols sent, until the stop, for delivered messages",
        |it| it.protocol.symbols_sent,
    ),
    (
        "symbols_needed_total",
        "Symbols that receivers took for delivered messages",
        |it| it.protocol.symbols_needed,
    ),
    (
        "symbols_received_total",
        "Symbols that arrived here",
        |it| it.protocol.symbols_received,
    ),
    (
        "symbols_wasted_total",
        "Symbols that arrived here and told nothing new",
        |it| it.protocol.symbols_wasted,
    ),
    ("stops_sent_total", "Stops sent", |it| {
        it.protocol.stops_sent
    }),
    (
        "stops_received_total",
        "Stops that ended a message of ours",
        |it| it.protocol.stops_received,
    ),
    ("asks_sent_total", "Questions what a receiver has", |it| {
        it.protocol.asks_sent
    }),
    (
        "datagrams_sent_total",
        "Datagrams sent, of any kind",
        |it| it.protocol.datagrams_sent,
    ),
    ("sent_bytes_total", "Bytes of the datagrams sent", |it| {
        it.protocol.bytes_sent
    }),
    (
        "datagrams_received_total",
        "Datagrams that arrived, of any kind",
        |it| it.protocol.datagrams_received,
    ),
    (
        "received_bytes_total",
        "Bytes of the datagrams that arrived",
        |it| it.protocol.bytes_received,
    ),
    ("paths_died_total", "Paths found dead", |it| {
        it.protocol.paths_died
    }),
    (
        "ports_replaced_total",
        "Ports given up for others as they did not deliver",
        |it| it.protocol.ports_replaced,
    ),
    (
        "routes_replaced_total",
        "Pairs of ports given up for others of the same ports",
        |it| it.protocol.routes_replaced,
    ),
    ("send_calls_total", "Calls of the system that sent", |it| {
        it.sockets.send_calls
    }),
    (
        "receive_calls_total",
        "Calls of the system that received",
        |it| it.sockets.receive_calls,
    ),
    (
        "send_waits_total",
        "Times that sending waited for a full socket",
        |it| it.sockets.send_waits,
    ),
    (
        "send_drops_total",
        "Datagrams dropped because a socket stayed full",
        |it| it.sockets.send_drops,
    ),
    (
        "send_errors_total",
        "Datagrams that the system did not send",
        |it| it.sockets.send_errors,
    ),
    (
        "receive_errors_total",
        "Calls of receive that failed",
        |it| it.sockets.receive_errors,
    ),
    (
        "too_big_total",
        "Datagrams longer than a link on the way",
        |it| it.sockets.too_big,
    ),
    (
        "unreachable_total",
        "Notices that nobody is there or no way leads there",
        |it| it.sockets.unreachable,
    ),
    (
        "replace_errors_total",
        "Ports kept as no other could be bound",
        |it| it.sockets.replace_errors,
    ),
    (
        "inbox_overflows_total",
        "Messages dropped because the inbox was full",
        |it| it.sockets.inbox_overflows,
    ),
];

/// Name, help and value of what holds now.
const GAUGES: [(&str, &str, Count); 7] = [
    ("peers", "Peers known", |it| it.protocol.peers_now),
    ("incoming_messages", "Incomplete messages", |it| {
        it.protocol.incoming_now
    }),
    ("incoming_bytes", "Memory of incomplete messages", |it| {
        it.protocol.incoming_bytes_now
    }),
    ("outgoing_messages", "Messages of ours that wait", |it| {
        it.protocol.outgoing_now
    }),
    (
        "outgoing_bytes",
        "Bytes of messages of ours that wait",
        |it| it.protocol.outgoing_bytes_now,
    ),
    ("sockets", "Sockets bound", |it| it.sockets.sockets),
    (
        "sockets_without_offload",
        "Sockets that send each datagram by a call of its own",
        |it| it.sockets.plain_now,
    ),
];

/// A figure of a path, where it is known.
pub(crate) type Figure = fn(&PathReport) -> Option<f64>;

/// Name, help and value of what each path has, as a mean over peers.
const OF_PATHS: [(&str, &str, Figure); 3] = [
    (
        "path_loss_ratio",
        "Share of datagrams lost of late, mean over peers",
        |it| Some(it.loss),
    ),
    (
        "path_rtt_seconds",
        "Time there and back, mean over peers",
        |it| it.rtt.map(|it| it.as_secs_f64()),
    ),
    (
        "path_lag_seconds",
        "Time behind the fastest path, mean over peers",
        |it| it.lag.map(|it| it.as_secs_f64()),
    ),
];

fn described<T>(kind: Kind, rows: &[(&str, &str, T)]) -> Result<Vec<Descriptor>, NameError> {
    let rows = rows.iter();
    rows.map(|(name, help, _)| Descriptor::new(name, kind, help))
        .collect()
}

#[derive(Clone, Debug)]
struct Families {
    counters: Vec<Descriptor>,
    gauges: Vec<Descriptor>,
    of_paths: Vec<Descriptor>,
    overhead: Descriptor,
    refused: Descriptor,
    paths: Descriptor,
    completion: Descriptor,
}

impl Families {
    fn new() -> Result<Self, NameError> {
        Ok(Self {
            counters: described(Kind::Counter, &COUNTERS)?,
            gauges: described(Kind::Gauge, &GAUGES)?,
            of_paths: described(Kind::Gauge, &OF_PATHS)?,
            overhead: Descriptor::new(
                "coding_overhead_ratio",
                Kind::Gauge,
                "Symbols needed beyond the source symbols, as a share of these, since the start",
            )?,
            refused: Descriptor::new(
                "refused_total",
                Kind::Counter,
                "Datagrams and messages not taken",
            )?,
            paths: Descriptor::new("paths", Kind::Gauge, "Paths to all peers")?,
            completion: Descriptor::new(
                "completion_seconds",
                Kind::Histogram,
                "Time from sending a message to the stop that ended it",
            )?,
        })
    }

    fn all(&self) -> Vec<&Descriptor> {
        let single = [&self.overhead, &self.refused, &self.paths, &self.completion];
        let listed = [&self.counters, &self.gauges, &self.of_paths];
        listed.into_iter().flatten().chain(single).collect()
    }
}

/// Asks the endpoint, from the thread for blocking work that collectors run on.
#[derive(Debug)]
struct EndpointCollector {
    families: Families,
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
pub(crate) async fn read(endpoint: &Endpoint) -> Option<(Statistics, Vec<Vec<PathReport>>)> {
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

impl EndpointCollector {
    fn encode_numbers(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        statistics: &Statistics,
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
        let mut refused = self.families.refused.encode(encoder)?;
        for (reason, count) in protocol.refused.iter() {
            refused
                .encode_family(&[("reason", reason)])?
                .encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
        Ok(())
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
        let count = buckets.iter().map(|(_, count)| count).sum();
        self.families
            .completion
            .encode(encoder)?
            .encode_histogram::<NoLabelSet>(completion.sum().as_secs_f64(), count, &buckets, None)
    }
}
