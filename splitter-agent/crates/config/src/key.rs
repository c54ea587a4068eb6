//! A key as a row of the table of all keys, without the types of its value.

use serde_json::Value as Json;

use crate::{Config, keys};

/// Says when the value of a key may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// A running agent takes another value at once (`splitter set`), or by a new file.
    Set,
    /// A new file changes it (`splitter reload`): rules, routes or attachments follow.
    Reload,
    /// Another start alone changes it; the text says what to do.
    Restart(&'static str),
}

/// A key of the configuration, as one row of the table of all keys. `S` is what has its value.
pub struct Key<S = Config> {
    /// The section, such as `flows`; empty for the keys above all sections.
    pub section: &'static str,
    /// The name with the section, as in `flows.threshold`.
    pub name: String,
    /// The class of changes that it allows.
    pub change: Change,
    /// The outcome where a file leaves it out.
    pub default: DefaultValue,
    /// The explanation that the example file has, in one line.
    pub doc: String,
    /// The consequences of a choice, in Markdown.
    pub trade_off: &'static str,
    /// The values that it takes, in Markdown.
    pub values: String,
    /// A further limit, in Markdown.
    pub also: &'static str,
    /// The values that it takes, in JSON Schema.
    pub schema: Json,
    /// Words that it takes, each with its meaning.
    pub words: Vec<(&'static str, &'static str)>,
    /// The values in the example file, in TOML, one for each section that has the key; the
    /// default where there is none.
    pub(crate) examples: &'static [&'static str],
    /// Shows the key in a comment of the example file.
    pub(crate) is_off: bool,
    /// Has the key in tables of a list alone.
    pub(crate) is_listed: bool,
    pub(crate) value: Box<dyn Fn(&S) -> Json + Send + Sync>,
}

/// The outcome for a key that a file leaves out, for documents.
#[derive(Debug, Clone, PartialEq)]
pub enum DefaultValue {
    /// A value, as JSON and as documents show it.
    Value {
        /// The value in JSON.
        json: Json,
        /// The value in TOML.
        shown: String,
    },
    /// A sentence says it, in plain text.
    Sentence(&'static str),
    /// No file is right without the key.
    Required,
}

impl<S: 'static> Key<S> {
    /// Returns its value, defaults included, as the file would have it; null where there is none.
    #[must_use]
    pub fn value(&self, of: &S) -> Json {
        (self.value)(of)
    }

    /// Returns its name without the section.
    #[must_use]
    pub fn bare(&self) -> &str {
        self.name.rsplit('.').next().unwrap_or(&self.name)
    }

    /// Makes it a key of what contains the section; `find` finds that, where it is there.
    pub(crate) fn inside<T: 'static>(self, section: &'static str, find: Find<T, S>) -> Key<T> {
        Key {
            section,
            name: match section {
                "" => self.name,
                _ => format!("{section}.{}", self.name),
            },
            change: self.change,
            default: self.default,
            doc: self.doc,
            trade_off: self.trade_off,
            values: self.values,
            also: self.also,
            schema: self.schema,
            words: self.words,
            examples: self.examples,
            is_off: self.is_off,
            is_listed: self.is_listed,
            value: Box::new(move |of| find(of).map_or(Json::Null, |it| (self.value)(it))),
        }
    }
}

/// Finds a section in what contains it.
pub(crate) type Find<T, S> = fn(&T) -> Option<&S>;

impl Key {
    /// Finds the key of that name; the section may be left out where no other has such a key.
    ///
    /// # Errors
    /// In words, when there is none or more than one.
    pub fn named(name: &str) -> Result<&'static Self, String> {
        let exact = keys().iter().find(|key| key.name == name);
        let mut found = keys().iter().filter(|key| key.bare() == name);
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

impl<S> std::fmt::Debug for Key<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key")
            .field("name", &self.name)
            .field("change", &self.change)
            .field("default", &self.default)
            .finish_non_exhaustive()
    }
}

fn unknown(name: &str) -> String {
    let likeness = |key: &Key| {
        strsim::jaro_winkler(key.bare(), name).max(strsim::jaro_winkler(&key.name, name))
    };
    let nearest = keys()
        .iter()
        .map(|key| (likeness(key), &key.name))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|(a, _), (b, _)| a.total_cmp(b));
    match nearest {
        Some((_, nearest)) => format!("{name}: unknown key; did you mean {nearest}?"),
        None => {
            let settable = keys().iter().filter(|key| key.change == Change::Set);
            let names: Vec<_> = settable.map(|key| key.name.as_str()).collect();
            format!(
                "{name}: unknown key; `splitter set` takes {}",
                names.join(", ")
            )
        }
    }
}

pub(crate) fn in_one_line(lines: &[&str]) -> String {
    let lines: Vec<_> = lines.iter().map(|line| line.trim()).collect();
    lines.join(" ")
}

/// Takes the Markdown out of a sentence.
pub(crate) fn plain(markdown: &str) -> String {
    markdown.replace('`', "")
}
