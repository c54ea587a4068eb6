//! What happened: a ring of the log's records, by the names of their events.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use tracing::field::{Field, Visit};
use tracing::{Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// Events that are kept, the newest.
pub const MOST_EVENTS: usize = 200;
/// Longest text of an event, in bytes; what is longer is cut.
const LONGEST_TEXT: usize = 400;

/// The events that are kept: what happens to tunnels, classes, routes and what is in place. None of
/// them has the address of a flow, so that all who reach the page may see them.
pub const NAMES: [&str; 40] = [
    "adopted",
    "attached",
    "attached_generic",
    "change_awaits_confirmation",
    "change_confirmed",
    "change_reverted",
    "class_moved",
    "config_changed",
    "config_refused",
    "egress_not_counted",
    "ending",
    "evidence_changed",
    "failover_failed",
    "follow_failed",
    "interface_absent",
    "interface_appeared",
    "key_unusable",
    "misrouted",
    "move_incomplete",
    "move_not_verified",
    "not_misrouted",
    "not_verified",
    "peer_absent",
    "peer_answers",
    "peer_key_differs",
    "peer_key_fits",
    "peer_version_differs",
    "placement_taken_over",
    "prefix_not_split",
    "prefixes_split",
    "programs_replaced",
    "reconcile_failed",
    "reconciled",
    "site_unwatched",
    "threshold_followed",
    "tunnel_awaited",
    "tunnel_down",
    "tunnel_link",
    "tunnel_returned",
    "tunnel_unknown",
];

/// Tells of something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// When, in milliseconds since 1970, by a clock that may jump.
    pub unix_ms: u64,
    /// "info", "warn" or "error".
    pub level: &'static str,
    /// Its name in the log.
    pub event: &'static str,
    /// The device of a tunnel or the interface that it is about.
    pub device: Option<String>,
    /// What happened, in words.
    pub message: String,
}

/// The newest events; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Events(Arc<Mutex<VecDeque<Event>>>);

impl Events {
    /// Returns what takes the records of the log.
    #[must_use]
    pub fn layer(&self) -> EventLayer {
        EventLayer(self.clone())
    }

    /// Returns the newest events, at most so many, the newest first.
    #[must_use]
    pub fn newest(&self, most: usize) -> Vec<Event> {
        self.lock().iter().rev().take(most).cloned().collect()
    }

    /// Adds an event; beyond the bound the oldest is forgotten.
    pub fn add(&self, mut event: Event) {
        for text in std::iter::once(&mut event.message).chain(&mut event.device) {
            cut(text);
        }
        let mut events = self.lock();
        if events.len() >= MOST_EVENTS {
            events.pop_front();
        }
        events.push_back(event);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Event>> {
        // A panic elsewhere does not make plain values wrong.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn cut(text: &mut String) {
    if text.len() > LONGEST_TEXT {
        let is_end = |at: &usize| text.is_char_boundary(*at);
        let end = (0..=LONGEST_TEXT).rev().find(is_end).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text.shrink_to_fit();
}

/// Takes what is logged, whatever of it is written.
#[derive(Debug)]
pub struct EventLayer(Events);

impl<S: Subscriber> Layer<S> for EventLayer {
    fn on_event(&self, record: &tracing::Event<'_>, _: Context<'_, S>) {
        let level = match *record.metadata().level() {
            Level::ERROR => "error",
            Level::WARN => "warn",
            Level::INFO => "info",
            _ => return,
        };
        let mut fields = Fields::default();
        record.record(&mut fields);
        let Some(event) = fields.event else {
            return;
        };
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        self.0.add(Event {
            unix_ms: since.map_or(0, |it| it.as_millis() as u64),
            level,
            event,
            device: fields.device,
            message: fields.message,
        });
    }
}

/// The fields of a record that are kept.
#[derive(Default)]
struct Fields {
    event: Option<&'static str>,
    device: Option<String>,
    message: String,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "device" | "interface" => self.device = Some(format!("{value:?}")),
            "message" => self.message = format!("{value:?}"),
            _ => {}
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "event" => self.event = NAMES.into_iter().find(|it| *it == value),
            "device" | "interface" => self.device = Some(value.to_owned()),
            "message" => value.clone_into(&mut self.message),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    fn logged(log: impl FnOnce()) -> Vec<Event> {
        let events = Events::default();
        let subscriber = tracing_subscriber::registry().with(events.layer());
        tracing::subscriber::with_default(subscriber, log);
        events.newest(usize::MAX)
    }

    #[test]
    fn named_events_are_kept_with_their_device_and_words() {
        let device = "wan0";
        let events = logged(|| {
            tracing::warn!(event = "tunnel_down", %device, "short tunnel: {}", "no answer");
            tracing::info!(event = "reconciled", "all of it");
        });
        let [newest, oldest] = &events[..] else {
            panic!("{events:?}");
        };
        assert_eq!((newest.event, newest.level), ("reconciled", "info"));
        assert_eq!((oldest.event, oldest.level), ("tunnel_down", "warn"));
        assert_eq!(oldest.device.as_deref(), Some("wan0"));
        assert_eq!(oldest.message, "short tunnel: no answer");
        assert!(oldest.unix_ms > 1_700_000_000_000, "{oldest:?}");
    }

    #[test]
    fn records_that_may_have_addresses_of_flows_or_no_name_are_not_kept() {
        let events = logged(|| {
            tracing::info!(event = "packet", "10.0.0.1:80 -> 10.0.0.2:443");
            tracing::info!("without a name");
            tracing::debug!(event = "tunnel_down", "for who debugs");
        });
        assert_eq!(events, []);
    }

    #[test]
    fn number_and_length_are_bounded() {
        let events = Events::default();
        for number in 0..1_000 {
            events.add(Event {
                unix_ms: number,
                level: "info",
                event: "reconciled",
                device: None,
                message: "ü".repeat(10_000),
            });
        }
        let kept = events.newest(usize::MAX);
        assert_eq!((kept.len(), kept[0].unix_ms), (MOST_EVENTS, 999));
        assert!(
            kept.iter()
                .all(|it| it.message.capacity() <= LONGEST_TEXT + 8)
        );
        assert_eq!(events.newest(3).len(), 3);
    }

    #[test]
    fn names_are_in_order_and_once_each() {
        assert!(NAMES.is_sorted_by(|one, next| one < next));
    }
}
