//! The report of what is wrong with a configuration, so that it can be put right at once.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use serde::{Deserialize, Serialize};

use crate::values::InvalidValue;

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error(
        "cannot read the configuration {}: {source}; {}",
        path.display(), remedy(source)
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The text is wrong in at least one place.
    #[error("{}", lines(.0))]
    Wrong(Vec<Diagnostic>),
}

fn remedy(source: &std::io::Error) -> &'static str {
    match source.kind() {
        std::io::ErrorKind::PermissionDenied => {
            "run this as a user who may read it, or name another file with --config"
        }
        _ => {
            "name another file with --config, or start from the documented example \
             (splitter.example.toml)"
        }
    }
}

impl ConfigError {
    /// Returns what is wrong in the text; nothing if it could not be read.
    #[must_use]
    pub fn diagnostics(&self) -> &[Diagnostic] {
        match self {
            Self::Unreadable { .. } => &[],
            Self::Wrong(diagnostics) => diagnostics,
        }
    }

    /// Writes the error as [`Display`](fmt::Display) does, and draws each line of the text that
    /// is wrong below what is wrong with it.
    #[must_use]
    pub fn drawn(&self, paint: Paint) -> String {
        match self {
            Self::Unreadable { .. } => self.to_string(),
            Self::Wrong(diagnostics) => drawn(diagnostics, paint),
        }
    }
}

/// Chooses between colours and plain text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    /// Writes escape sequences for a terminal.
    Colours,
    /// Writes plain text.
    Plain,
}

/// One mistake in a text, shown as `file:line: key = value: problem; remedy`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnostic {
    /// The file as the user named it.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column at which the mistake begins in the line, in characters from 1.
    pub column: usize,
    /// The part of the line that is wrong, in characters.
    pub width: usize,
    /// The line as it is written.
    pub text: String,
    /// The key with its section, such as `flows.threshold`; empty if the text is not TOML.
    pub key: String,
    /// The value as written, if there is one.
    pub value: Option<String>,
    /// The problem.
    pub problem: String,
    /// The remedy.
    pub remedy: String,
}

impl Diagnostic {
    /// Notes what is wrong in a span of a text; of several lines, the first one is shown.
    pub(crate) fn new(
        file: &str,
        text: &str,
        span: Range<usize>,
        key: String,
        value: Option<String>,
        wrong: InvalidValue,
    ) -> Self {
        let before = text.get(..span.start).unwrap_or(text);
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = text[start..].lines().next().unwrap_or_default();
        let marked = text.get(span.clone()).unwrap_or_default();
        Self {
            file: file.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before[start..].chars().count() + 1,
            width: marked.lines().next().unwrap_or_default().chars().count(),
            text: line.to_owned(),
            key,
            value,
            problem: wrong.problem,
            remedy: wrong.remedy,
        }
    }

    /// Writes the diagnostic without its line, for a text that nobody has seen.
    #[must_use]
    pub fn without_place(&self) -> String {
        let Self {
            problem, remedy, ..
        } = self;
        match (self.key.as_str(), &self.value) {
            ("", _) => format!("{problem}; {remedy}"),
            (key, Some(value)) => format!("{key} = {value}: {problem}; {remedy}"),
            (key, None) => format!("{key}: {problem}; {remedy}"),
        }
    }

    /// Draws the line of the text, with what is wrong in it underlined.
    fn snippet(&self, paint: Paint) -> String {
        let renderer = match paint {
            Paint::Colours => Renderer::styled(),
            Paint::Plain => Renderer::plain(),
        };
        let offset = |characters: usize| {
            let mut indices = self.text.char_indices().map(|(index, _)| index);
            indices.nth(characters).unwrap_or(self.text.len())
        };
        let start = offset(self.column - 1);
        let end = offset(self.column - 1 + self.width).max(start);
        let marked = AnnotationKind::Primary.span(start..end);
        let snippet = Snippet::source(&self.text)
            .line_start(self.line)
            .annotation(marked);
        renderer.render(&[Group::with_level(Level::ERROR).element(snippet)])
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.without_place())
    }
}

fn lines(diagnostics: &[Diagnostic]) -> String {
    let lines = diagnostics.iter().map(Diagnostic::to_string);
    lines.collect::<Vec<_>>().join("\n")
}

/// Writes each diagnostic with its line of the text drawn below.
#[must_use]
pub fn drawn(diagnostics: &[Diagnostic], paint: Paint) -> String {
    let drawn = diagnostics.iter().map(|it| match it.text.trim() {
        "" => it.to_string(),
        _ => format!("{it}\n{}", it.snippet(paint)),
    });
    drawn.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_that_may_not_be_read_needs_another_user_and_no_example() {
        let refused = |kind: std::io::ErrorKind| {
            let error = ConfigError::Unreadable {
                path: "/etc/splitter/splitter.toml".into(),
                source: kind.into(),
            };
            error.to_string()
        };
        let denied = refused(std::io::ErrorKind::PermissionDenied);
        assert!(denied.contains("/etc/splitter/splitter.toml"), "{denied}");
        assert!(!denied.contains("example"), "{denied}");
        assert!(refused(std::io::ErrorKind::NotFound).contains("splitter.example.toml"));
    }

    /// Draws what is wrong in a text; the lines are those of a terminal.
    fn drawn_of(text: &str) -> Vec<String> {
        let error = crate::Config::parse(text, "f").unwrap_err();
        let drawn = error.drawn(Paint::Plain);
        drawn
            .lines()
            .map(|line| line.trim_end().to_owned())
            .collect()
    }

    #[test]
    fn drawing_underlines_what_is_wrong_in_its_line() {
        let right = "lan = 'eth0'\n[short]\ndevice = 'a'\n[long]\ndevice = 'b'\n";
        let drawn = drawn_of(&format!(
            "{right}[flows]\nsweep_s = 3\nunit = 'Gbïte' # no\n"
        ));
        let expected = [
            "f:7: flows.sweep_s = 3: unknown key; did you mean flows.sweep_interval_s?",
            "  |",
            "7 | sweep_s = 3",
            "  | ^^^^^^^",
            "f:8: flows.unit = 'Gbïte': this word is not known here; give one of \"packets\", \"bytes\"",
            "  |",
            "8 | unit = 'Gbïte' # no",
            "  |        ^^^^^^^",
        ];
        assert_eq!(drawn, expected);
    }

    #[test]
    fn drawing_underlines_the_section_that_lacks_a_key() {
        let drawn = drawn_of("lan = [\n 'a',\n 3]\n[short]\n[long]\ndevice = 'b'\n");
        let expected = [
            "f:3: lan = 3: this is an integer, not a string; write it in quotes",
            "  |",
            "3 |  3]",
            "  |  ^",
            "f:4: short.device: this key is required; name the tunnel's interface, such as device = \"wan0\"",
            "  |",
            "4 | [short]",
            "  | ^^^^^^^",
        ];
        assert_eq!(drawn, expected);
    }

    #[test]
    fn text_that_is_empty_is_not_drawn() {
        let drawn = drawn_of("");
        assert_eq!(drawn.len(), 3, "{drawn:?}");
        assert!(
            drawn.iter().all(|line| line.starts_with("f:1: ")),
            "{drawn:?}"
        );
    }

    #[test]
    fn colours_are_for_terminals_alone() {
        let error = crate::Config::parse("lan = 3", "f").unwrap_err();
        assert!(error.drawn(Paint::Colours).contains('\u{1b}'));
        assert!(!error.drawn(Paint::Plain).contains('\u{1b}'));
    }
}
