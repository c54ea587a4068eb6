//! The example file: every key with its explanation and default.

use crate::declare::Section as _;
use crate::key::{DefaultValue, Key, plain};
use crate::sections::{LISTED_EXAMPLE, SITES_EXAMPLE};
use crate::{Config, sections_with_keys};

const HEAD: &str = "\
# A documented configuration of the splitter: every key, its unit and its default.
# `splitter check FILE` tells whether a file is right without touching the system.
# `splitter config schema` prints a JSON Schema, with which editors complete and explain keys.
";

/// The width at which comments are broken.
const WIDTH: usize = 88;

/// Writes a configuration that shows every key.
#[must_use]
pub fn example() -> String {
    let mut text = HEAD.to_owned();
    let (lists, single): (Vec<_>, Vec<_>) = { Config::keys("") }
        .into_iter()
        .partition(|key| ["site", "tunnels"].contains(&key.bare()));
    for key in single {
        text += "\n";
        text += &entry(&key, 0, true);
    }
    let mut explained: Vec<String> = Vec::new();
    let mut headed = String::new();
    for (index, section) in sections_with_keys().into_iter().enumerate() {
        // The second class has the keys of the first.
        let place = usize::from(index == 1);
        let head = if headed == section.doc {
            ""
        } else {
            &section.doc
        };
        text += &format!("\n{}[{}]\n", comment(head), section.name);
        headed.clone_from(&section.doc);
        for key in &section.keys {
            let is_new = !explained.contains(&key.doc);
            if key.bare() == "tunnels" {
                text += &if is_new { list(key) } else { String::new() };
            } else {
                text += &entry(key, place, is_new);
            }
            explained.push(key.doc.clone());
        }
    }
    // Tables of a list come after the keys above all sections.
    text + &lists.iter().map(sites).collect::<String>()
}

/// The list that may take the place of the only site, in a comment.
fn sites(key: &Key) -> String {
    let mut text = format!("\n{}", comment(&plain(&key.doc)));
    let tables = match key.bare() {
        "tunnels" => LISTED_EXAMPLE.as_slice(),
        _ => SITES_EXAMPLE.as_slice(),
    };
    for table in tables {
        text += &format!("#\n# [[{}]]\n", key.name);
        for (key, value) in *table {
            text += &format!("# {key} = {value}\n");
        }
    }
    text
}

/// A key with its comment; one that was explained above has its default alone.
fn entry<S: 'static>(key: &Key<S>, place: usize, is_new: bool) -> String {
    let mut words = if is_new {
        plain(&key.doc)
    } else {
        String::new()
    };
    if is_new {
        words += &limits(key);
    }
    match &key.default {
        DefaultValue::Value { shown, .. } => words += &format!(" Default {shown}."),
        DefaultValue::Sentence(sentence) if is_new => {
            words += &format!(" If left out: {}.", plain(sentence));
        }
        DefaultValue::Required if is_new => words += " Required.",
        DefaultValue::Sentence(_) | DefaultValue::Required => {}
    }
    let example = key.examples.get(place).or(key.examples.first());
    let value = match (example, &key.default) {
        (Some(value), _) => value,
        (None, DefaultValue::Value { shown, .. }) => shown.as_str(),
        (None, _) => "",
    };
    let off = if key.is_off { "# " } else { "" };
    format!("{}{off}{} = {value}\n", comment(words.trim()), key.bare())
}

/// What it takes, where the explanation does not say that.
fn limits<S>(key: &Key<S>) -> String {
    let has_range = key.schema.to_string().contains("minimum");
    match (has_range, key.also) {
        (true, "") => format!(" Values: {}.", plain(&key.values)),
        (true, also) => format!(" Values: {}; {}.", plain(&key.values), plain(also)),
        (false, "") => String::new(),
        (false, also) => format!(" Limit: {}.", plain(also)),
    }
}

/// The list that may take the place of a tunnel's keys, in a comment.
fn list<S>(key: &Key<S>) -> String {
    let mut text = format!("\n{}", comment(&plain(&key.doc)));
    for tunnel in LISTED_EXAMPLE {
        text += &format!("#\n# [[{}]]\n", key.name);
        for (key, value) in tunnel {
            text += &format!("# {key} = {value}\n");
        }
    }
    text
}

/// Breaks words into lines of a comment. A line that begins with `key = value` would look like a
/// key that is off, so these stay together with the word before.
fn comment(words: &str) -> String {
    const GLUE: char = '\u{a0}';
    let mut glued: Vec<String> = Vec::new();
    for word in words.split_whitespace() {
        match glued.last_mut() {
            Some(last) if word == "=" || last.ends_with('=') => {
                last.push(GLUE);
                last.push_str(word);
            }
            _ => glued.push(word.to_owned()),
        }
    }
    let mut lines: Vec<String> = Vec::new();
    for (index, word) in glued.iter().enumerate() {
        let next = glued.get(index + 1).filter(|next| next.contains(GLUE));
        let width = word.chars().count() + next.map_or(0, |next| 1 + next.chars().count());
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + width <= WIDTH - 2 => {
                line.push(' ');
                line.push_str(word);
            }
            Some(line) if word.contains(GLUE) => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.clone()),
        }
    }
    let lines = lines.iter().map(|line| line.replace(GLUE, " "));
    lines.map(|line| format!("# {line}\n")).collect()
}
