//! The kinds of values that keys have. A kind reads and writes values, and describes those that
//! it takes, so that a key's declaration says everything about it once.

use std::ops::Range;

use serde_json::Value as Json;
use toml::Spanned;
use toml::de::DeValue;

use crate::values::InvalidValue;

mod list;
mod number;
mod text;
mod word;

pub(crate) use list::list;
pub(crate) use number::{mask, microseconds, milliseconds, or_word, seconds, whole};
pub(crate) use text::{
    address, collector_url, instance_name, interface, path, prefix, scalar_string, site_name,
    socket_address,
};
pub(crate) use word::{Enumeration, Word, boolean, enumeration, word};

/// A value of the source, with its span.
pub(crate) type Value<'t> = Spanned<DeValue<'t>>;

/// Reads, writes and describes the values of a key.
pub(crate) trait Kind: Send + Sync + 'static {
    /// The type of a value that was read.
    type Value: Clone + Send + Sync + 'static;

    /// Reads a value; `refuse` takes everything that is wrong with it. A list may be wrong in
    /// part and still be there, so that other keys can be held against the rest.
    fn read(&self, value: &Value<'_>, refuse: &mut Refusals) -> Option<Self::Value>;

    /// Writes a value as a file has it; null for one that stands for no key at all.
    fn write(&self, value: &Self::Value) -> Json;

    /// Writes a value as documents and messages show it.
    fn show(&self, value: &Self::Value) -> String {
        self.write(value).to_string()
    }

    /// Describes all values in Markdown, for the table of the reference page.
    fn values(&self) -> String;

    /// Describes all values in JSON Schema.
    fn schema(&self) -> Json;

    /// Lists the values that a shell can complete, each with its meaning.
    fn words(&self) -> Vec<(&'static str, &'static str)> {
        Vec::new()
    }

    /// Holds every value against a further rule.
    fn must(self, rule: fn(&Self::Value) -> Result<(), InvalidValue>) -> Must<Self>
    where
        Self: Sized,
    {
        Must { kind: self, rule }
    }
}

/// Everything that is wrong with a value, each with the span that it is about.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    /// The default of the key, in the words that close a remedy; empty if there is none.
    pub(crate) default: String,
    /// The refusals, in the order of the text.
    pub(crate) list: Vec<(Range<usize>, InvalidValue)>,
}

impl Refusals {
    /// Adds a refusal of what stands in `span`.
    pub(crate) fn add(&mut self, span: Range<usize>, wrong: InvalidValue) {
        self.list.push((span, wrong));
    }

    /// Takes the value out of a result, or its refusal.
    pub(crate) fn take<T>(
        &mut self,
        value: &Value<'_>,
        result: Result<T, InvalidValue>,
    ) -> Option<T> {
        match result {
            Ok(read) => Some(read),
            Err(wrong) => {
                self.add(value.span(), wrong);
                None
            }
        }
    }
}

/// A kind whose values obey a further rule.
pub(crate) struct Must<K: Kind> {
    kind: K,
    rule: fn(&K::Value) -> Result<(), InvalidValue>,
}

impl<K: Kind> Kind for Must<K> {
    type Value = K::Value;

    fn read(&self, value: &Value<'_>, refuse: &mut Refusals) -> Option<K::Value> {
        let read = self.kind.read(value, refuse)?;
        let ruled = (self.rule)(&read);
        refuse.take(value, ruled)?;
        Some(read)
    }

    fn write(&self, value: &K::Value) -> Json {
        self.kind.write(value)
    }

    fn show(&self, value: &K::Value) -> String {
        self.kind.show(value)
    }

    fn values(&self) -> String {
        self.kind.values()
    }

    fn schema(&self) -> Json {
        self.kind.schema()
    }

    fn words(&self) -> Vec<(&'static str, &'static str)> {
        self.kind.words()
    }
}

/// Names the type of a value with its article, for messages.
pub(crate) fn type_of(value: &DeValue<'_>) -> String {
    let name = value.type_str();
    let article = if name.starts_with(['a', 'i']) {
        "an"
    } else {
        "a"
    };
    format!("{article} {name}")
}
