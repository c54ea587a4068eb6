//! The one packet parser: Ethernet, VLAN tags, IPv4, IPv6, then TCP, UDP, ESP
//! and GRE.
//!
//! It runs in two steps because a packet whose transport cannot be read still
//! has an IP header whose mark must be looked at.
//!
//! ```
//! use splitter_policy::packet::{Network, Transport};
//! # let frame: &[u8] = &[0; 64];
//! match Network::parse(frame).and_then(|network| Transport::parse(frame, &network)) {
//!     Ok(transport) => println!("{transport:?}"),
//!     Err(refusal) => println!("passes untreated: {}", refusal.name()),
//! }
//! ```

mod plain;
mod transport;

use crate::buffer::Buffer;
pub(crate) use crate::packet::plain::{
    PlainSegment, PlainV4, PlainV6, V4_TCP_AT, V6_TCP_AT, WireKeyV4, WireKeyV6, is_v4,
};
pub use crate::packet::plain::{parse_plain_v4, parse_plain_v6};
use crate::pass_reason::PassReason;
use transport::TCP_BYTES;
pub use transport::{TcpFlags, Transport, TransportHeader};
pub(crate) use transport::{parse_esp, parse_gre, parse_tcp, parse_udp};

/// Source and destination of a packet, as they stand on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// IPv4, each address as the four bytes of the header read natively.
    V4 {
        /// Source address.
        source: u32,
        /// Destination address.
        destination: u32,
    },
    /// IPv6, each address as two halves of the header's bytes read natively.
    V6 {
        /// Source address.
        source: [u64; 2],
        /// Destination address.
        destination: [u64; 2],
    },
}

impl Addresses {
    /// Returns those of the packets that come back.
    #[inline(always)]
    pub(crate) const fn swapped(self) -> Self {
        match self {
            Self::V4 {
                source,
                destination,
            } => Self::V4 {
                source: destination,
                destination: source,
            },
            Self::V6 {
                source,
                destination,
            } => Self::V6 {
                source: destination,
                destination: source,
            },
        }
    }
}

/// The part of an IP packet that a frame holds: all, the first fragment, or a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragment {
    /// All of it.
    Whole,
    /// Its beginning, with the transport header. The number is the packet's
    /// identification (RFC 791, RFC 8200 §4.5), wire bytes read natively.
    First(u32),
    /// Another part of it, which carries no ports.
    Later(u32),
}

impl Fragment {
    #[inline(always)]
    const fn new(identification: u32, is_later: bool, more_follow: bool) -> Self {
        match (is_later, more_follow) {
            (true, _) => Self::Later(identification),
            (false, true) => Self::First(identification),
            (false, false) => Self::Whole,
        }
    }

    /// The frame holds all of the packet.
    #[inline(always)]
    pub const fn is_whole(self) -> bool {
        matches!(self, Self::Whole)
    }

    /// The frame is a fragment other than the first.
    #[inline(always)]
    pub const fn is_later(self) -> bool {
        matches!(self, Self::Later(_))
    }
}

/// The Ethernet and IP headers of a packet, read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Where the IP header starts, in bytes from the start of the frame.
    pub offset: usize,
    /// Where what follows the IP header and its extensions starts.
    pub transport_offset: usize,
    /// ToS (IPv4) or traffic class (IPv6): DSCP in the upper six bits, ECN in
    /// the lower two.
    pub traffic_class: u8,
    /// IANA protocol number of what follows.
    pub protocol: u8,
    /// The frame holds all of the packet.
    pub fragment: Fragment,
    /// Source and destination.
    pub addresses: Addresses,
    /// Bytes from the start of the Ethernet header to the end of the IP packet.
    /// For a GRO aggregate this is the length of the aggregate. Never more than
    /// the frame has, whatever the headers say.
    pub frame_bytes: usize,
}

/// VLAN tags that are skipped: one for 802.1Q, two for QinQ.
pub const MAX_VLAN_TAGS: usize = 2;

/// IPv6 extension headers that are skipped. RFC 8200 §4.1 lists each of the
/// four kinds once, destination options twice.
pub const MAX_EXTENSION_HEADERS: usize = 6;

pub(crate) const ETHERNET_BYTES: usize = 14;
const VLAN_BYTES: usize = 4;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;

