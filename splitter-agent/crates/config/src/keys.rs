//! Every key with its value, and whether that may change while an agent runs.

use std::time::Duration;

use serde_json::{Value, json};

use self::Changeable::{Reload, Restart, Set};
use super::{Config, Gateways, Tunnel, Tunnels};

/// When the value of a key may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changeable {
    /// By a word to the running agent (`splitter set`), or by a new file.
    Set,
    /// By a new file (`splitter reload`): rules, routes or attachments follow it.
    Reload,
    /// Only with another start; what to do instead.
    Restart(&'static str),
}

/// A key of the configuration.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// With its section, as in `flows.threshold`.
    pub name: &'static str,
    /// When it may change.
    pub changeable: Changeable,
    value: fn(&Config) -> Value,
}

impl Key {
    /// Its value, defaults included, as the file would have it; null where there is none.
    #[must_use]
    pub fn value(&self, config: &Config) -> Value {
        (self.value)(config)
    }

    /// The key of that name; the section may be left out where no other has such a key.
    ///
    /// # Errors
    /// In words, when there is none or more than one.
    pub fn named(name: &str) -> Result<&'static Self, String> {
        let bare = |key: &Self| key.name.rsplit('.').next() == Some(name);
        let exact = KEYS.iter().find(|key| key.name == name);
        let mut found = KEYS.iter().filter(|key| bare(key));
        match (exact, found.next(), found.next()) {
            (Some(key), ..) | (None, Some(key), None) => Ok(key),
            (None, Some(one), Some(other)) => Err(format!(
                "{name}: more than one section has this key; give {} or {}",
                one.name, other.name
            )),
            (None, None, _) => Err(unknown(name)),
        }
    }
}

fn unknown(name: &str) -> String {
    let likeness = |key: &Key| {
        let bare = key.name.rsplit('.').next().unwrap_or(key.name);
        strsim::jaro_winkler(bare, name).max(strsim::jaro_winkler(key.name, name))
    };
    let nearest = KEYS
        .iter()
        .map(|key| (likeness(key), key.name))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|(a, _), (b, _)| a.total_cmp(b));
    match nearest {
        Some((_, nearest)) => format!("{name}: unknown key; did you mean {nearest}?"),
        None => format!("{name}: unknown key; `splitter set` takes {}", settable()),
    }
}

/// The keys that can be set while an agent runs, for messages.
pub(super) fn settable() -> String {
    let names = KEYS
        .iter()
        .filter(|key| key.changeable == Set)
        .map(|key| key.name);
    names.collect::<Vec<_>>().join(", ")
}

const MOVES: &str =
    "end the agent (and run `splitter down`) under the old value, then start it under the new one";
const TABLE: &str = "the table would be made anew: end the agent and run `splitter down`, then start it again; flows start afresh as short";
const PROGRAM: &str = "another build of the program is needed: end the agent, then start it again; flows start afresh as short";
const STEERING: &str = "another program is needed: end the agent and run `splitter down`, then start it again; flows start afresh as short";
const ENDPOINT: &str = "end the agent and start it again";

