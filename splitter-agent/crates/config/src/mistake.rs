//! What is wrong with a configuration, told so that it can be put right at once.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

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
        /// What the system said.
        source: std::io::Error,
    },
    /// The text is wrong in at least one place.
    #[error("{}", lines(.0))]
    Wrong(Vec<Mistake>),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_that_may_not_be_read_needs_another_user_and_no_example() {
        let told = |kind: std::io::ErrorKind| {
            let error = ConfigError::Unreadable {
                path: "/etc/splitter/splitter.toml".into(),
                source: kind.into(),
            };
            error.to_string()
        };
        let denied = told(std::io::ErrorKind::PermissionDenied);
        assert!(denied.contains("as a user who may read it"), "{denied}");
        assert!(!denied.contains("example"), "{denied}");
        assert!(told(std::io::ErrorKind::NotFound).contains("splitter.example.toml"));
    }
}