impl Network {
    /// Reads the headers up to the transport.
    ///
    /// # Errors
    /// The [`PassReason`] that fits; the frame is then to be passed on unchanged.
    #[inline(always)]
    pub fn parse<B: Buffer + ?Sized>(frame: &B) -> Result<Self, PassReason> {
        let (ethertype, offset) = skip_vlan_tags(frame)?;
        match ethertype {
            ethertype::IPV4 => parse_ipv4(frame, offset),
            ethertype::IPV6 => parse_ipv6(frame, offset),
            _ => Err(PassReason::NotIp),
        }
    }
}

/// The EtherType behind at most [`MAX_VLAN_TAGS`] tags, and where its payload starts.
#[inline(always)]
pub(crate) fn skip_vlan_tags<B: Buffer + ?Sized>(frame: &B) -> Result<(u16, usize), PassReason> {
    let header = frame
        .read::<ETHERNET_BYTES>(0)
        .ok_or(PassReason::TruncatedEthernet)?;
    let mut ethertype = u16::from_be_bytes([header[12], header[13]]);
    let mut offset = ETHERNET_BYTES;
    for _ in 0..MAX_VLAN_TAGS {
        if !ethertype::is_vlan(ethertype) {
            return Ok((ethertype, offset));
        }
        let tag = frame
            .read::<VLAN_BYTES>(offset)
            .ok_or(PassReason::TruncatedEthernet)?;
        ethertype = u16::from_be_bytes([tag[2], tag[3]]);
        offset += VLAN_BYTES;
    }
    if ethertype::is_vlan(ethertype) {
        return Err(PassReason::TooManyVlanTags);
    }
    Ok((ethertype, offset))
}

#[inline(always)]
pub(crate) fn parse_ipv4<B: Buffer + ?Sized>(
    frame: &B,
    offset: usize,
) -> Result<Network, PassReason> {
    let header = frame
        .read::<IPV4_BYTES>(offset)
        .ok_or(PassReason::TruncatedIpv4)?;
    let header_bytes = usize::from(header[0] & 0x0f) * 4;
    let total_bytes = usize::from(u16::from_be_bytes([header[2], header[3]]));
    // A total length of 0 marks an aggregate beyond 64 KiB (BIG TCP).
    let total_is_sane = total_bytes >= header_bytes || total_bytes == 0;
    if header[0] >> 4 != 4 || header_bytes < IPV4_BYTES || !total_is_sane {
        return Err(PassReason::MalformedIpv4);
    }
    let transport_offset = offset + header_bytes;
    if header_bytes > IPV4_BYTES && frame.read::<1>(transport_offset - 1).is_none() {
        return Err(PassReason::TruncatedIpv4);
    }
    let identification = u16::from_ne_bytes([header[4], header[5]]);
    let fragment_offset = u16::from_be_bytes([header[6] & 0x1f, header[7]]);
    let more_follow = header[6] & 0x20 != 0;
    Ok(Network {
        offset,
        transport_offset,
        traffic_class: header[1],
        protocol: header[9],
        fragment: Fragment::new(identification.into(), fragment_offset != 0, more_follow),
        addresses: Addresses::V4 {
            source: u32::from_ne_bytes([header[12], header[13], header[14], header[15]]),
            destination: u32::from_ne_bytes([header[16], header[17], header[18], header[19]]),
        },
        frame_bytes: believed_length(frame, offset, total_bytes),
    })
}

#[inline(always)]
pub(crate) fn parse_ipv6<B: Buffer + ?Sized>(
    frame: &B,
    offset: usize,
) -> Result<Network, PassReason> {
    let header = frame.read::<8>(offset).ok_or(PassReason::TruncatedIpv6)?;
    let addresses = frame
        .read::<32>(offset + 8)
        .ok_or(PassReason::TruncatedIpv6)?;
    if header[0] >> 4 != 6 {
        return Err(PassReason::MalformedIpv6);
    }
    let payload_bytes = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let extensions = skip_extension_headers(frame, offset + IPV6_BYTES, header[6])?;
    Ok(Network {
        offset,
        transport_offset: extensions.end,
        traffic_class: (header[0] << 4) | (header[1] >> 4),
        protocol: extensions.protocol,
        fragment: extensions.fragment,
        addresses: Addresses::V6 {
            source: [half(&addresses, 0), half(&addresses, 8)],
            destination: [half(&addresses, 16), half(&addresses, 24)],
        },
        frame_bytes: match payload_bytes {
            // A jumbogram, or an aggregate beyond 64 KiB.
            0 => believed_length(frame, offset, 0),
            _ => believed_length(frame, offset, IPV6_BYTES + payload_bytes),
        },
    })
}

