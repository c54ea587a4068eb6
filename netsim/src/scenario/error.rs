//! Errors of scenarios: unreadable, misshapen, or out of range.

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
        /// Name or path that was given.
        file: String,
        /// Message of the operating system.
        reason: String,
    },
    /// It is not TOML, a key is unknown or missing, or a value has another type.
    #[error("{file}: {reason}")]
    Shape {
        /// Name of the file.
        file: String,
        /// Message of the parser, with line and key.
        reason: String,
    },
    /// A value that cannot be.
    #[error("{file}: {key}: {problem}")]
    Value {
        /// Name of the file.
        file: String,
        /// The key and its value.
        key: String,
        /// Problem of the value, and its remedy.
        problem: String,
    },
    /// There is no such scheme.
    #[error(
        "{file}: there is no scheme {scheme:?}; the file has [{known}], and balancing policies are schemes too"
    )]
    UnknownScheme {
        /// Name of the file.
        file: String,
        /// Name or path that was given.
        scheme: String,
        /// Schemes of the file.
        known: String,
    },
}