/// Each key once, in the order of the documented example.
pub const KEYS: &[Key] = &[
    key("name", Restart(MOVES), |it| json!(it.name)),
    key("runtime_dir", Restart(MOVES), |it| json!(it.runtime_dir)),
    key("bpffs", Restart(MOVES), |it| json!(it.bpffs)),
    key("lan", Reload, |it| json!(it.lan)),
    key("policy", Reload, |it| json!(it.policy)),
    key("shadow", Set, |it| json!(it.shadow)),
    key("short.device", Reload, |it| {
        of_only(&it.short, |tunnel| json!(tunnel.device))
    }),
    key("short.gateway", Reload, |it| {
        of_only(&it.short, |tunnel| gateways(tunnel.gateway))
    }),
    key("short.table", Reload, |it| json!(it.short.table)),
    key("short.rate_mbit", Set, |it| {
        of_only(&it.short, |tunnel| json!(tunnel.rate_mbit))
    }),
    key("short.peer", Reload, |it| {
        of_only(&it.short, |tunnel| json!(tunnel.peer))
    }),
    key("short.tunnels", Reload, |it| several(&it.short)),
    key("long.device", Reload, |it| {
        of_only(&it.long, |tunnel| json!(tunnel.device))
    }),
    key("long.gateway", Reload, |it| {
        of_only(&it.long, |tunnel| gateways(tunnel.gateway))
    }),
    key("long.table", Reload, |it| json!(it.long.table)),
    key("long.rate_mbit", Set, |it| {
        of_only(&it.long, |tunnel| json!(tunnel.rate_mbit))
    }),
    key("long.peer", Reload, |it| {
        of_only(&it.long, |tunnel| json!(tunnel.peer))
    }),
    key("long.tunnels", Reload, |it| several(&it.long)),
    key("flows.threshold", Set, |it| json!(it.flows.threshold)),
    key("flows.unit", Set, |it| json!(it.flows.unit)),
    key("flows.protocols", Set, |it| json!(it.flows.protocols)),
    key("flows.idle_timeout_s", Set, |it| {
        json!(it.flows.idle_timeout.as_secs())
    }),
    key("flows.sweep_interval_s", Set, |it| {
        json!(it.flows.sweep_interval.as_secs())
    }),
    key("flows.table_size", Restart(TABLE), |it| {
        json!(it.flows.table_size)
    }),
    key("handover.drain_margin_us", Set, |it| {
        micros(it.handover.drain_margin)
    }),
    key("handover.max_wait_ms", Set, |it| {
        millis(it.handover.max_wait)
    }),
    key("handover.long_queue_ms", Set, |it| {
        millis(it.handover.long_queue)
    }),
    key("share.shape_percent", Reload, |it| {
        json!(it.share.shape_percent)
    }),
    key("share.queue_ms", Reload, |it| millis(it.share.queue)),
    key("share.cloudburst_dscp", Reload, |it| {
        json!(it.share.cloudburst.map(|queue| queue.dscp))
    }),
    key("share.cloudburst_packets", Reload, |it| {
        json!(it.share.cloudburst.map(|queue| queue.packets))
    }),
    key("share.cloudburst_percent", Reload, |it| {
        json!(it.share.cloudburst.map(|queue| queue.percent))
    }),
    key("advise.min", Set, |it| json!(it.advise.min)),
    key("advise.max", Set, |it| json!(it.advise.max)),
    key("advise.period_s", Set, |it| {
        json!(it.advise.period.as_secs())
    }),
    key("advise.rtt_ms", Set, |it| millis(it.advise.rtt)),
    key("marks.short", Reload, |it| json!(it.marks.short)),
    key("marks.long", Reload, |it| json!(it.marks.long)),
    key("marks.short_on_long", Reload, |it| {
        json!(it.marks.short_on_long)
    }),
    key("marks.long_on_short", Reload, |it| {
        json!(it.marks.long_on_short)
    }),
    key("marks.match", Reload, |it| json!(it.marks.matching)),
    key("steering.mode", Restart(STEERING), |it| {
        json!(it.steering.mode)
    }),
    key("steering.mark_mask", Reload, |it| {
        json!(it.steering.mark_bits.mask())
    }),
    key("attach.mode", Reload, |it| json!(it.attach)),
    key("routes.destinations", Reload, |it| {
        json!(it.routes.destinations)
    }),
    key("routes.rule_priority", Reload, |it| {
        json!(it.routes.rule_priority)
    }),
    key("health.enabled", Restart(ENDPOINT), |it| {
        json!(it.health.enabled)
    }),
    key("health.key_file", Restart(ENDPOINT), |it| {
        json!(it.health.key_file)
    }),
    key("health.port", Restart(ENDPOINT), |it| json!(it.health.port)),
    key("health.interval_ms", Set, |it| millis(it.health.interval)),
    key("health.dead_after_ms", Set, |it| {
        millis(it.health.dead_after)
    }),
    key("health.hold_down_s", Set, |it| {
        json!(it.health.hold_down.as_secs())
    }),
    key("health.max_hold_down_s", Set, |it| {
        json!(it.health.max_hold_down.as_secs())
    }),
    key("metrics.address", Restart(ENDPOINT), |it| {
        json!(it.metrics.address)
    }),
    key("metrics.flow_addresses", Set, |it| {
        json!(it.metrics.flow_addresses)
    }),
    key("log.packets", Restart(PROGRAM), |it| json!(it.packet_log)),
];

const fn key(name: &'static str, changeable: Changeable, value: fn(&Config) -> Value) -> Key {
    Key {
        name,
        changeable,
        value,
    }
}

/// A key of the section, which speaks of the only tunnel.
fn of_only(tunnels: &Tunnels, value: fn(&Tunnel) -> Value) -> Value {
    tunnels.only().map_or(Value::Null, value)
}