/// The length that a header at `offset` states for its packet, 0 for not at
/// all, as far as the frame bears it out: a sender may write what it likes.
#[inline(always)]
fn believed_length<B: Buffer + ?Sized>(frame: &B, offset: usize, stated_bytes: usize) -> usize {
    let stated = offset + stated_bytes;
    if stated_bytes != 0 && stated <= frame.available() {
        return stated;
    }
    let length = frame.length();
    if stated_bytes == 0 || stated > length {
        length
    } else {
        stated
    }
}

#[inline(always)]
fn half(bytes: &[u8; 32], at: usize) -> u64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[at..at + 8]);
    u64::from_ne_bytes(eight)
}

struct Extensions {
    end: usize,
    protocol: u8,
    fragment: Fragment,
}

/// Skips hop-by-hop, routing, destination and fragment headers (RFC 8200 §4).
///
/// A fragment other than the first ends the walk: what follows it is payload.
#[inline(always)]
fn skip_extension_headers<B: Buffer + ?Sized>(
    frame: &B,
    start: usize,
    next_header: u8,
) -> Result<Extensions, PassReason> {
    let mut found = Extensions {
        end: start,
        protocol: next_header,
        fragment: Fragment::Whole,
    };
    for _ in 0..MAX_EXTENSION_HEADERS {
        if !protocol::is_extension(found.protocol) || found.fragment.is_later() {
            return Ok(found);
        }
        let header = frame
            .read::<8>(found.end)
            .ok_or(PassReason::TruncatedIpv6)?;
        if found.protocol == protocol::FRAGMENT {
            let position = u16::from_be_bytes([header[2], header[3]]);
            let identification = u32::from_ne_bytes([header[4], header[5], header[6], header[7]]);
            found.fragment = Fragment::new(identification, position >> 3 != 0, position & 1 != 0);
            found.end += 8;
        } else {
            found.end += (usize::from(header[1]) + 1) * 8;
            // As with IPv4 options: what claims to be longer than the frame is
            // no header to find anything behind.
            frame
                .read::<1>(found.end - 1)
                .ok_or(PassReason::TruncatedIpv6)?;
        }
        found.protocol = header[0];
    }
    if protocol::is_extension(found.protocol) && !found.fragment.is_later() {
        return Err(PassReason::TooManyExtensionHeaders);
    }
    Ok(found)
}

/// EtherTypes (IEEE 802 numbers).
pub(crate) mod ethertype {
    pub(crate) const IPV4: u16 = 0x0800;
    pub(crate) const IPV6: u16 = 0x86dd;
    const VLAN: u16 = 0x8100;
    const SERVICE_VLAN: u16 = 0x88a8;
    /// QinQ as it was sent before 802.1ad.
    const OLD_SERVICE_VLAN: u16 = 0x9100;

    #[inline(always)]
    pub(super) const fn is_vlan(ethertype: u16) -> bool {
        matches!(ethertype, VLAN | SERVICE_VLAN | OLD_SERVICE_VLAN)
    }
}

/// IANA protocol numbers of the transports that are read.
pub mod protocol {
    /// TCP, the transmission control protocol.
    pub const TCP: u8 = 6;
    /// UDP, the user datagram protocol.
    pub const UDP: u8 = 17;
    /// GRE, generic routing encapsulation.
    pub const GRE: u8 = 47;
    /// ESP, the encapsulating security payload.
    pub const ESP: u8 = 50;

    pub(super) const HOP_BY_HOP: u8 = 0;
    pub(super) const ROUTING: u8 = 43;
    pub(crate) const FRAGMENT: u8 = 44;
    pub(super) const DESTINATION: u8 = 60;

    #[inline(always)]
    pub(super) const fn is_extension(protocol: u8) -> bool {
        matches!(protocol, HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION)
    }
}
