//! Fragments follow their flow: the ports of the first are kept for the later ones.
//!
//! Only the first fragment of a packet has its ports. What they are is kept for
//! a while under the packet's name, so that the later ones are counted in the
//! same flow and marked for the same tunnel.

use crate::flow::Seeds;
use crate::packet::{Addresses, Network, TcpFlags, TransportHeader};

/// How many fragmented packets are remembered; the oldest are forgotten first,
/// and what is left of them passes untreated.
pub const CAPACITY: usize = 4_096;

/// Linux gives up a packet of which fragments are missing after so long
/// (`net.ipv4.ipfrag_time`); IPv4's identifications come round soon after.
const LIFETIME_S: u64 = 30;

/// The name of the packet that a fragment is of (RFC 791 §3.2, RFC 8200 §4.5),
/// as a hash that nobody outside can foresee.
#[inline(always)]
const fn name(seeds: &Seeds, network: &Network, identification: u32) -> u64 {
    let [a, b, c, d, ..] = *seeds;
    let mixed = match network.addresses {
        Addresses::V4 {
            source,
            destination,
        } => product(source as u64 ^ a, destination as u64 ^ b)
            // One identification may serve several protocols at a time.
            .wrapping_add((network.protocol as u64 ^ d).wrapping_mul(c | 1)),
        // Here later fragments do not know the protocol.
        Addresses::V6 {
            source,
            destination,
        } => product(source[0] ^ a, source[1] ^ b)
            .wrapping_add(product(destination[0] ^ c, destination[1] ^ d)),
    };
    let named = (mixed ^ (mixed >> 32)).wrapping_add(identification as u64 ^ c);
    let stirred = (named ^ (named >> 29)).wrapping_mul(d | 1);
    (stirred ^ (stirred >> 32)).wrapping_mul(a | 1)
}

/// Of both the lower and the upper halves, for a product's upper bits alone
/// depend on all bits of its factors.
#[inline(always)]
const fn product(one: u64, other: u64) -> u64 {
    (one as u32 as u64)
        .wrapping_mul(other | 1)
        .wrapping_add((one >> 32).wrapping_mul(other.rotate_left(32) | 1))
}

/// A bounded store of the first fragments of packets.
pub trait FragmentStore {
    /// Keeps `origin` under the packet's name. Capacity is bounded: what is older goes first.
    fn insert(&self, packet: u64, origin: u64);

    /// Finds what was kept last under the packet's name.
    fn lookup(&self, packet: u64) -> Option<u64>;
}

/// The lookup of fragments for one frame: store, seeds and time.
#[derive(Debug)]
pub struct Fragments<'a, K: ?Sized> {
    /// The store of first fragments.
    pub store: &'a K,
    /// The seeds of the packets' names.
    pub seeds: &'a Seeds,
    /// Time since boot, to a clock tick.
    pub now_ns: u64,
}

impl<K: FragmentStore + ?Sized> Fragments<'_, K> {
    /// Keeps what later fragments have to know of the first.
    #[inline(always)]
    pub(crate) fn note_first(
        &self,
        network: &Network,
        identification: u32,
        first: &TransportHeader,
    ) {
        let origin = first.ports as u64 | (first.protocol as u64) << 32 | second(self.now_ns) << 40;
        let name = name(self.seeds, network, identification);
        self.store.insert(name, origin);
    }

    /// The header that a later fragment would have; `None` when its packet is not
    /// known, or what was kept is too old to be of the same one.
    #[inline(always)]
    pub(crate) fn header_of_later(
        &self,
        network: &Network,
        identification: u32,
    ) -> Option<TransportHeader> {
        let name = name(self.seeds, network, identification);
        let origin = self.store.lookup(name)?;
        let age_s = second(self.now_ns).wrapping_sub(origin >> 40) & SECOND_MASK;
        if age_s > LIFETIME_S {
            return None;
        }
        Some(TransportHeader {
            protocol: (origin >> 32) as u8,
            ports: origin as u32,
            flags: TcpFlags::NONE,
            payload_bytes: network.frame_bytes.saturating_sub(network.transport_offset),
        })
    }
}

const SECOND_MASK: u64 = 0xff_ffff;

/// In units of 2^30 ns, which need no division.
#[inline(always)]
const fn second(now_ns: u64) -> u64 {
    (now_ns >> 30) & SECOND_MASK
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Fragment, protocol};
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn network(addresses: Addresses, protocol: u8) -> Network {
        Network {
            offset: 14,
            transport_offset: 34,
            traffic_class: 0,
            protocol,
            fragment: Fragment::Whole,
            addresses,
            frame_bytes: 1_500,
        }
    }

    proptest! {
        /// Neighbouring hosts that count their identifications up, as hosts do: among
        /// 2^15 names of 64 bits two meet once in 2^35 draws of the seeds.
        #[test]
        fn names_hardly_collide(seeds: Seeds, first_id: u32, is_v6: bool) {
            let mut names = HashSet::new();
            for host in 0u32..64 {
                let last = (10 << 24 | host).to_be();
                let addresses = if is_v6 {
                    let source = [0x0020_0db8_0000_2001, u64::from(last) << 32];
                    Addresses::V6 { source, destination: [source[0], 1 << 56] }
                } else {
                    Addresses::V4 { source: last, destination: 0x0a00_0100_u32.to_be() }
                };
                for number in 0u32..512 {
                    let identification = first_id.wrapping_add(number).to_be();
                    let network = network(addresses, protocol::UDP);
                    prop_assert!(names.insert(name(&seeds, &network, identification)));
                }
            }
        }

        /// One identification serves several protocols of IPv4 at a time, and both
        /// directions.
        #[test]
        fn protocols_and_directions_have_names_of_their_own(seeds: Seeds, source: u32, destination: u32, identification: u32) {
            prop_assume!(source != destination);
            let there = Addresses::V4 { source, destination };
            let back = Addresses::V4 { source: destination, destination: source };
            let names: HashSet<_> = [there, back].into_iter().flat_map(|addresses| {
                [protocol::TCP, protocol::UDP, protocol::ESP, protocol::GRE]
                    .map(|protocol| name(&seeds, &network(addresses, protocol), identification))
            }).collect();
            prop_assert_eq!(names.len(), 8);
        }
    }
}
