//! Transport headers: TCP, UDP, ESP and GRE, and what tells flows apart there.

use super::{Network, PassReason, protocol};
use crate::buffer::Buffer;

pub(super) const TCP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;

/// The part of a transport header that classification looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportHeader {
    /// IANA protocol number.
    pub protocol: u8,
    /// What tells the flow from others of the protocol between the same hosts,
    /// four bytes of the header read natively: source and destination port (TCP,
    /// UDP), the SPI (ESP), the key or call (GRE, 0 without one).
    pub ports: u32,
    /// The flags byte of TCP, otherwise none.
    pub flags: TcpFlags,
    /// Bytes after the header.
    pub payload_bytes: usize,
}

/// The flags byte of a TCP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    /// No flags: the protocol has none.
    pub const NONE: Self = Self(0);
    /// The sender has no more data.
    pub const FIN: u8 = 0x01;
    /// The SYN flag, which opens a connection.
    pub const SYN: u8 = 0x02;
    /// Ends a connection at once.
    pub const RST: u8 = 0x04;

    /// The packet opens a connection in its direction.
    #[inline(always)]
    pub const fn opens(self) -> bool {
        self.0 & Self::SYN != 0
    }

    /// The packet is the last new one of its direction.
    #[inline(always)]
    pub const fn closes(self) -> bool {
        self.0 & (Self::FIN | Self::RST) != 0
    }
}

/// The transport header of a packet, by protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP segments (RFC 9293).
    Tcp(TransportHeader),
    /// UDP, QUIC among it.
    Udp(TransportHeader),
    /// Encapsulating Security Payload (RFC 4303); a flow for each SPI.
    Esp(TransportHeader),
    /// Generic Routing Encapsulation (RFC 2784); a flow for each key (RFC 2890).
    Gre(TransportHeader),
    /// Any other protocol.
    Other,
}

impl Transport {
    /// Reads the transport header that `network` leads to.
    ///
    /// # Errors
    /// The [`PassReason`] that fits; the frame is then to be passed on untreated.
    #[inline(always)]
    pub fn parse<B: Buffer + ?Sized>(frame: &B, network: &Network) -> Result<Self, PassReason> {
        if network.fragment.is_later() {
            return Err(PassReason::LaterFragment);
        }
        match network.protocol {
            protocol::TCP => parse_tcp(frame, network).map(Self::Tcp),
            protocol::UDP => parse_udp(frame, network).map(Self::Udp),
            protocol::ESP => parse_esp(frame, network).map(Self::Esp),
            protocol::GRE => parse_gre(frame, network).map(Self::Gre),
            _ => Ok(Self::Other),
        }
    }
}

#[inline(always)]
pub(crate) fn parse_tcp<B: Buffer + ?Sized>(
    frame: &B,
    network: &Network,
) -> Result<TransportHeader, PassReason> {
    let header = read::<TCP_BYTES, B>(frame, network)?;
    // Apart, so that it is one load.
    let ports = read::<4, B>(frame, network)?;
    let header_bytes = usize::from(header[12] >> 4) * 4;
    let end = network.transport_offset + header_bytes;
    if header_bytes > TCP_BYTES && frame.read::<1>(end - 1).is_none() {
        return Err(PassReason::TruncatedTransport);
    }
    if header_bytes < TCP_BYTES || end > network.frame_bytes {
        return Err(PassReason::MalformedTcp);
    }
    Ok(TransportHeader {
        protocol: protocol::TCP,
        ports: u32::from_ne_bytes(ports),
        flags: TcpFlags(header[13]),
        payload_bytes: network.frame_bytes - end,
    })
}

#[inline(always)]
pub(crate) fn parse_udp<B: Buffer + ?Sized>(
    frame: &B,
    network: &Network,
) -> Result<TransportHeader, PassReason> {
    let header = read::<UDP_BYTES, B>(frame, network)?;
    let ports = [header[0], header[1], header[2], header[3]];
    Ok(without_flags(network, protocol::UDP, ports, UDP_BYTES))
}

#[inline(always)]
pub(crate) fn parse_esp<B: Buffer + ?Sized>(
    frame: &B,
    network: &Network,
) -> Result<TransportHeader, PassReason> {
    let spi = read::<4, B>(frame, network)?;
    Ok(without_flags(network, protocol::ESP, spi, spi.len()))
}

#[inline(always)]
pub(crate) fn parse_gre<B: Buffer + ?Sized>(
    frame: &B,
    network: &Network,
) -> Result<TransportHeader, PassReason> {
    const HEADER_BYTES: usize = 4;
    const CHECKSUM: u8 = 0x80;
    const KEY: u8 = 0x20;
    /// Of PPTP (RFC 2637), where the lower half of the key names the call, and
    /// the upper one is the packet's length.
    const ENHANCED: u8 = 1;
    let [flags, version, ..] = read::<HEADER_BYTES, B>(frame, network)?;
    let mut key = [0; 4];
    if flags & KEY != 0 {
        let checksum_bytes = usize::from(flags & CHECKSUM) / 32;
        let offset = network.transport_offset + HEADER_BYTES + checksum_bytes;
        key = frame.read(offset).ok_or(PassReason::TruncatedTransport)?;
        if version & 7 == ENHANCED {
            key = [0, 0, key[2], key[3]];
        }
    }
    Ok(without_flags(network, protocol::GRE, key, HEADER_BYTES))
}

#[inline(always)]
fn read<const N: usize, B: Buffer + ?Sized>(
    frame: &B,
    network: &Network,
) -> Result<[u8; N], PassReason> {
    frame
        .read(network.transport_offset)
        .ok_or(PassReason::TruncatedTransport)
}

#[inline(always)]
fn without_flags(
    network: &Network,
    protocol: u8,
    ports: [u8; 4],
    header_bytes: usize,
) -> TransportHeader {
    let end = network.transport_offset + header_bytes;
    TransportHeader {
        protocol,
        ports: u32::from_ne_bytes(ports),
        flags: TcpFlags::NONE,
        payload_bytes: network.frame_bytes.saturating_sub(end),
    }
}
