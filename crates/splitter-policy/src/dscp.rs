//! The mark that the kernel routes by: the upper six bits of ToS or traffic
//! class (RFC 2474). The two ECN bits below are never changed (RFC 3168).

use crate::buffer::BufferMut;
use crate::packet::{Addresses, ETHERNET_BYTES, Network};

/// A DSCP, 0 to 63.
///
/// Kept as the class byte has it, two bits further up: so the kernel programs write it without a shift.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dscp(u8);

impl Dscp {
    /// All six bits set; as a mask, an exact match.
    pub const ALL_BITS: Self = Self(0x3f << 2);
    /// The bits that a legacy `tos` rule looks at: the kernel masks ToS with
    /// 0x1c, both in the rule and in the packet.
    pub const LEGACY_BITS: Self = Self(0x07 << 2);

    /// DSCP 0, best effort: packets without a mark have it.
    pub const NONE: Self = Self(0);

    /// `None` when the value needs more than six bits.
    pub const fn new(value: u8) -> Option<Self> {
        if value <= Self::ALL_BITS.0 >> 2 {
            Some(Self(value << 2))
        } else {
            None
        }
    }

    /// The value, 0 to 63.
    #[inline(always)]
    pub const fn value(self) -> u8 {
        self.0 >> 2
    }

    /// The DSCP within a ToS or traffic class byte.
    #[inline(always)]
    pub const fn of_traffic_class(traffic_class: u8) -> Self {
        Self(traffic_class & !ECN_BITS)
    }

    /// The byte with its DSCP replaced and its ECN bits kept.
    #[inline(always)]
    pub const fn applied_to(self, traffic_class: u8) -> u8 {
        self.0 | (traffic_class & ECN_BITS)
    }
}

const ECN_BITS: u8 = 0x03;

/// The place and the value of a packet's DSCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Where the IP header starts, in bytes from the start of the frame.
    pub offset: u8,
    /// Whether that is of IPv6.
    pub is_v6: bool,
    /// The byte that the DSCP is in.
    pub traffic_class: u8,
}

impl Field {
    /// The field of the packet that `network` describes.
    #[inline(always)]
    pub const fn of(network: &Network) -> Self {
        Self {
            // Behind Ethernet and two VLAN tags at most.
            offset: network.offset as u8,
            is_v6: matches!(network.addresses, Addresses::V6 { .. }),
            traffic_class: network.traffic_class,
        }
    }
}

/// Writes `mark` into an IP header.
///
/// Returns whether the packet was changed; one that carries the mark already
/// is not written to. `None` when the header is not where it was found before.
#[inline(always)]
pub fn rewrite<B: BufferMut + ?Sized>(frame: &mut B, field: &Field, mark: Dscp) -> Option<bool> {
    let new_class = mark.applied_to(field.traffic_class);
    if new_class == field.traffic_class {
        return Some(false);
    }
    let offset = usize::from(field.offset);
    if field.is_v6 {
        rewrite_v6(frame, offset, new_class)?;
    } else {
        rewrite_v4(frame, offset, field.traffic_class, new_class)?;
    }
    Some(true)
}

/// Writes `mark` into the header of a packet without VLAN tags, as [`rewrite`] does; the class is read
/// where it is written.
#[inline(always)]
pub fn rewrite_untagged<B: BufferMut + ?Sized>(
    frame: &mut B,
    is_v6: bool,
    mark: Dscp,
) -> Option<()> {
    // In 32 bits, of which nobody has to cut off any.
    let bytes = |bytes: [u8; 2]| u32::from(u16::from_ne_bytes(bytes));
    let word = bytes(frame.read(ETHERNET_BYTES)?);
    let marked = if is_v6 {
        // Version, class, and the upper bits of the flow label.
        let class = (u16::from(mark.0) << 4).to_be();
        word & bytes([0xf0, 0x3f]) | u32::from(class)
    } else {
        word & bytes([0xff, ECN_BITS]) | bytes([0, mark.0])
    };
    if marked == word {
        return Some(());
    }
    if !is_v6 {
        let checksum = bytes(frame.read(ETHERNET_BYTES + 10)?);
        let checksum = checksum_with_difference(checksum, word, marked);
        frame.write(ETHERNET_BYTES + 10, checksum.to_ne_bytes())?;
    }
    frame.write(ETHERNET_BYTES, (marked as u16).to_ne_bytes())
}

#[inline(always)]
fn rewrite_v4<B: BufferMut + ?Sized>(
    frame: &mut B,
    offset: usize,
    old_class: u8,
    new_class: u8,
) -> Option<()> {
    // In the host's byte order throughout: the sum does not mind (RFC 1071 §2B).
    // What shares a word with the class cancels out.
    let checksum = u16::from_ne_bytes(frame.read::<2>(offset + 10)?);
    let [old, new] = [old_class, new_class].map(|class| u16::from_ne_bytes([0, class]));
    frame.write(
        offset + 10,
        updated_checksum(checksum, old, new).to_ne_bytes(),
    )?;
    frame.write(offset + 1, [new_class])
}

/// The traffic class lies across the first two bytes of an IPv6 header.
#[inline(always)]
fn rewrite_v6<B: BufferMut + ?Sized>(frame: &mut B, offset: usize, new_class: u8) -> Option<()> {
    let [first, second] = frame.read::<2>(offset)?;
    let rewritten = [
        (first & 0xf0) | (new_class >> 4),
        (new_class << 4) | (second & 0x0f),
    ];
    frame.write(offset, rewritten)
}

