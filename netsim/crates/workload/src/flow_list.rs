//! Lists of flows out of files: what is read, and what is refused.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read as _},
    path::Path,
};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::formats::Parser;

/// A flow as a list has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedFlow {
    /// Number of the host that sends, from 0.
    pub from: u32,
    /// Number of the host that receives, from 0.
    pub to: u32,
    /// Size in bytes, without headers.
    pub bytes: u64,
    /// Start time in ns.
    pub start_ns: u64,
    /// Priority of its packets, 0 the most urgent; only CSV has one.
    pub priority: u8,
}

/// The formats of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowListFormat {
    /// CSV with a heading: `from`, `to`, `bytes`, and `start_ns` or `start_us`; `priority` may be there, and other
    /// columns are passed over. So the simulator's own `flows.csv` is one.
    Csv,
    /// The flow file of ns-3's RDMA simulations (HPCC and what followed it): the number of flows, then a line each of
    /// source, destination, priority group, port, bytes and start in seconds; some variants have no port.
    Ns3,
    /// A connection matrix of htsim: `Nodes N`, `Connections M`, then lines of `src->dst start T size S`.
    Htsim,
}

/// The unit of `start` in a connection matrix, which not all programs of htsim take for the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartUnit {
    /// Picoseconds, as its loader keeps them.
    #[default]
    Ps,
    /// Microseconds, as those programs have it that convert what the loader gives them.
    Us,
}

/// A list of flows in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowList {
    /// The flows, in that order.
    pub flows: Vec<ListedFlow>,
}

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
}

/// Most flows that a list may have.
pub const MAX_FLOWS: usize = 10_000_000;
/// Longest line in bytes: what is read at a time is bounded.
pub(crate) const MAX_LINE: u64 = 4_096;

impl FlowList {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, or a line of it is wrong.
    pub fn read(
        path: &Path,
        format: FlowListFormat,
        unit: StartUnit,
    ) -> Result<Self, FlowListError> {
        let file = File::open(path).map_err(|it| FlowListError::Unreadable(it.to_string()))?;
        Self::parse(BufReader::new(file), format, unit)
    }

    /// Reads a list line by line; `unit` is that of htsim's start times.
    ///
    /// # Errors
    /// When it cannot be read, or a line of it is wrong.
    pub fn parse(
        mut input: impl BufRead,
        format: FlowListFormat,
        unit: StartUnit,
    ) -> Result<Self, FlowListError> {
        let mut parser = Parser::new(format, unit);
        let (mut flows, mut bytes, mut line) = (Vec::new(), Vec::new(), 0);
        loop {
            line += 1;
            let wrong = |problem| FlowListError::Line { line, problem };
            if read_line(&mut input, &mut bytes)
                .map_err(|it| FlowListError::Unreadable(it.to_string()))?
            {
                break;
            }
            if bytes.len() as u64 > MAX_LINE {
                return Err(wrong(Problem::TooLong));
            }
            let text = str::from_utf8(&bytes).map_err(|_| wrong(Problem::NotText))?;
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let Some(flow) = parser.line(text).map_err(wrong)? else {
                continue;
            };
            if flow.from == flow.to {
                return Err(wrong(Problem::ToItself(flow.from)));
            }
            if flows.len() == MAX_FLOWS {
                return Err(wrong(Problem::TooMany));
            }
            if parser.said().is_some_and(|it| flows.len() as u64 >= it) {
                return Err(wrong(Problem::MoreThanSaid(parser.said().unwrap_or(0))));
            }
            flows.push(flow);
        }
        let found = flows.len() as u64;
        match parser.said() {
            Some(said) if found < said => Err(FlowListError::Short { found, said }),
            _ if flows.is_empty() => Err(FlowListError::Empty),
            _ => Ok(Self { flows }),
        }
    }
}

/// Reads at most one byte more than a line may have. Returns whether there was none left.
fn read_line(input: &mut impl BufRead, bytes: &mut Vec<u8>) -> io::Result<bool> {
    bytes.clear();
    Ok(input.take(MAX_LINE + 1).read_until(b'\n', bytes)? == 0)
}
