//! The graph itself: switches, links between them, and hosts.

use crate::TopologyError;

/// A graph of switches, with hosts at some of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    switches: Vec<String>,
    links: Vec<Link>,
    hosts: Vec<Host>,
    /// Switches with hosts, in order.
    racks: Vec<u16>,
}

/// A host: the link between it and its switch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Host {
    /// Number of its switch.
    pub switch: u16,
    /// Rate of its link in Gbit/s, both ways.
    pub gbps: f64,
    /// Propagation delay of its link in microseconds.
    pub delay_us: f64,
}

/// A link between two switches, with the same rate and delay both ways.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Numbers of the switches at its ends.
    pub ends: [u16; 2],
    /// Rate in Gbit/s, both ways.
    pub gbps: f64,
    /// Propagation delay in microseconds.
    pub delay_us: f64,
    /// Its part of a path's cost: shortest paths are those of the least sum. 1 to 1,000.
    pub cost: u16,
}

/// One direction of a link: the port of a switch that sends on it.
///
/// Ports of link *n* have the numbers 2*n* and 2*n* + 1, so the other direction is one bit away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port(pub u16);

impl Port {
    /// Returns the port of the other direction of the same link.
    #[must_use]
    pub fn reverse(self) -> Self {
        Self(self.0 ^ 1)
    }

    /// Returns the index of its link.
    #[must_use]
    pub fn link(self) -> usize {
        usize::from(self.0 / 2)
    }
}

impl Topology {
    /// Ports of switches and hosts together have 16 bits.
    const MAX_PORTS: usize = u16::MAX as usize;
    /// Limit of the tables of routes: an entry for each switch and rack.
    const MAX_ROUTES: usize = 1_000_000;

    /// Puts a topology together; ends of links and switches of hosts are numbers of `switches`.
    ///
    /// # Errors
    /// When there are fewer than two hosts, or more of something than has numbers.
    pub fn new(
        switches: Vec<String>,
        links: Vec<Link>,
        hosts: Vec<Host>,
    ) -> Result<Self, TopologyError> {
        if hosts.len() < 2 {
            return Err(TopologyError::TooFewHosts(hosts.len()));
        }
        let mut racks: Vec<u16> = hosts.iter().map(|it| it.switch).collect();
        racks.sort_unstable();
        racks.dedup();
        let ports = 2 * (links.len() + hosts.len());
        at_most("ports", ports, Self::MAX_PORTS)?;
        at_most("switches", switches.len(), Self::MAX_PORTS)?;
        let routes = switches.len() * racks.len();
        at_most("pairs of switches", routes, Self::MAX_ROUTES)?;
        Ok(Self {
            switches,
            links,
            hosts,
            racks,
        })
    }

    /// Names of the switches.
    #[must_use]
    pub fn switches(&self) -> &[String] {
        &self.switches
    }

    /// The links between switches.
    #[must_use]
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Hosts, which have no names but numbers.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Numbers of the switches that have hosts; a rack's number is its index here.
    #[must_use]
    pub fn racks(&self) -> &[u16] {
        &self.racks
    }

    /// Returns the rack of a host.
    #[must_use]
    pub fn rack_of(&self, host: usize) -> usize {
        let switch = self.hosts[host].switch;
        self.racks.partition_point(|it| *it < switch)
    }

    /// Returns the switch that sends at a port, and the one that its link leads to.
    #[must_use]
    pub fn ends(&self, port: Port) -> [u16; 2] {
        let [first, second] = self.links[port.link()].ends;
        if port.0.is_multiple_of(2) {
            [first, second]
        } else {
            [second, first]
        }
    }

    /// Names one direction of a link for people: `edge0.1->agg0.0`.
    #[must_use]
    pub fn name(&self, port: Port) -> String {
        let [from, to] = self.ends(port).map(|it| &self.switches[usize::from(it)]);
        format!("{from}->{to}")
    }
}

pub(crate) fn at_most(what: &'static str, count: usize, most: usize) -> Result<(), TopologyError> {
    if count <= most {
        return Ok(());
    }
    Err(TopologyError::TooMany { what, count, most })
}