/// The header checksum after one 16-bit word changed: RFC 1624 equation 3,
/// `HC' = ~(~HC + ~m + m')`.
#[inline(always)]
pub const fn updated_checksum(checksum: u16, old: u16, new: u16) -> u16 {
    let sum = !checksum as u32 + !old as u32 + new as u32;
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    !(sum as u16)
}

/// Renews a checksum by one subtraction modulo 0xffff, `HC' = HC + m - m'`, as RFC 1624 does in more
/// steps. Both have 0 where that and 0xffff are the same. For fields at fixed places: beyond the branches the kernel's verifier has
/// forgotten what it knew of others.
#[inline(always)]
const fn checksum_with_difference(checksum: u32, old: u32, new: u32) -> u16 {
    const MODULUS: i32 = 0xffff;
    let sum = (checksum + old) as i32 - new as i32;
    if sum < 0 {
        return (sum + MODULUS) as u16;
    }
    if sum >= MODULUS {
        return (sum - MODULUS) as u16;
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Fragment;
    use proptest::prelude::*;

    fn checksum(header: &[u8]) -> u16 {
        let sum: u32 = header
            .chunks(2)
            .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
            .sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        !((sum + (sum >> 16)) as u16)
    }

    proptest! {
        /// For the words that a rewrite may change: all but a checksum of 0xffff that stays one.
        #[test]
        fn difference_is_that_of_the_rfc(checksum: u16, old in 0x4500u16..0x4600, mark in 0u16..64) {
            let words = |class: u16| u16::from_be_bytes([0x45, class as u8]).to_be();
            let (old, new) = (words(old), words(mark << 2 | old & 3));
            prop_assert_eq!(
                checksum_with_difference(checksum.into(), old.into(), new.into()),
                updated_checksum(checksum, old, new)
            );
        }

        #[test]
        fn untagged_packets_are_rewritten_as_others_are(
            mut header: [u8; 40],
            is_v6: bool,
            mark in 0u8..64,
        ) {
            header[0] = header[0] & 0x0f | if is_v6 { 0x60 } else { 0x40 };
            let traffic_class = if is_v6 { header[0] << 4 | header[1] >> 4 } else { header[1] };
            let mark = Dscp::new(mark).expect("below 64");
            let mut one = [&[0; 14], &header[..]].concat();
            let mut other = one.clone();
            let field = Field { offset: 14, is_v6, traffic_class };
            rewrite(one.as_mut_slice(), &field, mark).expect("it is long enough");
            rewrite_untagged(other.as_mut_slice(), is_v6, mark).expect("it is long enough");
            prop_assert_eq!(one, other);
        }

        #[test]
        fn incremental_checksum_equals_recomputation(mut header: [u8; 20], mark in 0u8..64) {
            header[0] = 0x45;
            header[10..12].fill(0);
            let before = checksum(&header);
            header[10..12].copy_from_slice(&before.to_be_bytes());
            let mut frame = [&[0; 12], &[8, 0][..], &header].concat();
            let network = Network {
                offset: 14, transport_offset: 34, traffic_class: header[1], protocol: 6,
                fragment: Fragment::Whole, frame_bytes: 34,
                addresses: Addresses::V4 { source: 0, destination: 0 },
            };
            let mark = Dscp::new(mark).expect("below 64");
            let changed = rewrite(frame.as_mut_slice(), &Field::of(&network), mark);
            prop_assert_eq!(changed, Some(mark.value() != header[1] >> 2));

            let after = &frame[14..];
            prop_assert_eq!(after[1] >> 2, mark.value());
            prop_assert_eq!(after[1] & 3, header[1] & 3, "ECN");
            // A header whose sum is right adds up to all ones; 0 and 0xffff
            // are the same number in one's complement (RFC 1624 §3).
            prop_assert_eq!(checksum(after), 0);
            prop_assert_eq!((&after[2..10], &after[12..]), (&header[2..10], &header[12..]));
        }

        #[test]
        fn ipv6_rewrite_touches_the_dscp_alone(mut header: [u8; 40], mark in 0u8..64) {
            header[0] = 0x60 | (header[0] & 0x0f);
            let class = (header[0] << 4) | (header[1] >> 4);
            let mut frame = header;
            let network = Network {
                offset: 0, transport_offset: 40, traffic_class: class, protocol: 6,
                fragment: Fragment::Whole, frame_bytes: 40,
                addresses: Addresses::V6 { source: [0; 2], destination: [0; 2] },
            };
            rewrite(frame.as_mut_slice(), &Field::of(&network), Dscp::new(mark).expect("below 64"));
            let class_after = (frame[0] << 4) | (frame[1] >> 4);
            prop_assert_eq!(class_after >> 2, mark);
            prop_assert_eq!(class_after & 3, class & 3, "ECN");
            prop_assert_eq!(frame[0] >> 4, 6);
            prop_assert_eq!(frame[1] & 0x0f, header[1] & 0x0f);
            prop_assert_eq!(&frame[2..], &header[2..]);
        }
    }

    #[test]
    fn a_dscp_has_six_bits() {
        assert!(Dscp::new(63).is_some());
        assert!(Dscp::new(64).is_none());
    }
}
