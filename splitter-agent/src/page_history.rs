//! The last hour of the status page: figures of each ten seconds, and the events of the log.

use std::sync::{Mutex, MutexGuard, PoisonError};

use flow_report::Plot;
use serde_json::{Value, json};
use splitter_config::SiteName;
use splitter_datapath::clock::monotonic_ns;
use splitter_history::{ClassSample, Events, MOST_EVENTS, Samples, TunnelName, TunnelSample};
use splitter_instance::report::unix_ms;

use crate::overview::{Overview, TunnelRow};

/// Events on the page and in `/status.json`; `/events.json` has all.
const LISTED_EVENTS: usize = 20;

/// What is served besides the status: path, and what it is called in a link.
pub(crate) const DOCUMENTS: [(&str, &str); 2] = [
    ("/history.json", "figures of the last hour"),
    ("/events.json", "events"),
];

/// Remembers the last hour.
#[derive(Debug)]
pub(crate) struct PageHistory {
    samples: Mutex<Samples>,
    events: Events,
}

impl PageHistory {
    pub(crate) fn new(events: Events) -> Self {
        Self {
            samples: Mutex::default(),
            events,
        }
    }

    /// Tells if it is time for another sample.
    pub(crate) fn is_due(&self) -> bool {
        self.lock().is_due(now_ms())
    }

    /// Takes a sample of what a look has found.
    pub(crate) fn add(&self, overview: &Overview) {
        let mut classes = [ClassSample::default(); 2];
        for (sample, row) in classes.iter_mut().zip(&overview.classes) {
            *sample = ClassSample {
                flows: row.flows as f32,
                bits_per_s: short(row.bits_per_s),
                packets_per_s: short(row.packets_per_s),
            };
        }
        let tunnels = overview.tunnels.iter().map(|row| (name(row), sample(row)));
        self.lock().add(now_ms(), classes, tunnels);
    }

    /// Draws the last hour.
    pub(crate) fn plots(&self) -> Vec<Plot> {
        self.lock().plots(now_ms())
    }

    /// Returns the newest events, as the page lists them.
    pub(crate) fn listed_events(&self) -> Value {
        let now = unix_ms();
        let newest = self.events.newest(LISTED_EVENTS).into_iter();
        let rows = newest.map(|it| {
            json!({
                "ago_s": now.saturating_sub(it.unix_ms) as f64 / 1e3,
                "level": it.level,
                "event": it.event,
                "device": it.device,
                "message": it.message,
            })
        });
        rows.collect()
    }

    /// Returns one of the [`DOCUMENTS`].
    pub(crate) fn document(&self, path: &str) -> Option<String> {
        let text = match path {
            "/history.json" => {
                let samples = self.lock();
                serde_json::to_string(&samples.document(now_ms()))
            }
            "/events.json" => {
                let events = self.events.newest(MOST_EVENTS);
                serde_json::to_string(&json!({ "most": MOST_EVENTS, "events": events }))
            }
            _ => return None,
        };
        text.inspect_err(|error| tracing::debug!(%error, "cannot write {path}"))
            .ok()
    }

    fn lock(&self) -> MutexGuard<'_, Samples> {
        // A panic elsewhere does not make plain numbers wrong.
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn name(row: &TunnelRow) -> TunnelName {
    TunnelName {
        site: row.site.as_ref().map(SiteName::to_string),
        tunnel: row.tunnel,
        device: row.device.clone(),
    }
}

fn sample(row: &TunnelRow) -> TunnelSample {
    TunnelSample {
        sent_bits_per_s: short(row.sent_bits_per_s),
        received_bits_per_s: short(row.received_bits_per_s),
        left_short_bits_per_s: short(row.left.left_short_bits_per_s),
        left_long_bits_per_s: short(row.left.left_long_bits_per_s),
        rtt_s: short(row.health.rtt_s),
        loss_ratio: short(row.health.loss_ratio),
        backlog_bytes: row.backlog_bytes.map(|it| it as f32),
    }
}

/// Seven digits are more than anybody sees.
fn short(value: Option<f64>) -> Option<f32> {
    value.map(|it| it as f32)
}

/// By a clock that never goes back.
fn now_ms() -> u64 {
    monotonic_ns() / 1_000_000
}
