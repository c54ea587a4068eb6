//! Hash-based packet selection (RFC 5475 §6.2.2): two observation points pick out the same packets.
//!
//! What is hashed stays as it is on the way: addresses, ports, TCP's sequence number and
//! acknowledgement, and the identification of IPv4. DSCP, ECN and TTL change, checksums are filled in
//! late, and lengths differ where segments travel as an aggregate, which stands for its first one
//! here. Behind a NAT a packet is another one.
//!
//! The digest tells a packet from others, too. The hash is keyed, so that nobody who does not know the key can send
//! what is selected, or what is not (RFC 5475 §8).

use core::num::NonZeroU32;

use crate::buffer::Buffer;
use crate::flow::FlowKeyV6;
use crate::packet::{Addresses, Network};

/// The packets that are selected; the same at all observation points that are compared.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketSelection {
    key: [u64; 2],
    /// Packets whose digest is not above it; with 0 none are.
    most: u64,
}

/// The passage of one selected packet: 64 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketPassage {
    /// `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// Tells the packet from others, the same at each point.
    pub digest: u64,
    /// Its flow.
    pub flow: FlowKeyV6,
    /// Its fwmark at this point.
    pub fwmark: u32,
    /// Its ToS (IPv4) or traffic class (IPv6) at this point.
    pub traffic_class: u32,
}

/// Numbers in the headers of a TCP segment that no two segments of a flow share, unless one is
/// a duplicate of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentNumbers {
    /// Sequence number and acknowledgement, eight bytes of the TCP header.
    sequence: [u8; 8],
    /// Identification of IPv4, by which a retransmission differs from the original; else zero.
    identification: [u8; 2],
}

impl PacketSelection {
    /// Selects no packet at all.
    pub const NONE: Self = Self {
        key: [0; 2],
        most: 0,
    };

    /// Selects one in `n` packets, all with 1, by a hash with this `key`.
    pub const fn one_in(n: NonZeroU32, key: [u64; 2]) -> Self {
        let most = u64::MAX / n.get() as u64;
        Self { key, most }
    }

    /// Tells if any packet is selected.
    #[inline(always)]
    pub const fn is_any(&self) -> bool {
        self.most != 0
    }

    /// Returns the digest of a segment of `flow` when it is selected.
    #[inline(always)]
    pub fn select(&self, flow: &FlowKeyV6, numbers: &SegmentNumbers) -> Option<u64> {
        let ([a, b], [c, d]) = (flow.source, flow.destination);
        let [e, f] = [flow.ports, flow.protocol].map(|it| u64::from(it.to_le()));
        let [low, high] = numbers.identification;
        let digest = siphash(
            self.key,
            [
                a.to_le(),
                b.to_le(),
                c.to_le(),
                d.to_le(),
                e | f << 32,
                u64::from_le_bytes(numbers.sequence),
                u64::from_le_bytes([low, high, 0, 0, 0, 0, 0, 0]),
            ],
        );
        (self.is_any() && digest <= self.most).then_some(digest)
    }
}

impl SegmentNumbers {
    /// Reads them where `network` says that the headers of a TCP segment are; `None` where the frame ends before.
    #[inline(always)]
    pub fn read<B: Buffer + ?Sized>(frame: &B, network: &Network) -> Option<Self> {
        const SEQUENCE: usize = 4;
        const IDENTIFICATION: usize = 4;
        let identification = match network.addresses {
            Addresses::V4 { .. } => frame.read(network.offset + IDENTIFICATION)?,
            Addresses::V6 { .. } => [0; 2],
        };
        Some(Self {
            sequence: frame.read(network.transport_offset + SEQUENCE)?,
            identification,
        })
    }
}

