//! The layout of a leaf-spine fabric: numbers of ports, and the nodes that links lead to.

use crate::scenario::FabricSettings;

/// The node at the far end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// The port of the host itself, which has held the packet back.
    OwnPort,
    /// A host's end of its link.
    Host,
    /// A leaf, from one of its hosts.
    LeafFromHost(u16),
    /// A leaf, from a spine.
    LeafFromSpine {
        /// Number of the leaf.
        leaf: u16,
        /// Number of the spine.
        spine: u16,
    },
    /// A spine, from a leaf.
    Spine {
        /// Number of the spine.
        spine: u16,
        /// The leaf that sends.
        from: u16,
    },
    /// A switch of another topology, from wherever.
    Switch(u16),
}

/// Ports are numbered in four groups: hosts' own, leaves' to hosts, leaves' to spines, spines' to
/// leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) leaves: usize,
    pub(crate) spines: usize,
    pub(crate) hosts_per_leaf: usize,
    hosts: usize,
    ports: usize,
}

impl Layout {
    pub(crate) fn new(fabric: &FabricSettings) -> Self {
        let [leaves, spines, hosts_per_leaf] =
            [fabric.leaves, fabric.spines, fabric.hosts_per_leaf].map(usize::from);
        let hosts = leaves * hosts_per_leaf;
        Self {
            leaves,
            spines,
            hosts_per_leaf,
            hosts,
            ports: 2 * (hosts + leaves * spines),
        }
    }

    /// Another topology: after the first two groups come both directions of each link. It has neither
    /// leaves nor spines.
    pub(super) fn of_graph(hosts: usize, links: usize) -> Self {
        Self {
            leaves: 0,
            spines: 0,
            hosts_per_leaf: 0,
            hosts,
            ports: 2 * (hosts + links),
        }
    }

    pub(crate) fn hosts(&self) -> usize {
        self.hosts
    }

    pub(crate) fn ports(&self) -> usize {
        self.ports
    }

    pub(crate) fn leaf_of(&self, host: usize) -> usize {
        host / self.hosts_per_leaf
    }

    /// A host's own port.
    #[inline]
    pub(crate) fn host_port(&self, host: usize) -> usize {
        host
    }

    /// The port of a host's leaf towards it.
    #[inline]
    pub(crate) fn down_port(&self, host: usize) -> usize {
        self.hosts + host
    }

    /// A leaf's port towards a spine.
    #[inline]
    pub(crate) fn uplink(&self, leaf: usize, spine: usize) -> usize {
        2 * self.hosts() + leaf * self.spines + spine
    }

    /// A spine's port towards a leaf.
    #[inline]
    pub(crate) fn spine_port(&self, spine: usize, leaf: usize) -> usize {
        2 * self.hosts() + self.leaves * self.spines + spine * self.leaves + leaf
    }

    /// Whose port it is: leaves are numbered first, then spines; none for hosts' own.
    pub(super) fn switch_of(&self, port: usize) -> Option<usize> {
        match self.node_behind(port) {
            Node::LeafFromHost(_) | Node::OwnPort | Node::Switch(_) => None,
            Node::Host => Some(self.leaf_of(port - self.hosts())),
            Node::Spine { from, .. } => Some(usize::from(from)),
            Node::LeafFromSpine { spine, .. } => Some(self.leaves + usize::from(spine)),
        }
    }

    /// Returns the node that the link starting at `port` leads to.
    pub(crate) fn node_behind(&self, port: usize) -> Node {
        let hosts = self.hosts();
        let uplinks = self.leaves * self.spines;
        if port < hosts {
            Node::LeafFromHost(self.leaf_of(port) as u16)
        } else if port < 2 * hosts {
            Node::Host
        } else if port < 2 * hosts + uplinks {
            let number = port - 2 * hosts;
            Node::Spine {
                spine: (number % self.spines) as u16,
                from: (number / self.spines) as u16,
            }
        } else {
            let number = port - 2 * hosts - uplinks;
            Node::LeafFromSpine {
                spine: (number / self.leaves) as u16,
                leaf: (number % self.leaves) as u16,
            }
        }
    }

    /// Names the link for people: `leaf0->spine1`.
    pub(super) fn name(&self, port: usize) -> String {
        match self.node_behind(port) {
            Node::LeafFromHost(leaf) => format!("host{port}->leaf{leaf}"),
            Node::Host => {
                let host = port - self.hosts();
                format!("leaf{}->host{host}", self.leaf_of(host))
            }
            Node::Spine { spine, from } => format!("leaf{from}->spine{spine}"),
            Node::LeafFromSpine { leaf, spine } => format!("spine{spine}->leaf{leaf}"),
            Node::OwnPort | Node::Switch(_) => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_port_leads_where_its_number_says() {
        let fabric = "leaves = 3\nspines = 4\nhosts_per_leaf = 5\nhost_gbps = 1\nuplink_gbps = 1\nlink_delay_us = 1";
        let layout = Layout::new(&toml::from_str(fabric).expect("a fabric"));
        assert_eq!(layout.ports(), 2 * (15 + 12));
        assert_eq!(
            layout.node_behind(layout.host_port(7)),
            Node::LeafFromHost(1)
        );
        assert_eq!(layout.node_behind(layout.down_port(14)), Node::Host);
        assert_eq!(
            layout.node_behind(layout.uplink(2, 3)),
            Node::Spine { spine: 3, from: 2 }
        );
        assert_eq!(
            layout.node_behind(layout.spine_port(3, 2)),
            Node::LeafFromSpine { leaf: 2, spine: 3 }
        );
        assert_eq!(layout.name(layout.spine_port(3, 2)), "spine3->leaf2");
        assert_eq!(layout.switch_of(layout.down_port(14)), Some(2));
        assert_eq!(layout.switch_of(layout.spine_port(3, 2)), Some(6));
        assert_eq!(layout.switch_of(3), None);
    }
}
