//! What is wrong with a configuration, told so that it can be put right at once.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error(
        "cannot read the configuration {}: {source}; name another file with --config, or start \
         from the documented example (splitter.example.toml)",
        path.display()
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The text is wrong in at least one place.
    #[error("{}", lines(.0))]
    Wrong(Vec<Mistake>),
}

impl ConfigError {
    /// The mistakes in the text; none if it could not be read.
    #[must_use]
    pub fn mistakes(&self) -> &[Mistake] {
        match self {
            Self::Unreadable { .. } => &[],
            Self::Wrong(mistakes) => mistakes,
        }
    }
}

/// One mistake, shown as `file:line: key = value: problem; remedy`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mistake {
    /// The file as the user named it.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The key with its section, such as `flows.threshold`; empty where the text is not TOML.
    pub key: String,
    /// The value as written, if there is one.
    pub value: Option<String>,
    /// What is wrong.
    pub problem: String,
    /// What to do.
    pub remedy: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.file, self.line)?;
        match (&self.key, &self.value) {
            (key, Some(value)) if !key.is_empty() => write!(f, "{key} = {value}: ")?,
            (key, None) if !key.is_empty() => write!(f, "{key}: ")?,
            _ => {}
        }
        write!(f, "{}; {}", self.problem, self.remedy)
    }
}

fn lines(mistakes: &[Mistake]) -> String {
    mistakes
        .iter()
        .map(Mistake::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}