/// SipHash-2-4 (Aumasson and Bernstein, INDOCRYPT 2012) of whole words.
#[inline(always)]
fn siphash<const WORDS: usize>([k0, k1]: [u64; 2], words: [u64; WORDS]) -> u64 {
    let mut state = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    for word in words {
        absorb(&mut state, word);
    }
    // The last block has the length alone.
    absorb(&mut state, (8 * WORDS as u64) << 56);
    state[2] ^= 0xff;
    round(&mut state);
    round(&mut state);
    round(&mut state);
    round(&mut state);
    let [a, b, c, d] = state;
    a ^ b ^ c ^ d
}

#[inline(always)]
fn absorb(state: &mut [u64; 4], word: u64) {
    state[3] ^= word;
    round(state);
    round(state);
    state[0] ^= word;
}

#[inline(always)]
fn round(state: &mut [u64; 4]) {
    let [mut a, mut b, mut c, mut d] = *state;
    a = a.wrapping_add(b);
    b = b.rotate_left(13) ^ a;
    a = a.rotate_left(32);
    c = c.wrapping_add(d);
    d = d.rotate_left(16) ^ c;
    a = a.wrapping_add(d);
    d = d.rotate_left(21) ^ a;
    c = c.wrapping_add(b);
    b = b.rotate_left(17) ^ c;
    c = c.rotate_left(32);
    *state = [a, b, c, d];
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::packet::protocol;

    const KEY: [u64; 2] = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];

    fn all() -> PacketSelection {
        PacketSelection::one_in(NonZeroU32::MIN, KEY)
    }

    fn flow(ports: u32) -> FlowKeyV6 {
        FlowKeyV6 {
            source: [1, 2],
            destination: [3, 4],
            ports,
            protocol: protocol::TCP.into(),
        }
    }

    fn segment(sequence: u32, identification: u16) -> SegmentNumbers {
        let mut numbers = SegmentNumbers {
            sequence: [0; 8],
            identification: identification.to_be_bytes(),
        };
        numbers.sequence[..4].copy_from_slice(&sequence.to_be_bytes());
        numbers
    }

    /// Of `vectors.h` of the authors' own program, for messages of 0, 8 and 16 bytes that count up.
    #[test]
    fn hash_is_that_of_the_reference() {
        let word = |first: u8| u64::from_le_bytes(core::array::from_fn(|it| first + it as u8));
        assert_eq!(siphash(KEY, []), 0x726f_db47_dd0e_0e31);
        assert_eq!(siphash(KEY, [word(0)]), 0x93f5_f579_9a93_2462);
        assert_eq!(siphash(KEY, [word(0), word(8)]), 0x3f2a_cc7f_57c2_9bdb);
    }

    #[test]
    fn one_packet_in_so_many_is_selected_and_the_same_with_the_same_key() {
        let numbers = || (0..100_000).map(|it| segment(it, 0));
        let selected = |selection: PacketSelection| -> HashSet<u64> {
            let digests = numbers().filter_map(|it| selection.select(&flow(7), &it));
            digests.collect()
        };
        let sixteenth = |key| PacketSelection::one_in(NonZeroU32::new(16).unwrap(), key);
        assert_eq!(selected(all()).len(), 100_000);
        let some = selected(sixteenth(KEY));
        // A binomial of mean 6,250 has a standard deviation of 77.
        assert!((5_900..6_600).contains(&some.len()), "{}", some.len());
        assert!(some.is_subset(&selected(all())));
        assert!(some.is_disjoint(&selected(sixteenth([1, 2]))));
        assert!(selected(PacketSelection::NONE).is_empty());
    }

    #[test]
    fn digest_tells_flows_segments_and_retransmissions_apart() {
        let digest = |ports, numbers| all().select(&flow(ports), &numbers).unwrap();
        let digests = [
            digest(1, segment(1, 1)),
            digest(2, segment(1, 1)),
            digest(1, segment(2, 1)),
            digest(1, segment(1, 2)),
        ];
        assert_eq!(HashSet::from(digests).len(), 4);
        assert_eq!(digests[0], digest(1, segment(1, 1)));
    }
}
