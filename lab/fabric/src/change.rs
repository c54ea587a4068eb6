//! Keys of the simulator's scenario that are changed: one factor at a time says what a difference is due to.

use std::{fmt, str::FromStr};

/// Keys that are changed together, to see what is due to them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Variation(Vec<Change>);

/// A key of the scenario with another value.
#[derive(Clone, Debug, PartialEq)]
struct Change {
    key: String,
    value: toml::Value,
}

/// Keys that say which flows there are and how long they are watched: those of the measurement, or nothing can be held
/// beside it.
const FIXED: [&str; 4] = ["traffic", "warm_up_ms", "until_ms", "seed"];

impl Variation {
    /// The changes as lines of the scenario.
    pub(crate) fn lines(&self) -> String {
        self.0.iter().map(|it| format!("{it}\n")).collect()
    }
}

/// Reads several changes with `;` between them.
impl FromStr for Variation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let changes = text.split(';').map(str::parse);
        changes.collect::<Result<_, _>>().map(Self)
    }
}

/// Written as on the command line; without changes as `-`.
impl fmt::Display for Variation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return formatter.write_str("-");
        }
        let words = self.0.iter().map(|Change { key, value }| match value {
            toml::Value::String(word) => format!("{key}={word}"),
            value => format!("{key}={value}"),
        });
        formatter.write_str(&words.collect::<Vec<_>>().join(";"))
    }
}

/// Reads `transport.recovery=sack`: what is no number, list or table of TOML is a word.
impl FromStr for Change {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = text
            .split_once('=')
            .ok_or("it is not a key, `=` and a value")?;
        let is_name = |it: char| it.is_ascii_alphanumeric() || it == '_';
        let is_key = |it: &str| !it.is_empty() && it.chars().all(is_name);
        if !key.split('.').all(is_key) {
            return Err(format!("{key:?} is no key, such as transport.recovery"));
        }
        let first = key.split('.').next();
        if let Some(fixed) = FIXED.into_iter().find(|it| Some(*it) == first) {
            return Err(format!(
                "{fixed} is that of the flows that are predicted, and stays"
            ));
        }
        let table = format!("value = {value}").parse::<toml::Table>();
        let read = table.ok().filter(|it| it.len() == 1);
        let read = read.and_then(|mut it| it.remove("value"));
        Ok(Self {
            key: key.to_owned(),
            value: read.unwrap_or_else(|| value.into()),
        })
    }
}

/// Written as a line of the scenario.
impl fmt::Display for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} = {}", self.key, self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Result<String, String> {
        text.parse::<Change>().map(|it| it.to_string())
    }

    #[test]
    fn variation_is_written_as_it_was_read() {
        let text = "transport.control=reno;transport.handshake=false";
        let read: Variation = text.parse().expect("two keys");
        assert_eq!(read.to_string(), text);
        let lines = "transport.control = \"reno\"\ntransport.handshake = false\n";
        assert_eq!(read.lines(), lines);
        let none = Variation::default();
        assert_eq!((none.to_string(), none.lines()), ("-".into(), "".into()));
        assert!("transport.control=reno;".parse::<Variation>().is_err());
    }

    #[test]
    fn change_is_a_line_of_the_scenario() {
        for (text, expected) in [
            ("transport.recovery=sack", "transport.recovery = \"sack\""),
            ("transport.handshake=false", "transport.handshake = false"),
            ("port.burst_bytes=1", "port.burst_bytes = 1"),
            ("port.buffer_us=2e3", "port.buffer_us = 2000.0"),
            ("about=\"a = b\"", "about = \"a = b\""),
        ] {
            assert_eq!(line(text).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn flows_and_their_times_stay() {
        for key in FIXED {
            let error = line(&format!("{key}=1")).expect_err("it is fixed");
            assert!(error.starts_with(key), "{error}");
            assert!(line(&format!("{key}.kind=1")).is_err());
            assert!(line(&format!("port.{key}=1")).is_ok(), "another one's");
        }
        let among = "transport.paws=false;until_ms=1".parse::<Variation>();
        assert!(among.is_err());
    }

    #[test]
    fn what_is_no_key_is_refused_and_no_value_adds_a_line() {
        for text in ["transport", "=1", "a..b=1", "[a]=1", "a b=1", "a\n=1"] {
            assert!(line(text).is_err(), "{text:?}");
        }
        let added = line("port.burst_bytes=1\nuntil_ms = 2").expect("a word");
        assert!(!added.contains('\n') || added.contains("\"\"\""), "{added}");
    }
}
