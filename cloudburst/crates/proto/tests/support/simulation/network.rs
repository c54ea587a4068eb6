//! Paths, and which datagram takes which.

use std::net::SocketAddr;

use cloudburst_proto::Ecn;

use super::{
    path::{EcnTreatment, Mtu, Path},
    random::{Random, mix},
};

pub(crate) struct Network {
    pub(crate) paths: Vec<Path>,
    symmetric: bool,
    salt: u64,
    random: Random,
    pub(crate) dropped: u64,
    /// Datagrams that were marked, and those that were dropped as they may be.
    pub(crate) marked: u64,
    pub(crate) dropped_as_capable: u64,
}

/// A datagram on its way.
#[derive(Clone, Debug)]
pub(crate) struct Parcel {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) ecn: Ecn,
    pub(crate) bytes: Vec<u8>,
}

impl Network {
    pub(crate) fn new(seed: u64, paths: Vec<Path>, symmetric: bool) -> Self {
        Self {
            paths,
            symmetric,
            salt: Random::of(seed, 1).number(),
            random: Random::of(seed, 2),
            dropped: 0,
            marked: 0,
            dropped_as_capable: 0,
        }
    }

    /// As switches do: a hash of both addresses and ports.
    pub(crate) fn choose(&self, from: SocketAddr, to: SocketAddr) -> usize {
        let number = |address: SocketAddr| {
            let ip = match address.ip() {
                std::net::IpAddr::V4(ip) => u64::from(ip.to_bits()),
                std::net::IpAddr::V6(ip) => ip.to_bits() as u64,
            };
            mix(ip << 16 | u64::from(address.port()))
        };
        let hash = if self.symmetric {
            mix(self.salt ^ (number(from).wrapping_add(number(to))))
        } else {
            mix(self.salt ^ mix(number(from)) ^ number(to).rotate_left(1))
        };
        (hash % self.paths.len() as u64) as usize
    }

    /// When it comes out, if at all. `direction` is 0 from the lower host.
    pub(crate) fn carry(
        &mut self,
        now: u64,
        direction: usize,
        parcel: &mut Parcel,
    ) -> [Option<u64>; 2] {
        let chosen = self.choose(parcel.from, parcel.to);
        let path = &mut self.paths[chosen];
        if parcel.bytes.len() > path.mtu.bytes {
            self.dropped += 1;
            return [None; 2];
        }
        match path.directions[direction].ecn {
            EcnTreatment::Dropped if parcel.ecn == Ecn::Capable => {
                self.dropped_as_capable += 1;
                return [None; 2];
            }
            EcnTreatment::Cleared => parcel.ecn = Ecn::NotCapable,
            _ => {}
        }
        let carried = path.directions[direction].carry(now, &mut self.random, &mut parcel.bytes);
        if carried.marked && parcel.ecn == Ecn::Capable {
            parcel.ecn = Ecn::CongestionExperienced;
            self.marked += 1;
        }
        self.dropped += u64::from(carried.arrivals == [None; 2]);
        carried.arrivals
    }

    /// Whether the host itself can tell that it does not fit.
    pub(crate) fn is_told_too_big(&self, from: SocketAddr, to: SocketAddr, bytes: usize) -> bool {
        let Mtu { bytes: most, told } = self.paths[self.choose(from, to)].mtu;
        told && bytes > most
    }
}
