//! How a router changes a frame that it forwards (RFC 1812 §5.3.1).

use super::IP;
use crate::buffer::BufferMut;
use crate::packet::ethertype;

/// Takes a hop from what a frame has to go; `None` when it cannot be written.
#[inline(always)]
pub(crate) fn decrement_hops<B: BufferMut + ?Sized>(frame: &mut B) -> Option<()> {
    // Not by the lookup's family: of IPv4 over an IPv6 next hop (RFC 8950) the
    // kernel answers with that of the next hop.
    if frame.read(IP - 2)? == ethertype::IPV4.to_be_bytes() {
        decrement_ttl(frame)
    } else {
        decrement_hop_limit(frame)
    }
}

/// Takes a hop from what a packet of IPv4 has to go, which is one at least.
#[inline(always)]
pub(crate) fn decrement_ttl<B: BufferMut + ?Sized>(frame: &mut B) -> Option<()> {
    // With the protocol, which shares the checksum's word with it.
    let word = u16::from_ne_bytes(frame.read(IP + 8)?);
    let checksum = u16::from_ne_bytes(frame.read(IP + 10)?);
    frame.write(IP + 8, word.wrapping_sub(ONE_HOP).to_ne_bytes())?;
    frame.write(IP + 10, checksum_of_one_hop_less(checksum).to_ne_bytes())
}

/// Takes a hop from what a packet of IPv6 has to go.
#[inline(always)]
pub(crate) fn decrement_hop_limit<B: BufferMut + ?Sized>(frame: &mut B) -> Option<()> {
    let [hop_limit] = frame.read(IP + 7)?;
    frame.write(IP + 7, [hop_limit.wrapping_sub(1)])
}

/// One in the first byte of a word.
const ONE_HOP: u16 = u16::from_ne_bytes([1, 0]);

/// Renews a header's checksum as RFC 1624 does, of which nothing is left when the difference is known.
#[inline(always)]
const fn checksum_of_one_hop_less(checksum: u16) -> u16 {
    const MODULUS: u32 = 0xffff;
    let sum = checksum as u32 + ONE_HOP as u32;
    (if sum >= MODULUS { sum - MODULUS } else { sum }) as u16
}

/// Writes the link addresses of a frame that leaves: the next hop's, then ours.
#[inline(always)]
pub(crate) fn readdress<B: BufferMut + ?Sized>(frame: &mut B, link: [u8; 12]) -> Option<()> {
    // In two words: of one array of twelve bytes the compiler makes a loop over bytes.
    let [a, b, c, d, e, f, g, h, i, j, k, l] = link;
    frame.write(0, [a, b, c, d, e, f, g, h])?;
    frame.write(8, [i, j, k, l])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::protocol;

    #[test]
    fn checksum_of_one_hop_less_is_that_of_the_rfc() {
        for checksum in 0..=u16::MAX {
            for ttl in [1, 2, 64, 255] {
                let [old, new] = [ttl, ttl - 1].map(|ttl| u16::from_ne_bytes([ttl, protocol::TCP]));
                let renewed = crate::dscp::updated_checksum(checksum, old, new);
                assert_eq!(
                    checksum_of_one_hop_less(checksum),
                    renewed,
                    "{checksum} {ttl}"
                );
            }
        }
    }
}
