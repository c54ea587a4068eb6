//! Ways between hosts, the addresses that stand for them, and the spines that they lead over.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use cloudburst_proto::{Route, SocketId};
use flow_balance::{Ecmp, PathSet};

use crate::{
    engine::random::{Purpose, Random},
    fabric::Network,
    scenario::{CloudburstSettings, Routing},
};

/// What is chosen once and stays.
#[derive(Debug)]
pub(super) struct Ways {
    count: u8,
    spines: usize,
    routing: Routing,
    one_way: bool,
    avoids_failed: bool,
    random: Random,
    ecmp: Ecmp,
    /// Spines by way, of pairs of hosts that have met.
    known: HashMap<(u16, u16), Box<[u8]>>,
}

/// The first host's address is 10.0.0.0, and what tells ways apart are ports or, where a message
/// takes one, addresses: the paper's format knows a sender by its address.
const FIRST_ADDRESS: u32 = 10 << 24;
const ALIAS_SHIFT: u32 = 16;
const FIRST_PORT: u16 = 5_000;

impl Ways {
    pub(super) fn new(settings: &CloudburstSettings, spines: u16, seed: u64) -> Self {
        let mut random = Random::new(seed, Purpose::Ways, 0);
        let ecmp_seed = u64::from(random.bits()) << 32 | u64::from(random.bits());
        Self {
            count: settings.ways.unwrap_or(spines as u8),
            spines: spines.into(),
            routing: settings.routing,
            one_way: settings.one_way,
            avoids_failed: settings.avoids_failed,
            random,
            ecmp: Ecmp { seed: ecmp_seed },
            known: HashMap::new(),
        }
    }

    /// By which of its addresses a message goes to its receiver.
    pub(super) fn draw_alias(&mut self) -> u8 {
        if self.one_way {
            self.random.below(self.count.into()) as u8
        } else {
            0
        }
    }

    /// The address that a way belongs to.
    pub(super) fn alias(&self, way: u8) -> u8 {
        if self.one_way { way } else { 0 }
    }

    /// All ways to an address of a host.
    pub(super) fn routes(&self, to: u16, alias: u8) -> Vec<Route> {
        if self.one_way {
            return vec![self.route(to, alias)];
        }
        (0..self.count).map(|way| self.route(to, way)).collect()
    }

    /// One way to a host.
    pub(super) fn route(&self, to: u16, way: u8) -> Route {
        let alias = u32::from(self.alias(way)) << ALIAS_SHIFT;
        let address = Ipv4Addr::from_bits(FIRST_ADDRESS | alias | u32::from(to));
        Route {
            socket: SocketId(way.into()),
            remote: SocketAddr::new(address.into(), FIRST_PORT + u16::from(way)),
        }
    }

    /// The host at the other end of a route, and which of its ways that is.
    pub(super) fn ends(&self, route: &Route) -> (u16, u8) {
        let host = match route.remote.ip() {
            IpAddr::V4(address) => address.to_bits() as u16,
            IpAddr::V6(_) => unreachable!("no host has such an address"),
        };
        (host, route.remote.port().wrapping_sub(FIRST_PORT) as u8)
    }

    /// The spine that a way leads over; 0 within a leaf, where none does.
    pub(super) fn spine(&mut self, network: &Network, from: u16, to: u16, way: u8) -> u8 {
        if !self.known.contains_key(&(from, to)) {
            let spines = self.find(network, from, to);
            self.known.insert((from, to), spines);
        }
        self.known[&(from, to)][usize::from(way)]
    }

    fn find(&self, network: &Network, from: u16, to: u16) -> Box<[u8]> {
        let usable = network.usable_paths(from, to);
        let ways = 0..self.count;
        if usable.is_empty() {
            return ways.map(|_| 0).collect();
        }
        if self.routing == Routing::Ecmp {
            let hash = |way: u8| u64::from(from) << 32 | u64::from(to) << 16 | u64::from(way);
            return ways
                .map(|way| network.ecmp_path(from, to, self.ecmp, hash(way)).index() as u8)
                .collect();
        }
        let all = if self.avoids_failed {
            usable
        } else {
            PathSet::first(self.spines)
        };
        let all: Vec<u8> = all.iter().map(|it| it.index() as u8).collect();
        // Back on the same path; and not all pairs begin with the first one.
        let first = usize::from(from) + usize::from(to);
        ways.map(|way| all[(first + usize::from(way)) % all.len()])
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_tell_hosts_and_ways() {
        for one_way in [false, true] {
            let settings = CloudburstSettings {
                one_way,
                ..CloudburstSettings::default()
            };
            let ways = Ways::new(&settings, 4, 1);
            for (host, way) in [(0, 0), (65_535, 3), (300, 1)] {
                let route = ways.route(host, way);
                assert_eq!(ways.ends(&route), (host, way));
                assert!(ways.routes(host, way).contains(&route));
                assert_eq!(ways.routes(host, 0).len(), if one_way { 1 } else { 4 });
            }
        }
    }
}
