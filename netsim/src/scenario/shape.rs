//! What a scenario file says, key by key.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Balance, Cloudburst, Outage};

/// A scenario: fabric, queues, balancing, transport and traffic.
///
/// Every field is a key of the file, under the same name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What it is for, in a sentence.
    pub about: String,
    /// What random numbers are drawn with; `--seed` goes before it.
    #[serde(default = "one")]
    pub seed: u64,
    /// When to stop, in simulated milliseconds, whatever is still under way. Without it the run
    /// ends when all messages have arrived.
    #[serde(default)]
    pub until_ms: Option<f64>,
    /// Completion times are told by classes of size: the largest of each but the last, in bytes.
    #[serde(default = "classes")]
    pub classes_bytes: Vec<u64>,
    /// Switches, hosts and links.
    pub fabric: Fabric,
    /// How leaves choose among paths.
    #[serde(default)]
    pub balance: Balance,
    /// Ports of switches.
    #[serde(default)]
    pub port: Port,
    /// Ports of hosts; without it as those of switches.
    #[serde(default)]
    pub host_port: Option<Port>,
    /// Senders and receivers.
    #[serde(default)]
    pub transport: Transport,
    /// Senders and receivers of background traffic; without it as those of the rest.
    #[serde(default)]
    pub background_transport: Option<Transport>,
    /// What is sent.
    pub traffic: Vec<Traffic>,
    /// Named changes to the keys above, to be compared: `--scheme NAME` lays one over the rest of
    /// the file.
    #[serde(default, skip_serializing)]
    pub schemes: BTreeMap<String, toml::Table>,
}

/// A leaf-spine fabric: each leaf has a link to each spine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fabric {
    /// Leaf switches.
    pub leaves: u16,
    /// Spine switches: as many paths between two leaves.
    pub spines: u16,
    /// Hosts at each leaf.
    pub hosts_per_leaf: u16,
    /// Rate of links between hosts and leaves, in Gbit/s.
    pub host_gbps: f64,
    /// Rate of links between leaves and spines, in Gbit/s.
    pub uplink_gbps: f64,
    /// Propagation delay of every link, in microseconds.
    pub link_delay_us: f64,
    /// Paths made slow, drawn at random.
    #[serde(default)]
    pub slow: Option<Slow>,
    /// How many paths, drawn at random, do not work at all. Policies know.
    #[serde(default)]
    pub failed: u16,
    /// Changes to named paths.
    #[serde(default)]
    pub path: Vec<PathChange>,
    /// Links that fail during the run.
    #[serde(default)]
    pub outage: Vec<Outage>,
}

/// Slow paths.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slow {
    /// How many of the spines.
    pub paths: u16,
    /// Their round-trip propagation time between hosts, as a multiple of that of others. What is
    /// added lies on the links of the spine.
    pub rtt_ratio: f64,
}

/// A change to the links of one spine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathChange {
    /// Which spine, from 0.
    pub spine: u16,
    /// Only its link to this leaf, from 0; without it those to all.
    #[serde(default)]
    pub leaf: Option<u16>,
    /// Added to the propagation delay of each of the links, in microseconds.
    #[serde(default)]
    pub extra_delay_us: f64,
    /// Another rate, in Gbit/s.
    #[serde(default)]
    pub gbps: Option<f64>,
    /// The links do not work. Policies know.
    #[serde(default)]
    pub failed: bool,
}

/// A port: its buffer, and the order in which packets leave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Port {
    /// Bytes that the port holds; what comes on top is dropped.
    pub buffer_bytes: u32,
    /// Packets that find more bytes than this waiting are marked (ECN); without it none are.
    pub ecn_bytes: Option<u32>,
    /// The order in which packets leave.
    pub discipline: Discipline,
    /// Queues of the disciplines `priority` and `wrr`, the most urgent first.
    pub queue: Vec<Queue>,
    /// A buffer that all ports of a switch share.
    pub shared: Option<Shared>,
}

impl Default for Port {
    /// 250 packets of 1,500 bytes, marked above 65, first come first served.
    fn default() -> Self {
        Self {
            buffer_bytes: 375_000,
            ecn_bytes: Some(97_500),
            discipline: Discipline::Fifo,
            queue: Vec::new(),
            shared: None,
        }
    }
}

/// The order in which packets leave a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Discipline {
    /// First come, first served.
    #[default]
    Fifo,
    /// Strict priority among queues.
    Priority,
    /// Queues take turns, by weight (deficit round robin).
    Wrr,
    /// What is nearest to its flow's end goes first, what is farthest is dropped first (pFabric).
    Pfabric,
}

/// One queue of a port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Queue {
    /// Share of the port under `wrr`.
    pub weight: u32,
    /// Bytes that the queue holds; without it as many as the port.
    pub buffer_bytes: Option<u32>,
    /// Marks above this; without it the queue does not mark.
    pub ecn_bytes: Option<u32>,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            weight: 1,
            buffer_bytes: None,
            ecn_bytes: None,
        }
    }
}

/// A buffer shared by the ports of a switch: a port may hold `alpha` times what is free (Choudhury
/// and Hahne 1998).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shared {
    /// Bytes that the switch holds.
    pub buffer_bytes: u64,
    /// Share of what is free that a port may take.
    #[serde(default = "one_f64")]
    pub alpha: f64,
}

