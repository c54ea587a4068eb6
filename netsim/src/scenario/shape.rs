//! What a scenario file says, key by key.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{BalanceSettings, Outage, Traffic, TransportSettings};

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
    pub fabric: FabricSettings,
    /// How leaves choose among paths.
    #[serde(default)]
    pub balance: BalanceSettings,
    /// Ports of switches.
    #[serde(default)]
    pub port: PortSettings,
    /// Ports of hosts; without it as those of switches.
    #[serde(default)]
    pub host_port: Option<PortSettings>,
    /// Senders and receivers.
    #[serde(default)]
    pub transport: TransportSettings,
    /// Senders and receivers of background traffic; without it as those of the rest.
    #[serde(default)]
    pub background_transport: Option<TransportSettings>,
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
pub struct FabricSettings {
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
    pub slow: Option<SlowPaths>,
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
pub struct SlowPaths {
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
pub struct PortSettings {
    /// Bytes that the port holds; what comes on top is dropped.
    pub buffer_bytes: u32,
    /// Packets that find more bytes than this waiting are marked (ECN); without it none are.
    pub ecn_bytes: Option<u32>,
    /// The order in which packets leave.
    pub discipline: Discipline,
    /// Queues of the disciplines `priority` and `wrr`, the most urgent first.
    pub queue: Vec<QueueSettings>,
    /// A buffer that all ports of a switch share.
    pub shared: Option<SharedBufferSettings>,
}

impl Default for PortSettings {
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
pub struct QueueSettings {
    /// Share of the port under `wrr`.
    pub weight: u32,
    /// Bytes that the queue holds; without it as many as the port.
    pub buffer_bytes: Option<u32>,
    /// Marks above this; without it the queue does not mark.
    pub ecn_bytes: Option<u32>,
}

impl Default for QueueSettings {
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
pub struct SharedBufferSettings {
    /// Bytes that the switch holds.
    pub buffer_bytes: u64,
    /// Share of what is free that a port may take.
    #[serde(default = "one_f64")]
    pub alpha: f64,
}

/// TR's, section Large-scale evaluation.
fn classes() -> Vec<u64> {
    vec![100_000, 1_000_000]
}

fn one() -> u64 {
    1
}

fn one_f64() -> f64 {
    1.0
}
