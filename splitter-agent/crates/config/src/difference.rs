//! What differs between two configurations, and what of it a running agent cannot change.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Config;
use super::keys;
use crate::key::Change;

/// A key whose value differs between two configurations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeyChange {
    /// The key, with its section.
    pub key: String,
    /// What it was; null for nothing.
    pub from: Value,
    /// What it becomes.
    pub to: Value,
}

impl fmt::Display for KeyChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |value: &Value| match value {
            Value::Null => "not set".to_owned(),
            value => value.to_string(),
        };
        write!(
            f,
            "{}: {} -> {}",
            self.key,
            word(&self.from),
            word(&self.to)
        )
    }
}

/// Lists what differs, in the order of the documented example.
#[must_use]
pub fn difference(old: &Config, new: &Config) -> Vec<KeyChange> {
    let changes = keys().iter().map(|key| KeyChange {
        key: key.name.clone(),
        from: key.value(old),
        to: key.value(new),
    });
    changes.filter(|change| change.from != change.to).collect()
}

/// The changes that a running agent cannot make, each with what to do instead.
#[must_use]
pub fn frozen(changes: &[KeyChange]) -> Vec<String> {
    let words = changes.iter().filter_map(|change| {
        let key = keys().iter().find(|key| key.name == change.key)?;
        match key.change {
            Change::Restart(remedy) => Some(format!(
                "{change}: this cannot change at run time; {remedy}"
            )),
            Change::Set | Change::Reload => None,
        }
    });
    words.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use crate::tests::example_with_list;

    #[test]
    fn list_takes_the_place_of_the_keys_of_the_only_tunnel() {
        let old = Config::parse(&example(), "old").unwrap();
        let changes = difference(&old, &Config::parse(&example_with_list(), "new").unwrap());
        let words: Vec<_> = changes.iter().map(ToString::to_string).collect();
        let keys: Vec<_> = changes.iter().map(|change| change.key.as_str()).collect();
        let expected = ["device", "gateway", "rate_mbit", "peer", "tunnels"];
        // As the caps of flows do not know several tunnels.
        assert_eq!(
            keys,
            expected.map(|key| format!("short.{key}")),
            "{words:?}"
        );
        assert_eq!(words[0], "short.device: \"wan0\" -> not set");
        assert!(
            words[4].starts_with("short.tunnels: not set -> [{\"device\":\"wan0\",\"gateway\":["),
            "{words:?}"
        );
        assert!(frozen(&changes).is_empty());
    }

    #[test]
    fn differences_name_the_key_and_both_values() {
        let old = Config::parse(&example(), "old").unwrap();
        let text = example()
            .replace("threshold = 40", "threshold = 60")
            .replace("table_size = \"auto\"", "table_size = 4096")
            .replace("port = 9462", "port = 9463")
            .replace(
                "gateway = [\"192.0.2.1\", \"2001:db8:1::1\"]",
                "gateway = [\"192.0.2.9\", \"2001:db8:1::1\"]",
            );
        let changes = difference(&old, &Config::parse(&text, "new").unwrap());
        let words: Vec<_> = changes.iter().map(ToString::to_string).collect();
        assert_eq!(
            words,
            [
                "short.gateway: [\"192.0.2.1\",\"2001:db8:1::1\"] -> [\"192.0.2.9\",\"2001:db8:1::1\"]",
                "flows.threshold: 40 -> 60",
                "flows.table_size: \"auto\" -> 4096",
                "health.port: 9462 -> 9463",
            ]
        );
        let frozen = frozen(&changes);
        assert_eq!(frozen.len(), 1);
        assert!(
            frozen[0].starts_with("health.port: 9462 -> 9463: this cannot change at run time; "),
            "{frozen:?}"
        );
    }
}
