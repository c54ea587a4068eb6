//! A TOML text read key by key, so that every mistake is found in one go and each is told with
//! its line. Serde would stop at the first one and would not name the key.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::leaf::{Read, described};
use super::mistake::Mistake;
use super::values::InvalidValue;

/// The text, what has been asked of it, and what is wrong with it.
pub(super) struct Document<'t> {
    name: &'t str,
    text: &'t str,
    root: Spanned<DeTable<'t>>,
    /// Every key that was asked for, by section; what is left over in the text is unknown.
    known: RefCell<BTreeMap<&'static str, Vec<&'static str>>>,
    mistakes: RefCell<Vec<Mistake>>,
}

/// One table of the document; empty if the text does not have it.
pub(super) struct Section<'d, 't> {
    document: &'d Document<'t>,
    name: &'static str,
    table: Option<&'d DeTable<'t>>,
    span: Range<usize>,
}

/// A value where it stands.
pub(super) type Value<'t> = Spanned<DeValue<'t>>;

impl<'t> Document<'t> {
    /// Parses the text; what is not TOML is among the mistakes at [`finish`](Self::finish).
    pub(super) fn new(text: &'t str, name: &'t str) -> Self {
        let (root, errors) = DeTable::parse_recoverable(text);
        let document = Self {
            name,
            text,
            root,
            known: RefCell::default(),
            mistakes: RefCell::default(),
        };
        for error in errors {
            let wrong = InvalidValue::new(
                format!("this is not TOML: {}", error.message().replace('\n', ", ")),
                "correct the line",
            );
            document.note(error.span().unwrap_or(0..0), String::new(), None, wrong);
        }
        document
    }

    /// Whether the text is TOML at all. If not, its keys are not worth complaining about.
    pub(super) fn is_toml(&self) -> bool {
        self.mistakes.borrow().is_empty()
    }

    /// The keys outside of any section.
    pub(super) fn top<'d>(&'d self) -> Section<'d, 't> {
        Section {
            document: self,
            name: "",
            table: Some(self.root.get_ref()),
            span: 0..0,
        }
    }

    /// The section of that name.
    pub(super) fn section<'d>(&'d self, name: &'static str) -> Section<'d, 't> {
        self.known.borrow_mut().entry(name).or_default();
        let value = self.root.get_ref().get(name);
        let table = value.and_then(|value| value.get_ref().as_table());
        let span = value.map_or(0..0, Spanned::span);
        if let (Some(value), None) = (value, table) {
            let wrong = InvalidValue::new(
                format!("this is {}, not a section", described(value.get_ref())),
                format!("write a line [{name}] and the keys below it"),
            );
            self.note(
                span.clone(),
                name.to_owned(),
                Some(self.source(value)),
                wrong,
            );
        }
        Section {
            document: self,
            name,
            table,
            span,
        }
    }

    /// Every mistake, in the order of the text. Keys that were never asked for are mistakes.
    pub(super) fn finish(self) -> Vec<Mistake> {
        let read_at_all = !self.known.borrow().is_empty();
        if read_at_all {
            self.note_unknown_keys();
        }
        let mut mistakes = self.mistakes.into_inner();
        mistakes.sort_by_key(|mistake| mistake.line);
        mistakes
    }

    fn know(&self, section: &'static str, key: &'static str) {
        let mut known = self.known.borrow_mut();
        known.entry(section).or_default().push(key);
    }

    fn note_unknown_keys(&self) {
        let known = self.known.borrow();
        for (key, value) in self.root.get_ref() {
            let section = known.get(key.get_ref().as_ref());
            if let (Some(keys), Some(table)) = (section, value.get_ref().as_table()) {
                self.note_unknown_inside(key.get_ref(), table, keys);
            } else if section.is_none() && !is_known(&known, "", key.get_ref()) {
                self.note_unknown("", key, value);
            }
        }
    }

    fn note_unknown_inside(&self, section: &str, table: &DeTable<'_>, keys: &[&'static str]) {
        let known = self.known.borrow();
        for (key, value) in table {
            if !keys.contains(&key.get_ref().as_ref()) {
                self.note_unknown(section, key, value);
                continue;
            }
            let path = join(section, key.get_ref());
            let Some(keys) = known.get(path.as_str()) else {
                continue;
            };
            let elements = value.get_ref().as_array().into_iter().flatten();
            for element in elements.chain([value]) {
                if let Some(table) = element.get_ref().as_table() {
                    self.note_unknown_inside(&path, table, keys);
                }
            }
        }
    }

    fn note_unknown(
        &self,
        section: &str,
        key: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Value<'_>,
    ) {
        let path = join(section, key.get_ref());
        let is_table = value.get_ref().as_table().is_some();
        let what = if is_table { "section" } else { "key" };
        let value = (!is_table).then(|| self.source(value));
        let remedy = match nearest(&self.known.borrow(), section, key.get_ref()) {
            Some(known) => format!("did you mean {known}?"),
            None => "remove it; splitter.example.toml documents all there are".to_owned(),
        };
        self.note(
            key.span(),
            path,
            value,
            InvalidValue::new(format!("unknown {what}"), remedy),
        );
    }

    fn note(&self, span: Range<usize>, key: String, value: Option<String>, wrong: InvalidValue) {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        self.mistakes.borrow_mut().push(Mistake {
            file: self.name.to_owned(),
            line: before.matches('\n').count() + 1,
            key,
            value,
            problem: wrong.problem,
            remedy: wrong.remedy,
        });
    }

    /// A value as it is written, on one line and not longer than a message can bear.
    fn source(&self, value: &Value<'_>) -> String {
        let source = self.text.get(value.span()).unwrap_or_default();
        let line = source.split_whitespace().collect::<Vec<_>>().join(" ");
        match line.char_indices().nth(80) {
            Some((end, _)) => format!("{}...", &line[..end]),
            None => line,
        }
    }
}

