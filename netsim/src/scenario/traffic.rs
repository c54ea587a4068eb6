//! Keys of `[[traffic]]`: Poisson arrivals, background flows, incast, single messages, collective
//! operations and lists of flows.

use flow_workload::{CollectiveSettings, FlowListFormat, Operation, SizeFormat, StartUnit};
use serde::{Deserialize, Serialize};

/// A source of traffic: Poisson arrivals, background flows, incast, one message, a collective operation,
/// or a list of flows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Traffic {
    /// Messages that start independently of each other.
    Poisson {
        /// How large they are.
        sizes: Sizes,
        /// Share of the senders' links that is offered, headers included. This or `per_second`.
        #[serde(default)]
        load: Option<f64>,
        /// Messages a second, over all senders.
        #[serde(default)]
        per_second: Option<f64>,
        /// How many there are.
        messages: u32,
        /// Who sends to whom.
        hosts: TrafficPattern,
        /// The receiver sends this first, and the message is the answer to it.
        #[serde(default)]
        request_bytes: Option<u64>,
        /// Priority of the packets, 0 the most urgent.
        #[serde(default)]
        priority: u8,
    },
    /// Each sender keeps one message in flight, to a receiver drawn again each time. Runs as long
    /// as something else does, and is left out of completion times.
    Background {
        /// How large each is.
        bytes: u64,
        /// Who sends to whom.
        hosts: TrafficPattern,
        /// Priority of the packets.
        #[serde(default)]
        priority: u8,
    },
    /// Incast: many senders to one receiver, all at once.
    Incast {
        /// How many send; the first hosts of the leaves other than the receiver's, in turn.
        senders: u16,
        /// Number of the host that receives.
        to: u16,
        /// Bytes that each sends.
        bytes: u64,
        /// Start time in microseconds.
        #[serde(default)]
        at_us: f64,
        /// Number of times that it happens.
        #[serde(default = "one_u32")]
        rounds: u32,
        /// How far apart, in microseconds.
        #[serde(default)]
        every_us: f64,
        /// Priority of the packets.
        #[serde(default)]
        priority: u8,
    },
    /// One message between two hosts.
    Message {
        /// Number of the host that sends.
        from: u16,
        /// Number of the host that receives.
        to: u16,
        /// How large it is.
        bytes: u64,
        /// Start time in microseconds.
        #[serde(default)]
        at_us: f64,
        /// Priority of the packets.
        #[serde(default)]
        priority: u8,
    },
    /// All-reduce in a ring of hosts, again and again.
    RingAllReduce(CollectiveTraffic),
    /// All-reduce in a binary tree of hosts, again and again.
    TreeAllReduce(CollectiveTraffic),
    /// All-to-all among hosts, again and again.
    AllToAll(CollectiveTraffic),
    /// The flows of a file.
    List {
        /// Name of the file, in the scenario's directory.
        file: String,
        /// Format of the file.
        format: FlowListFormat,
        /// Unit of the start times of `htsim`.
        #[serde(default)]
        start_unit: StartUnit,
        /// Flows that start earlier are left out, and times count from here: in microseconds.
        #[serde(default)]
        from_us: f64,
        /// Added to the priorities of the file.
        #[serde(default)]
        priority: u8,
    },
}

/// A collective operation: its extent, and how often it is repeated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CollectiveTraffic {
    /// Bytes of each rank's buffer.
    pub bytes: u64,
    /// How many hosts take part: the first ones, or so many drawn at random; without it all.
    #[serde(default)]
    pub ranks: Option<u16>,
    /// Which host is which rank.
    #[serde(default)]
    pub placement: Placement,
    /// Number of iterations; each begins when the one before is complete.
    #[serde(default = "one_u32")]
    pub iterations: u32,
    /// Pause between iterations, in which hosts compute: in microseconds.
    #[serde(default)]
    pub compute_us: f64,
    /// Start time of the first one in microseconds.
    #[serde(default)]
    pub at_us: f64,
    /// Chunks that a tree divides the buffer into; rings and all-to-all do not look at it.
    #[serde(default = "chunks")]
    pub chunks: u32,
    /// Transfers that each host has under way at most in an all-to-all; without it all. Others do not look
    /// at it.
    #[serde(default)]
    pub at_once: Option<u32>,
    /// Priority of the packets.
    #[serde(default)]
    pub priority: u8,
}

/// The placement of ranks on hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// Ranks are numbered as hosts, so that neighbours are in one rack as far as they can be.
    #[default]
    InOrder,
    /// Ranks are hosts drawn at random, from the seed.
    Shuffled,
}

impl Traffic {
    /// Returns the operation and its keys, if it is a collective one.
    pub(crate) fn collective(&self) -> Option<(Operation, &CollectiveTraffic)> {
        match self {
            Self::RingAllReduce(it) => Some((Operation::RingAllReduce, it)),
            Self::TreeAllReduce(it) => Some((Operation::TreeAllReduce, it)),
            Self::AllToAll(it) => Some((Operation::AllToAll, it)),
            _ => None,
        }
    }
}

impl CollectiveTraffic {
    /// The extent of the operation among so many hosts.
    pub(crate) fn settings(&self, hosts: usize) -> CollectiveSettings {
        let ranks = self.ranks.map_or(hosts as u32, u32::from);
        CollectiveSettings {
            ranks,
            bytes: self.bytes,
            chunks: self.chunks,
            at_once: self.at_once.unwrap_or(ranks),
        }
    }
}

/// The sizes of messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Sizes {
    /// One size for all.
    Fixed(u64),
    /// One of these, each as likely.
    OneOf(Vec<u64>),
    /// An empirical distribution: the name of one that is built in, or a CSV file in the scenario's
    /// directory.
    Distribution(String),
    /// An empirical distribution of a file in the format of another simulator.
    File(SizeFile),
}

/// A file of sizes in the format of another simulator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizeFile {
    /// Name of the file, in the scenario's directory.
    pub file: String,
    /// Format of the file.
    pub format: SizeFormat,
    /// Bytes of one unit of its sizes: where they are packets, of a packet.
    #[serde(default = "one_u32")]
    pub unit_bytes: u32,
}

/// Who sends to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "pattern", rename_all = "snake_case", deny_unknown_fields)]
pub enum TrafficPattern {
    /// So many hosts, drawn at random, send to the others.
    Split {
        /// Number of hosts that send.
        senders: u16,
    },
    /// All hosts of one leaf send to those of another.
    Leaves {
        /// The leaf that sends.
        from: u16,
        /// The leaf that receives.
        to: u16,
    },
    /// Every host sends to every other one.
    All,
    /// Every host sends to those of other leaves.
    OtherLeaves,
}

fn one_u32() -> u32 {
    1
}

fn chunks() -> u32 {
    16
}
