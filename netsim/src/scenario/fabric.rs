//! Keys of `[fabric]`: leaf and spine switches, hosts and links.

use serde::{Deserialize, Serialize};

use super::Outage;

/// A leaf-spine fabric: each leaf has a link to each spine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FabricSettings {
    /// Number of leaf switches.
    pub leaves: u16,
    /// Number of spine switches: as many paths between two leaves.
    pub spines: u16,
    /// Number of hosts at each leaf.
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

/// Paths that are slower than others.
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
