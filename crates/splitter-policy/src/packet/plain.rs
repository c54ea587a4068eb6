//! Plain TCP segments: no VLAN tag, no IP options or extension headers, no
//! fragment, a frame as long as it says. All lies at fixed places, so that this says what
//! [`Network::parse`] and [`Transport::parse`](super::Transport::parse) do in a
//! fraction of the time.

use super::{
    Addresses, ETHERNET_BYTES, Fragment, IPV4_BYTES, IPV6_BYTES, Network, TCP_BYTES, TcpFlags,
    TransportHeader, ethertype, protocol,
};
use crate::buffer::Buffer;

/// Whether an untagged frame says that it carries IPv4. `None` when it is too
/// short for a segment of either family.
#[inline(always)]
pub(crate) fn is_v4<B: Buffer + ?Sized>(frame: &B) -> Option<bool> {
    // As much as is read next, so that it is checked once.
    let headers = frame.read::<V4_BYTES>(0)?;
    Some(short(&headers, ETHERNET_BYTES - 2) == ethertype::IPV4.to_be())
}

const V4_BYTES: usize = ETHERNET_BYTES + IPV4_BYTES + TCP_BYTES;

/// The headers of a plain segment over IPv4; `None` for all else.
#[inline(always)]
pub fn parse_plain_v4<B: Buffer + ?Sized>(frame: &B) -> Option<(Network, TransportHeader)> {
    const WITHOUT_OPTIONS: u8 = 0x45;
    /// Offset and "more fragments", and the protocol; what lies between does not matter.
    const KIND: u32 = u32::from_ne_bytes([0x3f, 0xff, 0, 0xff]);
    const WHOLE_TCP: u32 = u32::from_ne_bytes([0, 0, 0, protocol::TCP]);
    const TCP_AT: usize = ETHERNET_BYTES + IPV4_BYTES;
    const IP: usize = ETHERNET_BYTES;
    let headers = &frame.read::<V4_BYTES>(0)?;
    // One after the other: of a condition in a variable the compiler makes a number first.
    if short(headers, IP - 2) != ethertype::IPV4.to_be() || headers[IP] != WITHOUT_OPTIONS {
        return None;
    }
    if word(headers, IP + 6) & KIND != WHOLE_TCP {
        return None;
    }
    let frame_bytes = IP + usize::from(u16::from_be(short(headers, IP + 2)));
    let payload_at = TCP_AT + tcp_header_bytes(headers[TCP_AT + 12]);
    if !is_whole(frame, V4_BYTES, payload_at, frame_bytes) {
        return None;
    }
    // Both at once, as the table keeps them.
    let addresses = long(headers, IP + 12);
    let [source, destination] = halves(addresses);
    let network = Network {
        offset: IP,
        transport_offset: TCP_AT,
        traffic_class: headers[IP + 1],
        protocol: protocol::TCP,
        fragment: Fragment::Whole,
        addresses: Addresses::V4 {
            source,
            destination,
        },
        frame_bytes,
    };
    let tcp = TransportHeader {
        protocol: protocol::TCP,
        ports: word(headers, TCP_AT),
        flags: TcpFlags(headers[TCP_AT + 13]),
        payload_bytes: frame_bytes - payload_at,
    };
    Some((network, tcp))
}

/// The headers of a plain segment over IPv6; `None` for all else.
#[inline(always)]
pub fn parse_plain_v6<B: Buffer + ?Sized>(frame: &B) -> Option<(Network, TransportHeader)> {
    const VERSION: u8 = 6 << 4;
    const TCP_AT: usize = ETHERNET_BYTES + IPV6_BYTES;
    const END: usize = TCP_AT + TCP_BYTES;
    const IP: usize = ETHERNET_BYTES;
    let headers = &frame.read::<END>(0)?;
    if short(headers, IP - 2) != ethertype::IPV6.to_be() || headers[IP] & 0xf0 != VERSION {
        return None;
    }
    if headers[IP + 6] != protocol::TCP {
        return None;
    }
    let frame_bytes = TCP_AT + usize::from(u16::from_be(short(headers, IP + 4)));
    let payload_at = TCP_AT + tcp_header_bytes(headers[TCP_AT + 12]);
    if !is_whole(frame, END, payload_at, frame_bytes) {
        return None;
    }
    let network = Network {
        offset: IP,
        transport_offset: TCP_AT,
        traffic_class: headers[IP] << 4 | headers[IP + 1] >> 4,
        protocol: protocol::TCP,
        fragment: Fragment::Whole,
        addresses: Addresses::V6 {
            source: [long(headers, IP + 8), long(headers, IP + 16)],
            destination: [long(headers, IP + 24), long(headers, IP + 32)],
        },
        frame_bytes,
    };
    let tcp = TransportHeader {
        protocol: protocol::TCP,
        ports: word(headers, TCP_AT),
        flags: TcpFlags(headers[TCP_AT + 13]),
        payload_bytes: frame_bytes - payload_at,
    };
    Some((network, tcp))
}

/// Tells if a TCP header that starts 20 bytes before `end` and ends at `payload_at` has its least
/// length, and all lies in a frame of which all is at hand.
#[inline(always)]
fn is_whole<B: Buffer + ?Sized>(
    frame: &B,
    end: usize,
    payload_at: usize,
    frame_bytes: usize,
) -> bool {
    end <= payload_at && payload_at <= frame_bytes && frame_bytes <= frame.available()
}

#[inline(always)]
fn tcp_header_bytes(offset_byte: u8) -> usize {
    usize::from(offset_byte >> 4) * 4
}

/// Splits a word into the values of its first and its last four bytes in memory.
#[inline(always)]
fn halves(word: u64) -> [u32; 2] {
    if cfg!(target_endian = "little") {
        [word as u32, (word >> 32) as u32]
    } else {
        [(word >> 32) as u32, word as u32]
    }
}

// In one piece each: a compiler that sees bytes reads bytes.

#[inline(always)]
fn short<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    let mut two = [0; 2];
    two.copy_from_slice(&bytes[at..at + 2]);
    u16::from_ne_bytes(two)
}

#[inline(always)]
fn word<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    let mut four = [0; 4];
    four.copy_from_slice(&bytes[at..at + 4]);
    u32::from_ne_bytes(four)
}

#[inline(always)]
fn long<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[at..at + 8]);
    u64::from_ne_bytes(eight)
}
