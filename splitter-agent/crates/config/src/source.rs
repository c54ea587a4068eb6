//! A TOML text read key by key, so that every mistake is found in one go, each with its span.
//! Serde would stop at the first one and would not name the key.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;
use toml::de::DeTable;

use crate::diagnostic::Diagnostic;
use crate::kind::{Value, type_of};
use crate::values::InvalidValue;

/// The text, what has been asked of it, and what is wrong with it.
pub(crate) struct Source<'t> {
    name: &'t str,
    text: &'t str,
    root: Spanned<DeTable<'t>>,
    /// Every key that was asked for, by section; what is left over in the text is unknown.
    known: RefCell<BTreeMap<&'static str, Vec<&'static str>>>,
    diagnostics: RefCell<Vec<Diagnostic>>,
}

/// One table of the source; empty if the text does not have it.
pub(crate) struct Section<'s, 't> {
    source: &'s Source<'t>,
    name: &'static str,
    table: Option<&'s DeTable<'t>>,
    span: Range<usize>,
}

impl<'t> Source<'t> {
    /// Parses the text; what is not TOML is among the diagnostics at [`finish`](Self::finish).
    pub(crate) fn new(text: &'t str, name: &'t str) -> Self {
        let (root, errors) = DeTable::parse_recoverable(text);
        let source = Self {
            name,
            text,
            root,
            known: RefCell::default(),
            diagnostics: RefCell::default(),
        };
        for error in errors {
            let wrong = InvalidValue::new(
                format!("this is not TOML: {}", error.message().replace('\n', ", ")),
                "correct the line",
            );
            source.note(error.span().unwrap_or(0..0), String::new(), None, wrong);
        }
        source
    }

    /// Whether the text is TOML at all. If not, its keys are not worth complaining about.
    pub(crate) fn is_toml(&self) -> bool {
        self.diagnostics.borrow().is_empty()
    }

