//! The headers of a frame, read as far as splitting needs them.

use crate::buffer::Buffer;
use crate::config::{PolicyConfig, Protocols};
use crate::dscp::Field;
use crate::flow::FlowKey;
use crate::flow_packet::FlowPacket;
use crate::fragments::{FragmentStore, Fragments};
use crate::packet::{
    Fragment, Network, TransportHeader, ethertype, parse_esp, parse_gre, parse_ipv4, parse_ipv6,
    parse_plain_v4, parse_plain_v6, parse_tcp, parse_udp, protocol, skip_vlan_tags,
};
use crate::pass_reason::PassReason;

/// The headers of a frame that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// The place of its mark, if it is an IP packet.
    pub mark: Option<Field>,
    /// The packet that is to be split, or the reason why none is.
    pub segment: Result<Segment, PassReason>,
}

/// A packet that is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its flow.
    pub key: FlowKey,
    /// The part of it that classification looks at.
    pub packet: FlowPacket,
}

impl Headers {
    /// Reads a frame, whatever it is.
    #[inline(always)]
    pub fn read<B: Buffer + ?Sized, K: FragmentStore + ?Sized>(
        frame: &B,
        config: &PolicyConfig,
        fragments: &Fragments<'_, K>,
    ) -> Self {
        let mut read = Self::without_mark(PassReason::NotIp);
        Self::read_to(frame, config, fragments, |headers| read = headers);
        read
    }

    /// Reads a frame and passes the result on from where each branch ends: what differs between
    /// them need not be brought together, of which the kernel's verifier would find that parts were
    /// never written.
    #[inline(always)]
    pub fn read_to<B: Buffer + ?Sized, K: FragmentStore + ?Sized>(
        frame: &B,
        config: &PolicyConfig,
        fragments: &Fragments<'_, K>,
        emit: impl FnOnce(Self),
    ) {
        match skip_vlan_tags(frame) {
            Ok((ethertype::IPV4, offset)) => {
                let network = parse_ipv4(frame, offset);
                Self::read_transport_to(frame, network, config, fragments, emit);
            }
            Ok((ethertype::IPV6, offset)) => {
                let network = parse_ipv6(frame, offset);
                Self::read_transport_to(frame, network, config, fragments, emit);
            }
            Ok(_) => emit(Self::without_mark(PassReason::NotIp)),
            Err(refusal) => emit(Self::without_mark(refusal)),
        }
    }

    #[inline(always)]
    fn read_transport_to<B: Buffer + ?Sized, K: FragmentStore + ?Sized>(
        frame: &B,
        network: Result<Network, PassReason>,
        config: &PolicyConfig,
        fragments: &Fragments<'_, K>,
        emit: impl FnOnce(Self),
    ) {
        let network = match network {
            Ok(network) => network,
            Err(refusal) => return emit(Self::without_mark(refusal)),
        };
        let packet = Packet {
            network: &network,
            config,
            fragments,
        };
        packet.read(frame, emit);
    }

    /// Reads a plain segment ([`parse_plain_v4`], [`parse_plain_v6`]); whether the
    /// frame is one.
    #[inline(always)]
    pub fn read_plain_to<B: Buffer + ?Sized>(
        frame: &B,
        config: &PolicyConfig,
        emit: impl FnOnce(Self),
    ) -> bool {
        let headers = |network: &Network, header: &TransportHeader| Self {
            mark: Some(Field::of(network)),
            segment: Ok(Segment::new(network, header, config)),
        };
        if let Some((network, header)) = parse_plain_v4(frame) {
            emit(headers(&network, &header));
        } else if let Some((network, header)) = parse_plain_v6(frame) {
            emit(headers(&network, &header));
        } else {
            return false;
        }
        true
    }

    const fn without_mark(refusal: PassReason) -> Self {
        Self {
            mark: None,
            segment: Err(refusal),
        }
    }
}

/// An IP packet whose transport is to be read.
struct Packet<'a, K: ?Sized> {
    network: &'a Network,
    config: &'a PolicyConfig,
    fragments: &'a Fragments<'a, K>,
}

impl<K: FragmentStore + ?Sized> Packet<'_, K> {
    #[inline(always)]
    fn read<B: Buffer + ?Sized>(&self, frame: &B, emit: impl FnOnce(Headers)) {
        let (network, split) = (self.network, self.config.protocols);
        if let Fragment::Later(identification) = network.fragment {
            return match self.fragments.header_of_later(network, identification) {
                Some(header) => emit(self.split(&header)),
                None => emit(self.refused(PassReason::LaterFragment)),
            };
        }
        match network.protocol {
            protocol::TCP => self.conclude(parse_tcp(frame, network), None, emit),
            protocol::UDP => {
                let refusal = refused_unless(split.contain(Protocols::UDP), PassReason::Udp);
                self.conclude(parse_udp(frame, network), refusal, emit);
            }
            protocol::ESP => {
                let refusal = refused_unless(split.contain(Protocols::ESP), PassReason::Esp);
                self.conclude(parse_esp(frame, network), refusal, emit);
            }
            protocol::GRE => {
                let refusal = refused_unless(split.contain(Protocols::GRE), PassReason::Gre);
                self.conclude(parse_gre(frame, network), refusal, emit);
            }
            _ => emit(self.refused(PassReason::OtherProtocol)),
        }
    }

    /// `refusal` says why not to split the packet although its header is right.
    #[inline(always)]
    fn conclude(
        &self,
        header: Result<TransportHeader, PassReason>,
        refusal: Option<PassReason>,
        emit: impl FnOnce(Headers),
    ) {
        match (header, refusal) {
            (Ok(header), None) => {
                if let Fragment::First(identification) = self.network.fragment {
                    self.fragments
                        .note_first(self.network, identification, &header);
                }
                emit(self.split(&header));
            }
            (Ok(_), Some(refusal)) | (Err(refusal), _) => emit(self.refused(refusal)),
        }
    }

    #[inline(always)]
    const fn split(&self, header: &TransportHeader) -> Headers {
        Headers {
            mark: Some(Field::of(self.network)),
            segment: Ok(Segment::new(self.network, header, self.config)),
        }
    }

    #[inline(always)]
    const fn refused(&self, refusal: PassReason) -> Headers {
        Headers {
            mark: Some(Field::of(self.network)),
            segment: Err(refusal),
        }
    }
}

#[inline(always)]
const fn refused_unless(is_split: bool, refusal: PassReason) -> Option<PassReason> {
    if is_split { None } else { Some(refusal) }
}

impl Segment {
    #[inline(always)]
    pub(crate) const fn new(
        network: &Network,
        header: &TransportHeader,
        config: &PolicyConfig,
    ) -> Self {
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
