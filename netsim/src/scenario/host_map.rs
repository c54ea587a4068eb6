//! Hosts of a network by rack: what workloads need to know of any topology.

use super::{FabricSettings, topology::Graph};

/// Hosts of all racks: those of a leaf, or of a switch of another topology.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostMap {
    rack_of: Vec<u16>,
    racks: Vec<Vec<u16>>,
    /// Mean rate of hosts' links.
    gbps: f64,
}

impl HostMap {
    /// Hosts of a leaf-spine fabric, which are numbered leaf by leaf.
    pub(crate) fn of_fabric(fabric: &FabricSettings) -> Self {
        let leaves = 0..fabric.leaves;
        let rack_of = leaves.flat_map(|it| std::iter::repeat_n(it, fabric.hosts_per_leaf.into()));
        Self::new(rack_of.collect(), fabric.leaves.into(), fabric.host_gbps)
    }

    /// Hosts of another topology, in the order of its file.
    pub(crate) fn of_graph(graph: &Graph) -> Self {
        let topology = &graph.topology;
        let hosts = topology.hosts();
        let gbps = hosts.iter().map(|it| it.gbps).sum::<f64>() / hosts.len() as f64;
        let rack_of = (0..hosts.len()).map(|it| topology.rack_of(it) as u16);
        Self::new(rack_of.collect(), topology.racks().len(), gbps)
    }

    fn new(rack_of: Vec<u16>, count: usize, gbps: f64) -> Self {
        let mut racks = vec![Vec::new(); count];
        for (host, rack) in (0..).zip(&rack_of) {
            racks[usize::from(*rack)].push(host);
        }
        Self {
            rack_of,
            racks,
            gbps,
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.rack_of.len()
    }

    pub(crate) fn rack_count(&self) -> usize {
        self.racks.len()
    }

    pub(crate) fn rack_of(&self, host: u16) -> u16 {
        self.rack_of[usize::from(host)]
    }

    /// Hosts of a rack, in order.
    pub(crate) fn rack(&self, rack: u16) -> &[u16] {
        &self.racks[usize::from(rack)]
    }

    /// Mean rate of hosts' links in Gbit/s.
    pub(crate) fn gbps(&self) -> f64 {
        self.gbps
    }
}
