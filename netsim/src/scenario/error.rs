//! What may be wrong with a scenario.

use thiserror::Error;

/// Why a scenario cannot run.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ScenarioError {
    /// The file cannot be read, and no scenario of that name is built in.
    #[error(
        "cannot read the scenario {file}: {reason}, and none of that name is built in; \
         `netsim list` shows those that are"
    )]
    Unreadable {
        /// What was asked for.
        file: String,
        /// What the system said.
        reason: String,
    },
    /// It is not TOML, a key is unknown or missing, or a value has another type.
    #[error("{file}: {reason}")]
    Shape {
        /// The file.
        file: String,
        /// What the parser said, with line and key.
        reason: String,
    },
    /// A value that cannot be.
    #[error("{file}: {key}: {problem}")]
    Value {
        /// The file.
        file: String,
        /// The key and its value.
        key: String,
        /// What is wrong with it, and what to do.
        problem: String,
    },
    /// There is no such scheme.
    #[error(
        "{file}: there is no scheme {scheme:?}; the file has [{known}], and balancing policies are schemes too"
    )]
    UnknownScheme {
        /// The file.
        file: String,
        /// What was asked for.
        scheme: String,
        /// Those of the file.
        known: String,
    },
}
