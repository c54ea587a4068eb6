//! The page at `/` of the metrics address: the same figures as `splitter top`, for a browser.
//!
//! docs/src/reference/status.md documents what `/status.json` answers.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flow_report::Plot;
use flow_telemetry::StatusPage;
use flow_telemetry::page::{Field, Format, Layout, Status, StatusFuture, StatusTable};
use serde::Serialize;
use serde_json::{Value, json};
use splitter_advise::ThresholdUnit;
use splitter_config::Config;
use splitter_history::{Events, SPACING};
use splitter_netlink::NetlinkError;
use tokio::sync::{Mutex, watch};
use tokio::time::{MissedTickBehavior, interval};

use crate::monitor::Monitor;
use crate::overview::{
    Direction, Filter, Flow, ObserveError, Observer, Overview, Selection, SortBy,
};
use crate::page_history::{DOCUMENTS, PageHistory};
use splitter_instance::report::SharedReport;
use splitter_instance::{AttachedInterface, Instance};

/// Flows on the page: some 15 kB.
pub const LISTED_FLOWS: usize = 50;
/// However many watch, nobody looks more often.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);
/// A look may take this share of the time of one processor: a table of a million flows is
/// walked less often than a small one.
const WALKING_SHARE: u32 = 10;
/// How often totals are noted while nobody watches.
const NOTE_INTERVAL: Duration = Duration::from_secs(5);

/// Fills the status page. Clones share one state.
#[derive(Clone, Debug)]
pub struct StatusSource(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    monitor: Arc<Monitor>,
    names: Names,
    history: PageHistory,
    looks: Mutex<Looks>,
}

#[derive(Debug)]
struct Looks {
    observer: Observer,
    show_addresses: bool,
    unit: ThresholdUnit,
    /// The last one, when it ended, and how long to make do with it.
    last: Option<(Value, Instant, Duration)>,
}

impl StatusSource {
    /// Shows what `monitor` watches, `health` says of the tunnels, and `events` have happened. Needs a
    /// running tokio runtime.
    ///
    /// # Errors
    /// When netlink is not to be had.
    pub fn new(
        config: &Config,
        monitor: Arc<Monitor>,
        health: SharedReport,
        events: Events,
    ) -> Result<Self, NetlinkError> {
        let observer = Observer::new(config, SHORTEST_INTERVAL * 9 / 10)?;
        Ok(Self(Arc::new(Inner {
            monitor,
            names: Names::default(),
            history: PageHistory::new(events),
            looks: Mutex::new(Looks {
                observer: observer.with_health(Arc::new(health)),
                show_addresses: config.metrics.flow_addresses,
                unit: config.flows.unit,
                last: None,
            }),
        })))
    }

    /// The page, for the endpoint.
    pub fn page(&self) -> StatusPage {
        StatusPage::new(LAYOUT, self.clone())
    }

    /// Notes totals from time to time, so that anyone who looks sees rates at once, completion times of
    /// the last minute, and graphs of the last hour. Goes by the configuration that is in force.
    pub async fn keep_up<T>(&self, mut in_force: watch::Receiver<Arc<Instance>>) -> T {
        let mut ticks = interval(NOTE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                Ok(()) = in_force.changed() => {
                    let instance = Arc::clone(&in_force.borrow_and_update());
                    self.0.looks.lock().await.go_by(instance.config());
                    continue;
                }
            }
            let (dataplane, flows) = (self.0.monitor.dataplane(), self.0.monitor.totals());
            // By the sample before, so that what is drawn leaves out no time.
            let at_least = SPACING * 9 / 10;
            let mut looks = self.0.looks.lock().await;
            match looks.observer.glance(&dataplane, flows, at_least).await {
                Ok(overview) if self.0.history.is_due() => self.0.history.add(&overview),
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(%error, "cannot note the counters for the status page");
                }
            }
        }
    }
}

impl Looks {
    fn go_by(&mut self, config: &Config) {
        self.observer.go_by(config);
        self.show_addresses = config.metrics.flow_addresses;
        self.unit = config.flows.unit;
        // It may show what is no longer to be shown.
        self.last = None;
    }
}

impl Status for StatusSource {
    fn status(&self) -> StatusFuture<'_> {
        Box::pin(async {
            let inner = Arc::clone(&self.0);
            // A task of its own: who asked may go away, but a walk that has begun keeps the next
            // one waiting until it ends.
            let look = tokio::spawn(async move { inner.look().await }).await;
            let reported = match look {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(error)) => error.to_string(),
                Err(error) => error.to_string(),
            };
            tracing::error!(
                event = "page_failed",
                error = reported,
                "cannot read what the status page shows"
            );
            Err(format!("cannot read what goes on: {reported}"))
        })
    }

    fn plots(&self) -> Vec<Plot> {
        self.0.history.plots()
    }

    fn document(&self, path: &str) -> Option<String> {
        self.0.history.document(path)
    }
}

