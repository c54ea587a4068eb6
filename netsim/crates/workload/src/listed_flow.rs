//! Flows as lists have them, and the formats of lists.

use serde::{Deserialize, Serialize};

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

impl StartUnit {
    /// Its length in ns.
    pub(crate) fn ns(self) -> f64 {
        match self {
            Self::Ps => 1e-3,
            Self::Us => 1e3,
        }
    }
}