/// Senders and receivers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Transport {
    /// What decides the size of the window.
    pub control: Control,
    /// What decides which segments to send again.
    pub recovery: Recovery,
    /// Segments sent at once at the start.
    pub initial_window: u32,
    /// No window grows beyond this, in segments.
    pub max_window: u32,
    /// Duplicate ACKs that are taken for a loss.
    pub dupack_threshold: u32,
    /// The least retransmission timeout, in microseconds.
    pub rto_min_us: u64,
    /// Bytes of data in a full segment.
    pub mss_bytes: u16,
    /// Bytes of headers on each packet; an ACK has nothing else.
    pub header_bytes: u16,
    /// DCTCP's estimation gain is 2 to the minus this.
    pub dctcp_gain_shift: u32,
    /// DCTCP's first estimate of the share of packets that are marked: with 1 a flow's first mark
    /// halves its window (RFC 8257 §3.3), with 0 it only ends slow start (ns-2).
    pub dctcp_initial_alpha: f64,
    /// Priorities by what a flow has sent so far: bytes at which it falls to the next (PIAS).
    pub pias_bytes: Vec<u64>,
    /// Copies of each message that is sent over different paths (RepFlow); 1 is none.
    pub replicas: u8,
    /// Only messages of at most so many bytes are replicated.
    pub replicate_bytes: u64,
    /// Subflows with coupled windows (MPTCP); 1 is plain TCP.
    pub subflows: u8,
    /// Added to the priority of the traffic.
    pub priority: u8,
    /// A bound on what a host sends by this transport (QJump).
    pub pace: Option<Pace>,
    /// Settings of the control `cloudburst`, which takes nothing else here but `priority`.
    pub cloudburst: Cloudburst,
}

impl Default for Transport {
    /// DCTCP in the papers' ns-2 mode.
    fn default() -> Self {
        Self {
            control: Control::Dctcp,
            recovery: Recovery::NewReno,
            initial_window: 10,
            max_window: 4096,
            dupack_threshold: 3,
            rto_min_us: 10_000,
            mss_bytes: 1460,
            header_bytes: 40,
            dctcp_gain_shift: 4,
            dctcp_initial_alpha: 1.0,
            pias_bytes: Vec::new(),
            replicas: 1,
            replicate_bytes: 100_000,
            subflows: 1,
            priority: 0,
            pace: None,
            cloudburst: Cloudburst::default(),
        }
    }
}

/// A bound on what a host sends, all its flows together, ACKs not counted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pace {
    /// So many bytes, headers included,
    pub bytes: u64,
    /// in each stretch of so many microseconds.
    pub every_us: f64,
}

/// Congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Control {
    /// Slow start and congestion avoidance (RFC 5681); half the window at a loss.
    Reno,
    /// Reno that follows the share of marked packets (RFC 8257).
    Dctcp,
    /// No control: a window that stays as it is (pFabric's at line rate).
    Fixed,
    /// No flows at all: Cloudburst's state machine, which sends coded datagrams over several ways.
    Cloudburst,
}

/// Loss recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Recovery {
    /// By duplicate and partial ACKs alone (RFC 6582): the papers' ns-2 mode.
    #[serde(rename = "newreno")]
    NewReno,
    /// With selective acknowledgements (RFC 6675).
    Sack,
}

/// Something that sends.
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
        hosts: Hosts,
        /// The receiver sends this first, and the message is the answer to it.
        #[serde(default)]
        request_bytes: Option<u64>,
        /// Priority of the packets, 0 the most urgent.
        #[serde(default)]
        priority: u8,
    },
    /// Each sender keeps one message under way, to a receiver drawn anew each time. Runs as long
    /// as something else does, and is left out of completion times.
    Background {
        /// How large each is.
        bytes: u64,
        /// Who sends to whom.
        hosts: Hosts,
        /// Priority of the packets.
        #[serde(default)]
        priority: u8,
    },
    /// Many to one, all at once.
    Incast {
        /// How many send; the first hosts of the leaves other than the receiver's, in turn.
        senders: u16,
        /// Which host receives.
        to: u16,
        /// What each sends.
        bytes: u64,
        /// When, in microseconds.
        #[serde(default)]
        at_us: f64,
        /// How often.
        #[serde(default = "one_u32")]
        rounds: u32,
        /// How far apart, in microseconds.
        #[serde(default)]
        every_us: f64,
        /// Priority of the packets.
        #[serde(default)]
        priority: u8,
    },
    /// One message.
    Message {
        /// Which host sends.
        from: u16,
        /// Which host receives.
        to: u16,
        /// How large it is.
        bytes: u64,
        /// When, in microseconds.
        #[serde(default)]
        at_us: f64,
        /// Priority of the packets.
        #[serde(default)]
        priority: u8,
    },
}

/// Sizes of messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Sizes {
    /// All the same.
    Fixed(u64),
    /// One of these, each as likely.
    OneOf(Vec<u64>),
    /// A distribution: the name of one that is built in, or a CSV file beside the scenario.
    Distribution(String),
}

/// Who sends to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "pattern", rename_all = "snake_case", deny_unknown_fields)]
pub enum Hosts {
    /// So many hosts, drawn at random, send to the others.
    Split {
        /// How many send.
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

/// TR's, section Large-scale evaluation.
fn classes() -> Vec<u64> {
    vec![100_000, 1_000_000]
}

fn one() -> u64 {
    1
}

fn one_u32() -> u32 {
    1
}

fn one_f64() -> f64 {
    1.0
}