impl<'d, 't> Section<'d, 't> {
    /// Reads a key that may be left out. A mistake is noted and reads as absent.
    pub(super) fn optional<T>(
        &self,
        key: &'static str,
        read: impl FnOnce(&DeValue<'t>) -> Read<T>,
    ) -> Option<T> {
        self.document.know(self.name, key);
        let value = self.table?.get(key)?;
        match read(value.get_ref()) {
            Ok(read) => Some(read),
            Err(wrong) => {
                self.note_value(key, value, wrong);
                None
            }
        }
    }

    /// Reads a key that must be there.
    pub(super) fn required<T>(
        &self,
        key: &'static str,
        remedy: &str,
        read: impl FnOnce(&DeValue<'t>) -> Read<T>,
    ) -> Option<T> {
        if self.get(key).is_none() {
            let wrong = InvalidValue::new("this key is required", remedy);
            self.document
                .note(self.span.clone(), join(self.name, key), None, wrong);
        }
        self.optional(key, read)
    }

    /// The tables that a key lists, or one that it has by itself; `name` is what their keys' names
    /// begin with. `None` where the key is not there.
    pub(super) fn tables(&self, key: &'static str, name: &'static str) -> Option<Vec<Self>> {
        let document = self.document;
        document.know(self.name, key);
        let value = self.get(key)?;
        document.known.borrow_mut().entry(name).or_default();
        let elements: Vec<_> = match value.get_ref().as_array() {
            Some(elements) => elements.iter().collect(),
            None => vec![value],
        };
        let tables = elements.into_iter().map(|element| {
            let table = element.get_ref().as_table();
            if table.is_none() {
                let what = described(element.get_ref());
                let problem = format!("this is {what}, not a section");
                let remedy = format!("write a line [[{name}]] and the keys below it, for each");
                self.note_value(key, element, InvalidValue::new(problem, remedy));
            }
            Self {
                document,
                name,
                table,
                span: element.span(),
            }
        });
        Some(tables.filter(|it| it.table.is_some()).collect())
    }

    /// Whether a key is there, which is known from now on.
    pub(super) fn knows_and_has(&self, key: &'static str) -> bool {
        self.document.know(self.name, key);
        self.get(key).is_some()
    }

    /// Reads a list, or a single value as a list of one. Each element is judged by itself; of a
    /// list without any, `empty` is said.
    pub(super) fn list<T>(
        &self,
        key: &'static str,
        empty: [&str; 2],
        mut read: impl FnMut(&DeValue<'t>) -> Read<T>,
    ) -> Option<Vec<T>> {
        let elements = match self.get(key) {
            Some(value) if value.get_ref().is_array() => value.get_ref().as_array()?,
            _ => return self.optional(key, |value| read(value).map(|one| vec![one])),
        };
        self.document.know(self.name, key);
        if elements.is_empty() {
            self.contradiction(key, empty[0].to_owned(), empty[1]);
        }
        let mut list = Vec::new();
        for element in elements {
            match read(element.get_ref()) {
                Ok(read) => list.push(read),
                Err(wrong) => self.note_value(key, element, wrong),
            }
        }
        Some(list)
    }

    /// Notes that a key contradicts another one.
    pub(super) fn contradiction(&self, key: &'static str, problem: String, remedy: &str) {
        let wrong = InvalidValue::new(problem, remedy);
        match self.get(key) {
            Some(value) => self.note_value(key, value, wrong),
            None => self
                .document
                .note(self.span.clone(), join(self.name, key), None, wrong),
        }
    }

    fn get(&self, key: &str) -> Option<&'d Value<'t>> {
        self.table?.get(key)
    }

    fn note_value(&self, key: &str, value: &Value<'t>, wrong: InvalidValue) {
        let source = self.document.source(value);
        self.document
            .note(value.span(), join(self.name, key), Some(source), wrong);
    }
}

fn join(section: &str, key: &str) -> String {
    if section.is_empty() {
        key.to_owned()
    } else {
        format!("{section}.{key}")
    }
}

type Known = BTreeMap<&'static str, Vec<&'static str>>;

fn is_known(known: &Known, section: &str, key: &str) -> bool {
    known.get(section).is_some_and(|keys| keys.contains(&key))
}

/// The known key that was probably meant: of another section if it is spelt right, else the one
/// spelt most alike.
fn nearest(known: &Known, section: &str, key: &str) -> Option<String> {
    let all = known.iter().flat_map(|(section, keys)| {
        let is_section = !section.is_empty() && !section.contains('.');
        let sections = is_section.then(|| (*section, format!("[{section}]")));
        sections
            .into_iter()
            .chain(keys.iter().map(|key| (*key, join(section, key))))
    });
    let prefix = join(section, "");
    all.map(|(name, path)| {
        let elsewhere = if path.starts_with(&prefix) { 0.0 } else { 0.1 };
        (strsim::jaro_winkler(name, key) - elsewhere, path)
    })
    .filter(|(likeness, _)| *likeness > 0.8)
    .max_by(|(a, _), (b, _)| a.total_cmp(b))
    .map(|(_, path)| path)
}
