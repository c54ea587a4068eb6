//! Values that were set while the agent runs, on top of what the file says.

use std::collections::BTreeMap;

use serde_json::Value;

use super::key::{Change, Key};
use super::{Config, ConfigError, Diagnostic};

/// Values by key, with its section, in the shape of a file's.
pub type Overrides = BTreeMap<String, Value>;

/// Why values cannot be set.
#[derive(Debug, thiserror::Error)]
pub enum SetError {
    /// A key that does not exist, or cannot be set; in words.
    #[error("{0}")]
    Key(String),
    /// The configuration would be wrong.
    #[error("{}", lines(.0))]
    Wrong(Vec<Diagnostic>),
}

/// Finds the keys that were named, and reads the values as a file's.
///
/// # Errors
/// [`SetError::Key`] for a key that is unknown, given twice or not to be set at run time.
pub fn read<'a>(
    pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<Overrides, SetError> {
    let mut overrides = Overrides::new();
    for (name, value) in pairs {
        let key = settable(name)?;
        if overrides
            .insert(key.to_owned(), word_or_value(value))
            .is_some()
        {
            return Err(SetError::Key(format!("{key}: given twice; give one value")));
        }
    }
    Ok(overrides)
}

/// The key of that name, if it may be set at run time.
///
/// # Errors
/// [`SetError::Key`] if not, with what to do instead.
pub fn settable(name: &str) -> Result<&'static str, SetError> {
    let key = Key::named(name).map_err(SetError::Key)?;
    match key.change {
        Change::Set => Ok(&key.name),
        Change::Reload => Err(SetError::Key(format!(
            "{}: rules, routes or attachments follow this key; change it in the file and run `splitter reload`",
            key.name
        ))),
        Change::Restart(remedy) => Err(SetError::Key(format!(
            "{}: this cannot change at run time; {remedy}",
            key.name
        ))),
    }
}

/// What a person types needs no quotes: what is not a number or the like is a word.
fn word_or_value(text: &str) -> Value {
    match format!("value = {text}").parse::<toml::Table>() {
        // More than one key would be a second line in the text.
        Ok(mut table) if table.len() == 1 => table
            .remove("value")
            .and_then(|value| serde_json::to_value(value).ok())
            .unwrap_or_else(|| text.into()),
        _ => text.into(),
    }
}

impl Config {
    /// Parses `text` with some keys' values replaced; the text by itself is right.
    ///
    /// # Errors
    /// With every mistake, all of which come from what was replaced.
    pub fn parse_with(text: &str, overrides: &Overrides) -> Result<Self, SetError> {
        let wrong = |error: ConfigError| SetError::Wrong(error.diagnostics().to_vec());
        if overrides.is_empty() {
            return Self::parse(text, "the configuration").map_err(wrong);
        }
        let mut table: toml::Table = text
            .parse()
            .map_err(|error: toml::de::Error| SetError::Key(error.message().to_owned()))?;
        for (key, value) in overrides {
            let value = toml::Value::try_from(value)
                .map_err(|error| SetError::Key(format!("{key} = {value}: {error}")))?;
            replace(&mut table, key, value);
        }
        Self::parse(&table.to_string(), "the configuration").map_err(wrong)
    }
}

fn replace(table: &mut toml::Table, key: &str, value: toml::Value) {
    let Some((section, name)) = key.split_once('.') else {
        table.insert(key.to_owned(), value);
        return;
    };
    let section = table
        .entry(section)
        .or_insert_with(|| toml::Table::new().into());
    if let Some(section) = section.as_table_mut() {
        section.insert(name.to_owned(), value);
    }
}

/// Without lines, which would be those of a text that nobody has seen.
fn lines(diagnostics: &[Diagnostic]) -> String {
    let lines = diagnostics.iter().map(Diagnostic::without_place);
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use crate::tests::example_with_list;

    fn set(pairs: &[(&str, &str)]) -> Result<Config, SetError> {
        Config::parse_with(&example(), &read(pairs.iter().copied())?)
    }

    #[test]
    fn values_replace_those_of_the_file() {
        let config = set(&[("threshold", "90000"), ("unit", "bytes")]).unwrap();
        assert_eq!(config.flows.threshold.fixed(), Some(90_000));
        assert_eq!(config.flows.unit.as_str(), "bytes");
        let auto = set(&[("threshold", "auto")]).unwrap();
        assert_eq!(auto.flows.threshold.fixed(), None);
        assert_eq!(
            set(&[("flows.unit", "\"bytes\"")])
                .unwrap()
                .flows
                .unit
                .as_str(),
            "bytes"
        );
    }

    #[test]
    fn mistakes_are_reported_without_a_line() {
        let cases = [
            (("threshold", "0"), "flows.threshold = 0: "),
            (("threshold", "many"), "flows.threshold = \"many\": "),
            (
                ("threshold", "1\nunit = 'bytes'"),
                "flows.threshold = \"\"\" 1 unit = 'bytes'\"\"\": ",
            ),
            (("max_wait_ms", "0"), "handover.max_wait_ms = 0: "),
            (
                ("drain_margin_us", "10000001"),
                "handover.drain_margin_us = 10000001: ",
            ),
            (("thresold", "3"), "thresold: "),
            (("health.port", "32"), "health.port: "),
            (("lan", "eth1"), "lan: "),
        ];
        for (pair, expected) in cases {
            let refused = set(&[pair]).unwrap_err().to_string();
            assert!(refused.starts_with(expected), "{refused}\n{expected}");
        }
        let overrides = read([("short.rate_mbit", "9")]).unwrap();
        let listed = Config::parse_with(&example_with_list(), &overrides).unwrap_err();
        assert!(
            listed.to_string().starts_with("short.rate_mbit = 9: "),
            "{listed}"
        );
        let twice = set(&[("threshold", "3"), ("flows.threshold", "4")]).unwrap_err();
        assert!(
            twice.to_string().starts_with("flows.threshold: "),
            "{twice}"
        );
    }
}
