//! The page at `/` of the metrics address. No address is on it: whoever reaches it may not learn
//! who the peers are.
//!
//! docs/src/reference/cloudburst-metrics.md documents what `/status.json` answers.

use cloudburst::{Endpoint, EndpointStatistics, Health, PathReport};
use flow_telemetry::{
    StatusPage,
    page::{Field, Format, Layout, Status, StatusFuture, StatusTable},
};
use serde_json::{Value, json};

use crate::metrics::{PATHS, carries_ecn, mean, read};

/// The page of an endpoint.
pub(crate) fn page(endpoint: Endpoint) -> StatusPage {
    StatusPage::new(LAYOUT, EndpointStatus(endpoint))
}

#[derive(Debug)]
struct EndpointStatus(Endpoint);

impl Status for EndpointStatus {
    fn status(&self) -> StatusFuture<'_> {
        Box::pin(async {
            match read(&self.0).await {
                Some((statistics, peers)) => Ok(status(&statistics, &peers)),
                None => Err("the endpoint is closed".to_owned()),
            }
        })
    }
}

fn status(statistics: &EndpointStatistics, peers: &[Vec<PathReport>]) -> Value {
    let protocol = &statistics.protocol;
    let refused: Vec<Value> = protocol
        .refused
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(reason, count)| json!({ "reason": reason.replace('_', " "), "count": count }))
        .collect();
    let paths = peers.iter().map(Vec::len).max().unwrap_or(0).min(PATHS);
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "peers": protocol.peers_now,
        "messages_received": protocol.messages_received,
        "messages_delivered": protocol.messages_delivered,
        "messages_undelivered": protocol.messages_undelivered,
        "outgoing_messages": protocol.outgoing_now,
        "incoming_messages": protocol.incoming_now,
        "sent_bytes": protocol.bytes_sent,
        "received_bytes": protocol.bytes_received,
        "paths": (0..paths).map(|index| path(index, peers)).collect::<Vec<_>>(),
        "refused": refused,
    })
}

fn path(index: usize, peers: &[Vec<PathReport>]) -> Value {
    let of = |health| {
        let paths = peers.iter().filter_map(|paths| paths.get(index));
        paths.filter(|path| path.health == health).count()
    };
    let mean = |figure| mean(peers, index, figure);
    json!({
        "path": index.to_string(),
        "good": of(Health::Good),
        "dead": of(Health::Dead),
        "unknown": of(Health::Unknown),
        "loss_ratio": mean(|it| Some(it.loss)),
        "ecn_ratio": mean(carries_ecn),
        "rtt_s": mean(|it| it.rtt.map(|it| it.as_secs_f64())),
        "lag_s": mean(|it| it.lag.map(|it| it.as_secs_f64())),
    })
}

const LAYOUT: Layout = Layout {
    title: "Cloudburst",
    about: "Messages over several paths at once. Counts are those since the start.",
    facts: &[
        Field::new("version", "Version", Format::Text),
        Field::new("peers", "Peers", Format::Count),
        Field::new("messages_received", "Messages received", Format::Count),
        Field::new("messages_delivered", "Messages delivered", Format::Count),
        Field::new("messages_undelivered", "Given up", Format::Count),
        Field::new(
            "outgoing_messages",
            "Waiting to be delivered",
            Format::Count,
        ),
        Field::new("incoming_messages", "Incomplete", Format::Count),
        Field::new("sent_bytes", "Sent", Format::Bytes),
        Field::new("received_bytes", "Received", Format::Bytes),
    ],
    tables: &[
        StatusTable {
            key: "paths",
            caption: "Paths",
            note: "Means over the first, second and further paths of all peers.",
            empty: "No peer is known now.",
            columns: &[
                Field::new("path", "Path", Format::Text),
                Field::new("good", "Good", Format::Count),
                Field::new("dead", "Dead", Format::Count),
                Field::detail("unknown", "Not known", Format::Count),
                Field::new("loss_ratio", "Loss", Format::Share),
                Field::detail("ecn_ratio", "ECN", Format::Share),
                Field::new("rtt_s", "Round trip", Format::Seconds),
                Field::detail("lag_s", "Behind the fastest", Format::Seconds),
            ],
        },
        StatusTable {
            key: "refused",
            caption: "Not taken",
            note: "Datagrams and messages that were refused, by reason.",
            empty: "Nothing was refused.",
            columns: &[
                Field::new("reason", "Reason", Format::Text),
                Field::new("count", "Count", Format::Count),
            ],
        },
    ],
    documents: &[],
};
