//! What is measured: the name, help and value of each metric.

use cloudburst::{EcnState, EndpointStatistics, PathReport};
use flow_telemetry::{Descriptor, Kind, NameError};

type Count = fn(&EndpointStatistics) -> u64;

/// Name, help and value of what only grows.
pub(super) const COUNTERS: [(&str, &str, Count); 32] = [
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
        "messages_cancelled_total",
        "Incomplete messages that their senders have given up",
        |it| it.protocol.messages_cancelled,
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
        "Symbols that arrived here and brought nothing new",
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
    (
        "queries_sent_total",
        "Questions what a receiver has",
        |it| it.protocol.queries_sent,
    ),
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
    (
        "datagrams_marked_total",
        "Datagrams of ours that arrived with a mark of congestion (ECN), as peers report",
        |it| it.protocol.datagrams_marked,
    ),
    (
        "congestion_marks_total",
        "Datagrams that arrived here with a mark of congestion (ECN)",
        |it| it.protocol.congestion_marks,
    ),
    ("paths_died_total", "Paths found dead", |it| {
        it.protocol.paths_died
    }),
    (
        "ports_rotated_total",
        "Ports given up for others as they did not deliver",
        |it| it.protocol.ports_rotated,
    ),
    (
        "paths_replaced_total",
        "Pairs of ports given up for others of the same ports",
        |it| it.protocol.paths_replaced,
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
        "Messages dropped because the inbox went away",
        |it| it.sockets.inbox_overflows,
    ),
];

/// Name, help and value of what holds now.
pub(super) const GAUGES: [(&str, &str, Count); 7] = [
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
pub(super) const OF_PATHS: [(&str, &str, Figure); 4] = [
    (
        "path_loss_ratio",
        "Share of datagrams lost of late, mean over peers",
        |it| Some(it.loss),
    ),
    (
        "path_ecn_ratio",
        "Share of peers to which the path carries ECN, of those where that is known",
        carries_ecn,
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

/// 1 if datagrams arrive as capable of ECN, 0 if not, where that is known.
pub(crate) fn carries_ecn(path: &PathReport) -> Option<f64> {
    match path.ecn {
        EcnState::Capable => Some(1.0),
        EcnState::Failed => Some(0.0),
        _ => None,
    }
}

fn described<T>(kind: Kind, rows: &[(&str, &str, T)]) -> Result<Vec<Descriptor>, NameError> {
    let rows = rows.iter();
    rows.map(|(name, help, _)| Descriptor::new(name, kind, help))
        .collect()
}

#[derive(Clone, Debug)]
pub(super) struct Families {
    pub(super) counters: Vec<Descriptor>,
    pub(super) gauges: Vec<Descriptor>,
    pub(super) of_paths: Vec<Descriptor>,
    pub(super) overhead: Descriptor,
    pub(super) refused: Descriptor,
    pub(super) busy_sent: Descriptor,
    pub(super) busy_received: Descriptor,
    pub(super) paths: Descriptor,
    pub(super) completion: Descriptor,
}

impl Families {
    pub(super) fn new() -> Result<Self, NameError> {
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
            busy_sent: Descriptor::new(
                "busy_sent_total",
                Kind::Counter,
                "Answers that there is no room for a message now",
            )?,
            busy_received: Descriptor::new(
                "busy_received_total",
                Kind::Counter,
                "Answers of receivers that there is no room for a message of ours now",
            )?,
            paths: Descriptor::new("paths", Kind::Gauge, "Paths to all peers")?,
            completion: Descriptor::new(
                "completion_seconds",
                Kind::Histogram,
                "Time from sending a message to the stop that ended it",
            )?,
        })
    }

    pub(super) fn all(&self) -> Vec<&Descriptor> {
        let single = [
            &self.overhead,
            &self.refused,
            &self.busy_sent,
            &self.busy_received,
            &self.paths,
            &self.completion,
        ];
        let listed = [&self.counters, &self.gauges, &self.of_paths];
        listed.into_iter().flatten().chain(single).collect()
    }
}
