//! The remote sites that flows lead to, as their destinations tell.

use core::net::IpAddr;

use crate::flow::FlowKey;
use crate::thresholds::ThresholdIndex;

/// The address of a flow's destination, or the prefix of a site, as a trie of longest prefixes has it:
/// so many bits of its words, of which the first is the family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteKey {
    /// The family, and the address as it lies in a packet.
    pub words: [u32; 5],
    /// The bits of them that count.
    pub bits: u32,
}

const V4: u32 = 4;
const V6: u32 = 6;
const FAMILY_BITS: u32 = 32;

impl SiteKey {
    /// The destination of a flow.
    #[inline(always)]
    pub const fn of_destination(key: &FlowKey) -> Self {
        match key {
            FlowKey::V4(key) => Self {
                words: [V4, key.destination, 0, 0, 0],
                bits: FAMILY_BITS + 32,
            },
            FlowKey::V6(key) => {
                let [first, second] = key.destination;
                let ([a, b], [c, d]) = (halves(first), halves(second));
                Self {
                    words: [V6, a, b, c, d],
                    bits: FAMILY_BITS + 128,
                }
            }
        }
    }

    /// An address as it lies in a packet; of IPv4 the first word has it, and the others are 0.
    #[inline(always)]
    #[must_use]
    pub const fn of_address(is_v6: bool, [a, b, c, d]: [u32; 4]) -> Self {
        let (family, bits) = if is_v6 { (V6, 128) } else { (V4, 32) };
        Self {
            words: [family, a, b, c, d],
            bits: FAMILY_BITS + bits,
        }
    }

    /// The first `length` bits of an address.
    #[must_use]
    pub fn of_prefix(address: IpAddr, length: u8) -> Self {
        let word = |bytes: &[u8]| u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let words = match address {
            IpAddr::V4(v4) => [V4, word(&v4.octets()), 0, 0, 0],
            IpAddr::V6(v6) => {
                let bytes = v6.octets();
                let [a, b, c, d] = [0, 4, 8, 12].map(|at| word(&bytes[at..at + 4]));
                [V6, a, b, c, d]
            }
        };
        Self {
            words,
            bits: FAMILY_BITS + u32::from(length),
        }
    }

    /// The address and the length of a prefix; `None` for what [`SiteKey::of_prefix`] makes of none.
    #[must_use]
    pub fn prefix(&self) -> Option<(IpAddr, u8)> {
        let [family, words @ ..] = self.words;
        let length = u8::try_from(self.bits.checked_sub(FAMILY_BITS)?).ok()?;
        let bytes: [[u8; 4]; 4] = words.map(u32::to_ne_bytes);
        Some(match family {
            V4 => (bytes[0].into(), length),
            V6 => {
                let mut all = [0; 16];
                all.copy_from_slice(bytes.as_flattened());
                (all.into(), length)
            }
            _ => return None,
        })
    }
}

#[inline(always)]
const fn halves(word: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
    [
        u32::from_ne_bytes([a, b, c, d]),
        u32::from_ne_bytes([e, f, g, h]),
    ]
}

/// A host's look-up of the site that a flow leads to.
pub trait SiteThresholds {
    /// The index of the threshold of the site that a flow leads to; unknown where that has none of
    /// its own.
    fn threshold_of(&self, key: &FlowKey) -> ThresholdIndex;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Network, Transport};
    use etherparse::PacketBuilder;
    use std::vec::Vec;

    #[test]
    fn destination_has_the_key_of_its_whole_address() {
        for address in ["10.2.3.4", "2001:db8:1:2:3:4:5:6"] {
            let address: IpAddr = address.parse().unwrap();
            let length = if address.is_ipv4() { 32 } else { 128 };
            let key = SiteKey::of_prefix(address, length);
            assert_eq!(SiteKey::of_destination(&flow_to(address)), key);
            let mut words = [0; 4];
            words.copy_from_slice(&key.words[1..]);
            assert_eq!(SiteKey::of_address(address.is_ipv6(), words), key);
            assert_eq!(key.prefix(), Some((address, length)));
        }
    }

    /// A flow as the parser names it.
    fn flow_to(address: IpAddr) -> FlowKey {
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let builder = match address {
            IpAddr::V4(to) => builder.ipv4([10, 0, 0, 1], to.octets(), 64),
            IpAddr::V6(to) => builder.ipv6([3; 16], to.octets(), 64),
        };
        let mut frame = Vec::new();
        builder.tcp(1, 2, 3, 4).write(&mut frame, &[]).unwrap();
        let network = Network::parse(frame.as_slice()).unwrap();
        match Transport::parse(frame.as_slice(), &network) {
            Ok(Transport::Tcp(tcp)) => FlowKey::new(network.addresses, &tcp),
            other => unreachable!("{other:?}"),
        }
    }
}
