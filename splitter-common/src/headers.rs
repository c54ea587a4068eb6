//! What the headers of a frame say, as far as splitting goes.

use crate::buffer::Buffer;
use crate::classify::FlowPacket;
use crate::config::{Config, Protocols};
use crate::dscp::Field;
use crate::flow::FlowKey;
use crate::fragments::{Fragments, Known};
use crate::packet::{
    Fragment, Network, Refusal, Transport, TransportHeader, ethertype, parse_ipv4, parse_ipv6,
    protocol, skip_vlan_tags,
};

/// A frame, read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Where its mark is, if it is an IP packet.
    pub mark: Option<Field>,
    /// What of it is to be split, or why nothing is.
    pub segment: Result<Segment, Refusal>,
}

/// A packet that is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its flow.
    pub key: FlowKey,
    /// What counts of it.
    pub packet: FlowPacket,
}

impl Headers {
    /// Reads a frame, whatever it is.
    #[inline(always)]
    pub fn read<B: Buffer + ?Sized, K: Known + ?Sized>(
        frame: &B,
        config: &Config,
        fragments: &Fragments<'_, K>,
    ) -> Self {
        let mut read = Self::without_mark(Refusal::NotIp);
        Self::read_to(frame, config, fragments, |headers| read = headers);
        read
    }

    /// The same, handed on from where each way ends: what differs between them
    /// need not be brought together, of which the kernel's verifier would find
    /// that parts were never written.
    #[inline(always)]
    pub fn read_to<B: Buffer + ?Sized, K: Known + ?Sized>(
        frame: &B,
        config: &Config,
        fragments: &Fragments<'_, K>,
        hand_on: impl FnOnce(Self),
    ) {
        match skip_vlan_tags(frame) {
            Ok((ethertype::IPV4, offset)) => match parse_ipv4(frame, offset) {
                Ok(network) => hand_on(Self::read_transport(frame, &network, config, fragments)),
                Err(refusal) => hand_on(Self::without_mark(refusal)),
            },
            Ok((ethertype::IPV6, offset)) => match parse_ipv6(frame, offset) {
                Ok(network) => hand_on(Self::read_transport(frame, &network, config, fragments)),
                Err(refusal) => hand_on(Self::without_mark(refusal)),
            },
            Ok(_) => hand_on(Self::without_mark(Refusal::NotIp)),
            Err(refusal) => hand_on(Self::without_mark(refusal)),
        }
    }

    #[inline(always)]
    fn read_transport<B: Buffer + ?Sized, K: Known + ?Sized>(
        frame: &B,
        network: &Network,
        config: &Config,
        fragments: &Fragments<'_, K>,
    ) -> Self {
        let header = match network.fragment {
            Fragment::Whole => header_to_split(frame, network, config),
            Fragment::First(identification) => {
                let first = header_to_split(frame, network, config);
                if let Ok(first) = &first {
                    fragments.note_first(network, identification, first);
                }
                first
            }
            Fragment::Later(identification) => fragments
                .header_of_later(network, identification)
                .ok_or(Refusal::LaterFragment),
        };
        Self {
            mark: Some(Field::of(network)),
            segment: header.map(|header| Segment::new(network, &header, config)),
        }
    }

    const fn without_mark(refusal: Refusal) -> Self {
        Self {
            mark: None,
            segment: Err(refusal),
        }
    }
}

/// The transport header, if the packet's protocol is one to split.
#[inline(always)]
fn header_to_split<B: Buffer + ?Sized>(
    frame: &B,
    network: &Network,
    config: &Config,
) -> Result<TransportHeader, Refusal> {
    let split = config.protocols;
    match Transport::parse(frame, network)? {
        Transport::Tcp(header) => Ok(header),
        Transport::Udp(header) if split.contain(Protocols::UDP) => Ok(header),
        Transport::Udp(_) => Err(Refusal::Udp),
        Transport::Esp(header) if split.contain(Protocols::ESP) => Ok(header),
        Transport::Esp(_) => Err(Refusal::Esp),
        Transport::Gre(header) if split.contain(Protocols::GRE) => Ok(header),
        Transport::Gre(_) => Err(Refusal::Gre),
        Transport::Other => Err(Refusal::OtherProtocol),
    }
}

impl Segment {
    #[inline(always)]
    pub(crate) const fn new(network: &Network, header: &TransportHeader, config: &Config) -> Self {
        let bytes = network.frame_bytes as u64;
        // UDP comes in aggregates only where its socket asked for that.
        let packet = if header.protocol == protocol::TCP && network.fragment.is_whole() {
            FlowPacket::new(bytes, header.payload_bytes as u64, header.flags, config)
        } else {
            FlowPacket::single(bytes, header.flags)
        };
        Self {
            key: FlowKey::new(network.addresses, header),
            packet,
        }
    }
}
