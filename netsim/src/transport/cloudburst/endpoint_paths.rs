//! Paths of endpoints: the addresses and ports that stand for them, and the spines they lead over.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use cloudburst_proto::{FourTuple, SocketId};
use flow_balance::{Ecmp, PathSet};

use crate::{
    engine::random::{Purpose, Random},
    fabric::Network,
    scenario::{CloudburstSettings, Routing},
};

/// The paths of all endpoints, chosen once.
#[derive(Debug)]
pub(super) struct EndpointPaths {
    count: u8,
    spines: usize,
    routing: Routing,
    single_path: bool,
    avoids_failed: bool,
    random: Random,
    ecmp: Ecmp,
    /// Spines by path, of pairs of hosts that have met.
    known: HashMap<(u16, u16), Box<[u8]>>,
}

/// The first host's address is 10.0.0.0, and paths differ by ports or, where a message
/// takes one, addresses: the paper's format knows a sender by its address.
const FIRST_ADDRESS: u32 = 10 << 24;
const ALIAS_SHIFT: u32 = 16;
const FIRST_PORT: u16 = 5_000;

impl EndpointPaths {
    pub(super) fn new(settings: &CloudburstSettings, spines: u16, seed: u64) -> Self {
        let mut random = Random::new(seed, Purpose::EndpointPaths, 0);
        let ecmp_seed = u64::from(random.bits()) << 32 | u64::from(random.bits());
        Self {
            count: settings.paths.unwrap_or(spines as u8),
            spines: spines.into(),
            routing: settings.routing,
            single_path: settings.single_path,
            avoids_failed: settings.avoids_failed,
            random,
            ecmp: Ecmp { seed: ecmp_seed },
            known: HashMap::new(),
        }
    }

    /// By which of its addresses a message goes to its receiver.
    pub(super) fn draw_alias(&mut self) -> u8 {
        if self.single_path {
            self.random.below(self.count.into()) as u8
        } else {
            0
        }
    }

    /// The address that a path belongs to.
    pub(super) fn alias(&self, path: u8) -> u8 {
        if self.single_path { path } else { 0 }
    }

    /// All paths to an address of a host.
    pub(super) fn four_tuples(&self, to: u16, alias: u8) -> Vec<FourTuple> {
        if self.single_path {
            return vec![self.four_tuple(to, alias)];
        }
        (0..self.count)
            .map(|path| self.four_tuple(to, path))
            .collect()
    }

    /// One path to a host.
    pub(super) fn four_tuple(&self, to: u16, path: u8) -> FourTuple {
        let alias = u32::from(self.alias(path)) << ALIAS_SHIFT;
        let address = Ipv4Addr::from_bits(FIRST_ADDRESS | alias | u32::from(to));
        FourTuple::new(
            SocketId(path.into()),
            SocketAddr::new(address.into(), FIRST_PORT + u16::from(path)),
        )
    }

    /// The host at the other end of a route, and which of its paths that is.
    pub(super) fn ends(&self, four_tuple: &FourTuple) -> (u16, u8) {
        let host = match four_tuple.remote.ip() {
            IpAddr::V4(address) => address.to_bits() as u16,
            IpAddr::V6(_) => unreachable!("no host has such an address"),
        };
        (
            host,
            four_tuple.remote.port().wrapping_sub(FIRST_PORT) as u8,
        )
    }

    /// The spine that a path leads over; 0 within a leaf, where none does.
    pub(super) fn spine(&mut self, network: &Network, from: u16, to: u16, path: u8) -> u8 {
        if !self.known.contains_key(&(from, to)) {
            let spines = self.find(network, from, to);
            self.known.insert((from, to), spines);
        }
        self.known[&(from, to)][usize::from(path)]
    }

    fn find(&self, network: &Network, from: u16, to: u16) -> Box<[u8]> {
        let usable = network.usable_paths(from, to);
        let paths = 0..self.count;
        if usable.is_empty() {
            return paths.map(|_| 0).collect();
        }
        if self.routing == Routing::Ecmp {
            let hash = |path: u8| u64::from(from) << 32 | u64::from(to) << 16 | u64::from(path);
            return paths
                .map(|path| network.ecmp_path(from, to, self.ecmp, hash(path)).index() as u8)
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
        paths
            .map(|path| all[(first + usize::from(path)) % all.len()])
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_encode_hosts_and_paths() {
        for single_path in [false, true] {
            let settings = CloudburstSettings {
                single_path,
                ..CloudburstSettings::default()
            };
            let paths = EndpointPaths::new(&settings, 4, 1);
            for (host, path) in [(0, 0), (65_535, 3), (300, 1)] {
                let four_tuple = paths.four_tuple(host, path);
                assert_eq!(paths.ends(&four_tuple), (host, path));
                assert!(paths.four_tuples(host, path).contains(&four_tuple));
                assert_eq!(
                    paths.four_tuples(host, 0).len(),
                    if single_path { 1 } else { 4 }
                );
            }
        }
    }
}