impl Inner {
    async fn look(&self) -> Result<Value, ObserveError> {
        // Held while looking: who asks meanwhile gets the same answer.
        let mut looks = self.looks.lock().await;
        if let Some((value, at, lasts)) = &looks.last
            && at.elapsed() < *lasts
        {
            return Ok(value.clone());
        }
        let selection = Selection {
            sort: SortBy::Rate,
            reversed: false,
            filter: Filter::default(),
            limit: LISTED_FLOWS,
        };
        let begin = Instant::now();
        let dataplane = self.monitor.dataplane();
        // As it is in force: an `auto` one follows the flows.
        let threshold = dataplane.policy()?.thresholds.common();
        let overview = looks.observer.look(dataplane, &selection).await?;
        let lasts = (begin.elapsed() * WALKING_SHARE).max(SHORTEST_INTERVAL);
        let mut value = looks.public(&self.names, &overview, threshold);
        value["events"] = self.history.listed_events();
        looks.last = Some((value.clone(), Instant::now(), lasts));
        Ok(value)
    }
}

impl Looks {
    /// What everybody may see who reaches the address.
    fn public(&self, names: &Names, overview: &Overview, threshold: u64) -> Value {
        let flows: Vec<PublicFlow> = overview
            .flows
            .iter()
            .map(|flow| PublicFlow {
                flow: if self.show_addresses {
                    flow.row.to_string()
                } else {
                    names.of(flow)
                },
                class: flow.row.class,
                tunnel: flow.row.tunnel,
                packets: flow.row.packets,
                bytes: flow.row.bytes,
                packets_per_s: flow.packets_per_s,
                bits_per_s: flow.bits_per_s,
                age_s: flow.row.age_s,
                idle_s: flow.row.idle_s,
                finished: flow.row.finished,
                reverse_tunnel: flow.reverse.map(|it| it.row.tunnel.unwrap_or("none")),
                reverse_packets: flow.reverse.map(|it| it.row.packets),
                reverse_bytes: flow.reverse.map(|it| it.row.bytes),
                reverse_packets_per_s: flow.reverse.and_then(|it| it.packets_per_s),
                reverse_bits_per_s: flow.reverse.and_then(|it| it.bits_per_s),
                fills: flow.fills,
            })
            .collect();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "name": overview.name,
            "threshold": format!("{threshold} {}", self.unit),
            "interval_s": overview.interval_s,
            "attached": overview.attached,
            "interfaces": list_interfaces(&overview.attached),
            "classes": overview.classes,
            "tunnels": overview.tunnels,
            "completion": overview.completion,
            "table": overview.table,
            "flows_tracked": overview.flows_matching,
            "flows": flows,
        })
    }
}

fn list_interfaces(attached: &[AttachedInterface]) -> String {
    let words = attached
        .iter()
        .map(|it| format!("{} ({})", it.interface, it.mode.as_str()));
    match words.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "nothing".to_owned(),
        words => words,
    }
}

/// A flow as it is shown to everyone who reaches the address.
#[derive(Serialize)]
struct PublicFlow {
    flow: String,
    class: &'static str,
    tunnel: &'static str,
    packets: u64,
    bytes: u64,
    packets_per_s: Option<f64>,
    bits_per_s: Option<f64>,
    age_s: f64,
    idle_s: f64,
    finished: bool,
    /// All of the reverse are null where nothing of it was seen.
    reverse_tunnel: Option<&'static str>,
    reverse_packets: Option<u64>,
    reverse_bytes: Option<u64>,
    reverse_packets_per_s: Option<f64>,
    reverse_bits_per_s: Option<f64>,
    fills: Option<Direction>,
}

/// Names of flows that give away nothing of their addresses: digests under a key that is drawn
/// again each time the agent starts, and that never leaves it.
#[derive(Default)]
struct Names(RandomState);

impl Names {
    fn of(&self, flow: &Flow) -> String {
        let row = &flow.row;
        let key = (
            row.source,
            row.source_port,
            row.destination,
            row.destination_port,
            row.protocol,
            row.identifier,
        );
        format!("#{:08x}", self.0.hash_one(key) >> 32)
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Names")
    }
}

