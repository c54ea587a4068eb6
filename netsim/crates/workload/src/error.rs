//! Faults of lists of flows.

use thiserror::Error;

/// Most flows that a list may have.
pub const MAX_FLOWS: usize = 10_000_000;
/// Longest line in bytes: what is read at a time is bounded.
pub(crate) const MAX_LINE: u64 = 4_096;

/// Why a list of flows cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum FlowListError {
    /// The file cannot be read.
    #[error("cannot read the list of flows: {0}")]
    Unreadable(String),
    /// A line that cannot be.
    #[error("line {line}: {problem}")]
    Line {
        /// Which one, from 1.
        line: u64,
        /// The fault of the line.
        problem: Problem,
    },
    /// The file ends too early.
    #[error("the list has {found} flows, and its head says {said}")]
    Short {
        /// Flows that are there.
        found: u64,
        /// Flows that should be.
        said: u64,
    },
    /// There is nothing in it.
    #[error("there is no flow in the list")]
    Empty,
}

/// A fault of a line.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Problem {
    /// No line of these formats is so long.
    #[error("it has more than {MAX_LINE} bytes")]
    TooLong,
    /// It is no text.
    #[error("it is not UTF-8")]
    NotText,
    /// Another number of columns than there should be.
    #[error("it has {found} columns instead of {expected}")]
    Columns {
        /// How many there are.
        found: usize,
        /// The columns that there should be.
        expected: &'static str,
    },
    /// The heading has no such column.
    #[error("the heading has no column {0}")]
    NoColumn(&'static str),
    /// A number that is none, or is out of range.
    #[error("{what} is {value:?}, which is not {must}")]
    Number {
        /// Name of the column or token.
        what: &'static str,
        /// Text that is there.
        value: String,
        /// The value that it must be.
        must: &'static str,
    },
    /// A host sends to itself.
    #[error("host {0} sends to itself")]
    ToItself(u32),
    /// A host that the head of the list rules out.
    #[error("host {host} is not among the {nodes} that the head says")]
    NoSuchNode {
        /// Number of the host.
        host: u32,
        /// How many there are.
        nodes: u64,
    },
    /// More flows than the head says.
    #[error("there are more flows than the {0} that the head says")]
    MoreThanSaid(u64),
    /// More flows than can be held.
    #[error("there are more than {MAX_FLOWS} flows")]
    TooMany,
    /// A head is missing.
    #[error("{0} is missing before the first flow")]
    NoHead(&'static str),
    /// A token that has no meaning.
    #[error("unknown token {0:?}")]
    UnknownToken(String),
    /// A token without what must follow it.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A flow that starts at the end of another one.
    #[error(
        "{0:?}: flows that wait for others are not supported; take the kinds of collective operations"
    )]
    Dependent(String),
    /// A link that fails during the run.
    #[error("{0:?}: failures are not taken from a list; state them as outages")]
    Failure(String),
}
