//! Errors of topologies: unreadable, misshapen, too large, or not connected.

use thiserror::Error;

/// Why a topology cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TopologyError {
    /// The file cannot be read.
    #[error("cannot read the topology: {0}")]
    Unreadable(String),
    /// The file is longer than any topology that fits.
    #[error("the topology has more than {most} bytes; leave comments out or take fewer links")]
    TooLong {
        /// Bytes that it may have.
        most: u64,
    },
    /// It is not TOML, a key is unknown or missing, or a value has another type.
    #[error("{0}")]
    Shape(String),
    /// An entry that cannot be.
    #[error("line {line}: {entry}: {problem}")]
    Entry {
        /// Line on which the entry begins, from 1.
        line: usize,
        /// The entry, named by its node or its ends.
        entry: String,
        /// Fault of the entry, and its remedy.
        problem: String,
    },
    /// A number that lies out of its range.
    #[error("{key} = {value}: it must lie between {least} and {most}")]
    Range {
        /// Name of the key.
        key: &'static str,
        /// Value that is there.
        value: String,
        /// The least value allowed.
        least: String,
        /// The greatest value allowed.
        most: String,
    },
    /// There is more of something than the simulator has numbers for.
    #[error("{count} {what} are more than {most}; take fewer")]
    TooMany {
        /// Name of what there is too much of.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        most: usize,
    },
    /// There is nobody to send to.
    #[error("there are {0} hosts, and a network needs at least two")]
    TooFewHosts(usize),
    /// Hosts of two switches cannot reach each other.
    #[error("hosts at {to} cannot be reached from {from}: no links lead there")]
    Unreachable {
        /// Name of the switch from which no path leads.
        from: String,
        /// Name of the switch with the hosts.
        to: String,
    },
    /// More equal-cost next hops than a policy can choose among.
    #[error(
        "{at} has {count} equal-cost next hops towards {to}, and policies choose among at most {most}; give some \
         links another cost"
    )]
    TooManyNextHops {
        /// Name of the switch.
        at: String,
        /// Name of the switch with the hosts.
        to: String,
        /// How many there are.
        count: usize,
        /// How many there may be.
        most: usize,
    },
}