const LAYOUT: Layout = Layout {
    documents: &DOCUMENTS,
    title: "Flow splitter",
    about: "Short TCP flows have a tunnel of their own. What is counted is what arrives from the \
            site; a flow is one direction of a connection, and stands with its reverse where that is seen here.",
    facts: &[
        Field::new("name", "Instance", Format::Text),
        Field::new("version", "Version", Format::Text),
        Field::new("threshold", "Long beyond", Format::Text),
        Field::new("interfaces", "Attached to", Format::Text),
        Field::new("flows_tracked", "Flows tracked", Format::Count),
        Field::new("interval_s", "Rates over", Format::Seconds),
    ],
    tables: &[
        StatusTable {
            key: "classes",
            caption: "Classes",
            note: "A class whose tunnel is dead goes into the other one, or by the main table.",
            empty: "Not known.",
            columns: &[
                Field::new("class", "Class", Format::Text),
                Field::new("tunnel", "Tunnel", Format::Text),
                Field::new("flows", "Flows", Format::Count),
                Field::new("packets_per_s", "Packets/s", Format::Rate),
                Field::new("bits_per_s", "Rate", Format::BitsPerSecond),
                Field::detail("packets", "Packets", Format::Count),
                Field::detail("bytes", "Bytes", Format::Bytes),
            ],
        },
        StatusTable {
            key: "tunnels",
            caption: "Tunnels",
            note: "All that their devices carry, split or not.",
            empty: "Not known.",
            columns: &[
                Field::new("tunnel", "Tunnel", Format::Text),
                Field::new("device", "Device", Format::Text),
                Field::detail("weight", "Weight", Format::Count),
                Field::new("state", "State", Format::State),
                Field::new("sent_bits_per_s", "Sent", Format::BitsPerSecond),
                Field::detail("received_bits_per_s", "Received", Format::BitsPerSecond),
                Field::detail("left_short_bits_per_s", "Short left", Format::BitsPerSecond),
                Field::detail("left_long_bits_per_s", "Long left", Format::BitsPerSecond),
                Field::detail(
                    "left_unmarked_bits_per_s",
                    "Unmarked",
                    Format::BitsPerSecond,
                ),
                Field::new("share_used", "Used", Format::Share),
                Field::detail("backlog_bytes", "Waiting", Format::Bytes),
                Field::new("health", "Health", Format::State),
                Field::detail("rtt_s", "Round trip", Format::Seconds),
                Field::detail("loss_ratio", "Loss", Format::Share),
                Field::detail("sent_packets_per_s", "Sent/s", Format::Rate),
                Field::detail("received_packets_per_s", "Received/s", Format::Rate),
            ],
        },
        StatusTable {
            key: "events",
            caption: "Moves and events",
            note: "The newest first; they are the events of the log, since the agent began.",
            empty: "Nothing has happened.",
            columns: &[
                Field::new("ago_s", "Ago", Format::Seconds),
                Field::new("event", "Event", Format::Text),
                Field::detail("device", "Device", Format::Text),
                Field::new("message", "What happened", Format::Text),
            ],
        },
        StatusTable {
            key: "completion",
            caption: "Completion times",
            note: "From a flow's first packet to its first FIN or RST at this border: of the \
                   flows that ended in the last minute, and of all.",
            empty: "Not known.",
            columns: &[
                Field::new("class", "Class", Format::Text),
                Field::new("period", "Period", Format::Text),
                Field::detail("window_s", "Over", Format::Seconds),
                Field::new("finished", "Ended", Format::Count),
                Field::detail("mean_s", "Mean", Format::Seconds),
                Field::new("p50_s", "p50", Format::Seconds),
                Field::detail("p90_s", "p90", Format::Seconds),
                Field::new("p99_s", "p99", Format::Seconds),
            ],
        },
        StatusTable {
            key: "flows",
            caption: "Flows",
            note: "The fifty fastest, both ways together. In is what comes back to the site; a dash says that \
                   nothing of it was seen here. Addresses are shown only where the configuration says so.",
            empty: "No flow is tracked now.",
            columns: &[
                Field::new("flow", "Flow", Format::Text),
                Field::new("class", "Class", Format::Text),
                Field::detail("tunnel", "Tunnel", Format::Text),
                Field::new("bits_per_s", "Rate out", Format::BitsPerSecond),
                Field::new("reverse_bits_per_s", "Rate in", Format::BitsPerSecond),
                Field::detail("fills", "More", Format::Text),
                Field::new("bytes", "Bytes out", Format::Bytes),
                Field::detail("reverse_bytes", "Bytes in", Format::Bytes),
                Field::detail("age_s", "Age", Format::Seconds),
                Field::detail("idle_s", "Idle", Format::Seconds),
                Field::detail("packets_per_s", "Packets/s out", Format::Rate),
                Field::detail("reverse_packets_per_s", "Packets/s in", Format::Rate),
            ],
        },
        StatusTable {
            key: "table",
            caption: "Flow table",
            note: "",
            empty: "Not known.",
            columns: &[
                Field::new("family", "Family", Format::Text),
                Field::new("entries", "Entries", Format::Count),
                Field::new("capacity", "Room for", Format::Count),
                Field::new("share_used", "Used", Format::Share),
            ],
        },
    ],
};
