//! The declaration of a key, with the types of its value.

use serde_json::Value as Json;

use crate::config::Given;
use crate::key::{Change, DefaultValue, Key, in_one_line, plain};
use crate::kind::{Kind, Refusals};
use crate::source::Section;
use crate::values::InvalidValue;

/// What a key needs that is read at the start alone.
pub(crate) const NEW_START: &str = "end the agent and start it again";

/// Begins the declaration of a key: the name, its change class, and what values it has.
pub(crate) fn key<K: Kind>(name: &'static str, change: Change, kind: K) -> Named<K> {
    Named { name, change, kind }
}

/// A key of which it is not said yet what it is when a file leaves it out.
pub(crate) struct Named<K> {
    name: &'static str,
    change: Change,
    kind: K,
}

impl<K: Kind> Named<K> {
    /// Gives a key that is left out this value.
    pub(crate) fn default<F: Field<K::Value>>(self, value: F) -> Declaration<K, F> {
        self.absent(Absent::Value(value))
    }

    /// Computes the value of a key that is left out from other keys; `sentence` is how.
    pub(crate) fn derived<F: Field<K::Value>>(
        self,
        sentence: &'static str,
        from: fn(&Given) -> F,
    ) -> Declaration<K, F> {
        self.absent(Absent::Derived(sentence, from))
    }

    /// Lets a key be left out, which means what `sentence` says.
    pub(crate) fn optional(self, sentence: &'static str) -> Declaration<K, Option<K::Value>> {
        self.derived(sentence, |_| None)
    }

    /// Refuses a file without the key.
    pub(crate) fn required(self, remedy: &'static str) -> Declaration<K, K::Value> {
        self.absent(Absent::Required(remedy))
    }

    fn absent<F>(self, absent: Absent<F>) -> Declaration<K, F> {
        Declaration {
            name: self.name,
            change: self.change,
            kind: self.kind,
            absent,
            doc: &[],
            trade_off: "",
            also: "",
            examples: &[],
            is_off: false,
            is_listed: false,
        }
    }
}

/// The outcome for a key that a file leaves out.
enum Absent<F> {
    Value(F),
    Derived(&'static str, fn(&Given) -> F),
    Required(&'static str),
}

/// Everything there is to say about a key, with the type of the field that holds its value.
pub(crate) struct Declaration<K, F> {
    name: &'static str,
    change: Change,
    kind: K,
    absent: Absent<F>,
    doc: &'static [&'static str],
    trade_off: &'static str,
    also: &'static str,
    examples: &'static [&'static str],
    is_off: bool,
    is_listed: bool,
}

impl<K: Kind, F: Field<K::Value>> Declaration<K, F> {
    /// Adds, for the reference page, what follows from a choice, in Markdown.
    pub(crate) fn trade_off(mut self, text: &'static str) -> Self {
        self.trade_off = text;
        self
    }

    /// Adds a limit that depends on other keys, in Markdown, to the values on the reference page.
    pub(crate) fn also(mut self, limit: &'static str) -> Self {
        self.also = limit;
        self
    }

    /// Shows these values in the example file instead of the default, one for each section that
    /// has the key.
    pub(crate) fn examples(mut self, toml: &'static [&'static str]) -> Self {
        self.examples = toml;
        self
    }

    /// Shows the key in a comment of the example file.
    pub(crate) fn off(mut self) -> Self {
        self.is_off = true;
        self
    }

    /// Has the key in tables of a list alone.
    pub(crate) fn listed(mut self) -> Self {
        self.is_listed = true;
        self
    }

    /// Documents the key; the lines are those of a comment.
    pub(crate) fn doc(mut self, lines: &'static [&'static str]) -> Self {
        self.doc = lines;
        self
    }

    /// Reads the key where a section has it. Everything wrong with it is noted there.
    pub(crate) fn read(&self, section: &Section<'_, '_>) -> Option<F> {
        if self.is_listed && !section.is_listed() {
            return None;
        }
        let given = section.get(self.name);
        if let (Absent::Required(remedy), None) = (&self.absent, given) {
            section.missing(
                self.name,
                InvalidValue::new("this key is required", *remedy),
            );
        }
        let mut refuse = Refusals {
            default: self.closing(),
            list: Vec::new(),
        };
        let read = self.kind.read(given?, &mut refuse);
        for (span, wrong) in refuse.list {
            section.refuse(self.name, span, wrong);
        }
        read.map(F::hold)
    }

    /// Returns the value that was given, or the one of a key that is left out. There is none of
    /// one that is required.
    pub(crate) fn complete(&self, given: Option<&F>, all: &Given) -> Option<F> {
        given.cloned().or_else(|| match &self.absent {
            Absent::Value(value) => Some(value.clone()),
            Absent::Derived(_, from) => Some(from(all)),
            Absent::Required(_) => None,
        })
    }

    /// Writes the value as a file has it; null for none.
    fn write(&self, field: &F) -> Json {
        field.held().map_or(Json::Null, |it| self.kind.write(it))
    }

    /// The default in the words that close a remedy.
    fn closing(&self) -> String {
        match &self.absent {
            Absent::Value(value) => match value.held() {
                Some(value) => format!("(the default is {})", self.kind.show(value)),
                None => String::new(),
            },
            Absent::Derived(sentence, _) => format!("(if left out: {})", plain(sentence)),
            Absent::Required(_) => String::new(),
        }
    }

    fn default_of_row(&self) -> DefaultValue {
        match &self.absent {
            Absent::Value(value) => match value.held() {
                Some(held) => DefaultValue::Value {
                    json: self.kind.write(held),
                    shown: self.kind.show(held),
                },
                None => DefaultValue::Sentence("none"),
            },
            Absent::Derived(sentence, _) => DefaultValue::Sentence(sentence),
            Absent::Required(_) => DefaultValue::Required,
        }
    }
}

impl<K: Kind, F: Field<K::Value>> Declaration<K, F> {
    /// Makes the row of the key; `of` finds its field in the section.
    pub(crate) fn row<S: 'static>(self, of: fn(&S) -> &F) -> Key<S> {
        Key {
            section: "",
            name: self.name.to_owned(),
            change: self.change,
            default: self.default_of_row(),
            doc: in_one_line(self.doc),
            trade_off: self.trade_off,
            values: self.kind.values(),
            also: self.also,
            schema: self.kind.schema(),
            words: self.kind.words(),
            examples: self.examples,
            is_off: self.is_off,
            is_listed: self.is_listed,
            value: Box::new(move |section| self.write(of(section))),
        }
    }
}

/// A type of field that holds a value of type `V`, or may.
pub(crate) trait Field<V>: Clone + Send + Sync + 'static {
    /// Makes a field of a value that was read.
    fn hold(value: V) -> Self;

    /// Returns the value, where there is one.
    fn held(&self) -> Option<&V>;
}

impl<V: Clone + Send + Sync + 'static> Field<V> for V {
    fn hold(value: V) -> Self {
        value
    }

    fn held(&self) -> Option<&V> {
        Some(self)
    }
}

impl<V: Clone + Send + Sync + 'static> Field<V> for Option<V> {
    fn hold(value: V) -> Self {
        Some(value)
    }

    fn held(&self) -> Option<&V> {
        self.as_ref()
    }
}
