//! What the flow tables hold and take, as `splitter status` tells it.

use std::fmt;

use anyhow::Result;
use flow_cli::group_thousands;
use serde::Serialize;
use splitter_config::Config;
use splitter_datapath::{Dataplane, TableSizes};
use splitter_instance::sizing;

/// The flow tables that are loaded.
#[derive(Serialize)]
pub(super) struct Sizes {
    /// Flows that each is made for.
    flows: TableSizes,
    /// What is in each, whatever its state.
    entries: Entries,
    /// What both take of the kernel's memory.
    bytes: u64,
    /// What they may grow to, if they are left to.
    most_bytes: u64,
    /// The node that was asked for.
    numa_node: Option<u32>,
}

#[derive(Serialize)]
struct Entries {
    ipv4: u64,
    ipv6: u64,
}

impl Sizes {
    /// Looks at the tables of an instance that is up.
    pub(super) fn of(config: &Config, dataplane: &Dataplane) -> Result<Self> {
        let flows = dataplane.table_sizes()?;
        let entries = splitter_datapath::flows::each(dataplane, |_| ())?;
        Ok(Self {
            flows,
            entries: Entries {
                ipv4: entries.entries_v4,
                ipv6: entries.entries_v6,
            },
            bytes: flows.bytes(),
            most_bytes: sizing(config).most_bytes().max(flows.bytes()),
            numa_node: dataplane.table_numa_node(),
        })
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mebibytes = self.bytes as f64 / f64::from(1 << 20);
        let of = |entries, flows: u32| {
            let (entries, flows) = (group_thousands(entries), group_thousands(flows.into()));
            format!("{entries} of {flows}")
        };
        write!(
            f,
            "flow tables of {mebibytes:.1} MiB: {} flows of IPv4, {} of IPv6",
            of(self.entries.ipv4, self.flows.ipv4),
            of(self.entries.ipv6, self.flows.ipv6)
        )?;
        match self.numa_node {
            Some(node) => write!(f, ", on NUMA node {node}"),
            None => Ok(()),
        }
    }
}