    /// The keys outside of any section.
    pub(crate) fn top<'s>(&'s self) -> Section<'s, 't> {
        Section {
            source: self,
            name: "",
            table: Some(self.root.get_ref()),
            span: 0..0,
        }
    }

    /// The section of that name; empty if there is none.
    pub(crate) fn section<'s>(&'s self, name: &'static str) -> Section<'s, 't> {
        self.known.borrow_mut().entry(name).or_default();
        let value = self.root.get_ref().get(name);
        Section {
            source: self,
            name,
            table: value.and_then(|value| value.get_ref().as_table()),
            span: value.map_or(0..0, Spanned::span),
        }
    }

    /// Every mistake, in the order of the text. Keys that were never asked for are diagnostics.
    pub(crate) fn finish(self) -> Vec<Diagnostic> {
        let read_at_all = !self.known.borrow().is_empty();
        if read_at_all {
            self.note_unknown_keys();
        }
        let mut diagnostics = self.diagnostics.into_inner();
        diagnostics.sort_by_key(|diagnostic| diagnostic.line);
        diagnostics
    }

    fn know(&self, section: &'static str, key: &'static str) {
        let mut known = self.known.borrow_mut();
        known.entry(section).or_default().push(key);
    }

    fn note_unknown_keys(&self) {
        let known = self.known.borrow();
        for (key, value) in self.root.get_ref() {
            let section = known.get(key.get_ref().as_ref());
            for table in tables_of(value) {
                if let Some(keys) = section {
                    self.note_unknown_inside(key.get_ref(), table, keys);
                }
            }
            if section.is_none() && !is_known(&known, "", key.get_ref()) {
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
            for table in tables_of(value) {
                self.note_unknown_inside(&path, table, keys);
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
        let value = (!is_table).then(|| self.excerpt(value.span()));
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
        let diagnostic = Diagnostic::new(self.name, self.text, span, key, value, wrong);
        self.diagnostics.borrow_mut().push(diagnostic);
    }

    /// What is written in a span, on one line and not longer than a message can bear.
    fn excerpt(&self, span: Range<usize>) -> String {
        let source = self.text.get(span).unwrap_or_default();
        let line = source.split_whitespace().collect::<Vec<_>>().join(" ");
        match line.char_indices().nth(80) {
            Some((end, _)) => format!("{}...", &line[..end]),
            None => line,
        }
    }
}

impl<'s, 't> Section<'s, 't> {
    /// Returns its name, such as `flows`; empty for the keys outside of any section.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Tells whether it is a table of a list of tunnels.
    pub(crate) fn is_listed(&self) -> bool {
        self.name == "tunnels" || self.name.ends_with(".tunnels")
    }

    /// Opens the section of the keys above all sections.
    pub(crate) fn top(&self) -> Self {
        self.source.top()
    }

    /// Opens the section that a key of this one has; empty where it has none. `name` is what the
    /// names of its keys begin with.
    pub(crate) fn table(&self, key: &'static str, name: &'static str) -> Self {
        let source = self.source;
        source.known.borrow_mut().entry(name).or_default();
        let value = self.get(key);
        let table = value.and_then(|value| value.get_ref().as_table());
        if let (Some(value), None) = (value, table) {
            self.refuse_no_section(key, name, value);
        }
        Self {
            source,
            name,
            table,
            span: value.map_or_else(|| self.span.clone(), Spanned::span),
        }
    }

    /// Opens a section below this one for reading; what is no section is noted.
    pub(crate) fn inside(&self, name: &'static str) -> Self {
        if let Some(value) = self.find(name)
            && value.get_ref().as_table().is_none()
        {
            self.refuse_no_section(name, name, value);
        }
        self.source.section(name)
    }

    fn refuse_no_section(&self, key: &str, name: &str, value: &Value<'_>) {
        let problem = format!("this is {}, not a section", type_of(value.get_ref()));
        let remedy = format!("write a line [{name}] and the keys below it");
        self.refuse(key, value.span(), InvalidValue::new(problem, remedy));
    }

    /// Returns the value of a key, which is known from now on.
    pub(crate) fn get(&self, key: &'static str) -> Option<&'s Value<'t>> {
        self.source.know(self.name, key);
        self.find(key)
    }

    /// Notes that a key is not there.
    pub(crate) fn missing(&self, key: &str, wrong: InvalidValue) {
        self.source
            .note(self.span.clone(), join(self.name, key), None, wrong);
    }

    /// Notes what is wrong with the value of a key, or with a part of it.
    pub(crate) fn refuse(&self, key: &str, span: Range<usize>, wrong: InvalidValue) {
        let value = self.source.excerpt(span.clone());
        self.source
            .note(span, join(self.name, key), Some(value), wrong);
    }

    /// The tables that a key lists, or one that it has by itself; `name` is what their keys' names
    /// begin with. `None` where the key is not there.
    pub(crate) fn tables(&self, key: &'static str, name: &'static str) -> Option<Vec<Self>> {
        let source = self.source;
        let value = self.get(key)?;
        source.known.borrow_mut().entry(name).or_default();
        let elements: Vec<_> = match value.get_ref().as_array() {
            Some(elements) => elements.iter().collect(),
            None => vec![value],
        };
        let tables = elements.into_iter().map(|element| {
            let table = element.get_ref().as_table();
            if table.is_none() {
                let what = type_of(element.get_ref());
                let problem = format!("this is {what}, not a section");
                let remedy = format!("write a line [[{name}]] and the keys below it, for each");
                self.refuse(key, element.span(), InvalidValue::new(problem, remedy));
            }
            Self {
                source,
                name,
                table,
                span: element.span(),
            }
        });
        Some(tables.filter(|it| it.table.is_some()).collect())
    }

    /// Notes that a key contradicts another one.
    pub(crate) fn contradiction(&self, key: &'static str, problem: String, remedy: &str) {
        debug_assert!(is_known(&self.source.known.borrow(), self.name, key));
        let wrong = InvalidValue::new(problem, remedy);
        match self.find(key) {
            Some(value) => self.refuse(key, value.span(), wrong),
            None => self.missing(key, wrong),
        }
    }

    fn find(&self, key: &str) -> Option<&'s Value<'t>> {
        self.table?.get(key)
    }
}

fn join(section: &str, key: &str) -> String {
    if section.is_empty() {
        key.to_owned()
    } else {
        format!("{section}.{key}")
    }
}

/// The tables that a value lists, or the one that it is.
fn tables_of<'v, 't>(value: &'v Value<'t>) -> impl Iterator<Item = &'v DeTable<'t>> {
    let elements = value.get_ref().as_array().into_iter().flatten();
    elements
        .chain([value])
        .filter_map(|it| it.get_ref().as_table())
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
