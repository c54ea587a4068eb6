//! What the headers of a frame say, as far as splitting goes.

use crate::buffer::Buffer;
use crate::classify::FlowPacket;
use crate::config::Config;
use crate::dscp::Field;
use crate::flow::FlowKey;
use crate::packet::{
    Network, Refusal, Tcp, Transport, ethertype, parse_ipv4, parse_ipv6, skip_vlan_tags,
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
    pub fn read<B: Buffer + ?Sized>(frame: &B, config: &Config) -> Self {
        let mut read = Self::without_mark(Refusal::NotIp);
        Self::read_to(frame, config, |headers| read = headers);
        read
    }

    /// The same, handed on from where each way ends: what differs between them
    /// need not be brought together, of which the kernel's verifier would find
    /// that parts were never written.
    #[inline(always)]
    pub fn read_to<B: Buffer + ?Sized>(frame: &B, config: &Config, hand_on: impl FnOnce(Self)) {
        match skip_vlan_tags(frame) {
            Ok((ethertype::IPV4, offset)) => match parse_ipv4(frame, offset) {
                Ok(network) => Self::read_transport(frame, &network, config, hand_on),
                Err(refusal) => hand_on(Self::without_mark(refusal)),
            },
            Ok((ethertype::IPV6, offset)) => match parse_ipv6(frame, offset) {
                Ok(network) => Self::read_transport(frame, &network, config, hand_on),
                Err(refusal) => hand_on(Self::without_mark(refusal)),
            },
            Ok(_) => hand_on(Self::without_mark(Refusal::NotIp)),
            Err(refusal) => hand_on(Self::without_mark(refusal)),
        }
    }

    #[inline(always)]
    fn read_transport<B: Buffer + ?Sized>(
        frame: &B,
        network: &Network,
        config: &Config,
        hand_on: impl FnOnce(Self),
    ) {
        let mark = Some(Field::of(network));
        let refusal = match Transport::parse(frame, network) {
            Ok(Transport::Tcp(tcp)) => {
                let segment = Ok(Segment::new(network, &tcp, config));
                return hand_on(Self { mark, segment });
            }
            Ok(Transport::Udp) => Refusal::Udp,
            Ok(Transport::Esp) => Refusal::Esp,
            Ok(Transport::Gre) => Refusal::Gre,
            Ok(Transport::Other) => Refusal::OtherProtocol,
            Err(refusal) => refusal,
        };
        hand_on(Self {
            mark,
            segment: Err(refusal),
        });
    }

    const fn without_mark(refusal: Refusal) -> Self {
        Self {
            mark: None,
            segment: Err(refusal),
        }
    }
}

impl Segment {
    #[inline(always)]
    pub(crate) const fn new(network: &Network, tcp: &Tcp, config: &Config) -> Self {
        let (bytes, payload_bytes) = (network.frame_bytes as u64, tcp.payload_bytes as u64);
        Self {
            key: FlowKey::tcp(network.addresses, tcp),
            packet: FlowPacket::new(bytes, payload_bytes, tcp.flags, config),
        }
    }
}