/// The list that takes the place of those keys.
fn several(tunnels: &Tunnels) -> Value {
    let listed = |tunnel: &Tunnel| {
        let keys = [
            ("device", json!(tunnel.device)),
            ("gateway", gateways(tunnel.gateway)),
            ("rate_mbit", json!(tunnel.rate_mbit)),
            ("peer", json!(tunnel.peer)),
            ("weight", json!(tunnel.weight)),
        ];
        let keys = keys.into_iter().filter(|(_, value)| !value.is_null());
        let keys = keys.map(|(key, value)| (key.to_owned(), value));
        Value::Object(keys.collect())
    };
    match tunnels.are_several() {
        true => tunnels.iter().map(listed).collect(),
        false => Value::Null,
    }
}

fn gateways(gateways: Gateways) -> Value {
    let (v4, v6) = (
        gateways.v4.map(|it| json!(it)),
        gateways.v6.map(|it| json!(it)),
    );
    match (v4, v6) {
        (None, None) => Value::Null,
        (v4, v6) => Value::Array(v4.into_iter().chain(v6).collect()),
    }
}

fn millis(duration: Duration) -> Value {
    json!(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

fn micros(duration: Duration) -> Value {
    json!(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::super::{EXAMPLE, difference, example_with_list};
    use super::*;

    /// The keys of the documented example, which has all there are; those that are off are in
    /// comments, and so is the list that may stand under either class.
    fn documented() -> Vec<String> {
        let is_key = |text: &str| text.bytes().all(|it| it.is_ascii_lowercase() || it == b'_');
        let uncommented = |line: &str| {
            let comment = line.strip_prefix("# ");
            let key = comment.and_then(|it| it.split_once(" = "));
            let is_off = key.is_some_and(|(key, _)| is_key(key))
                || comment.is_some_and(|it| it.starts_with("[["));
            line.get(if is_off { 2 } else { 0 }..).unwrap().to_owned()
        };
        let text: Vec<_> = EXAMPLE.lines().map(uncommented).collect();
        let table: toml::Table = text.join("\n").parse().unwrap();
        let keys = table.into_iter().flat_map(|(name, value)| match value {
            toml::Value::Table(section) => section
                .into_iter()
                .map(|(key, _)| format!("{name}.{key}"))
                .collect(),
            _ => vec![name],
        });
        let mut all: Vec<_> = keys.chain(["long.tunnels".to_owned()]).collect();
        all.sort();
        all
    }

    #[test]
    fn every_documented_key_is_listed_once_and_no_other() {
        let mut listed: Vec<_> = KEYS.iter().map(|it| it.name).collect();
        listed.sort_unstable();
        assert_eq!(listed, documented());
    }

    /// Writes every value into a file, and reads the same configuration from it.
    #[test]
    fn values_are_as_a_file_has_them() {
        for text in [EXAMPLE, &example_with_list()] {
            written_and_read_again(&Config::parse(text, "example").unwrap());
        }
    }

    fn written_and_read_again(config: &Config) {
        let mut table = toml::Table::new();
        for key in KEYS {
            let value = key.value(config);
            if value.is_null() {
                continue;
            }
            let value = toml::Value::try_from(value).unwrap();
            match key.name.split_once('.') {
                Some((section, name)) => {
                    let section = table
                        .entry(section)
                        .or_insert_with(|| toml::Table::new().into());
                    section
                        .as_table_mut()
                        .unwrap()
                        .insert(name.to_owned(), value);
                }
                None => drop(table.insert(key.name.to_owned(), value)),
            }
        }
        let again = Config::parse(&table.to_string(), "written").unwrap();
        assert_eq!(again, *config);
        assert_eq!(difference(config, &again), []);
    }

    #[test]
    fn keys_are_found_with_and_without_their_section() {
        let name = |given| Key::named(given).map(|key| key.name);
        assert_eq!(name("threshold"), Ok("flows.threshold"));
        assert_eq!(name("handover.max_wait_ms"), Ok("handover.max_wait_ms"));
        assert_eq!(
            name("treshold").unwrap_err(),
            "treshold: unknown key; did you mean flows.threshold?"
        );
        assert!(
            name("rate_mbit")
                .unwrap_err()
                .contains("give short.rate_mbit or long.rate_mbit")
        );
        assert!(
            name("zebra")
                .unwrap_err()
                .contains("`splitter set` takes shadow, short.rate_mbit, ")
        );
    }
}
