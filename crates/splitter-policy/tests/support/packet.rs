//! Frames to order, written with the etherparse crate's headers.

use etherparse::{
    EtherType, Ethernet2Header, IpFragOffset, IpNumber, Ipv4Header, Ipv6FragmentHeader, Ipv6Header,
    Ipv6RawExtHeader, SingleVlanHeader, TcpHeader, UdpHeader, VlanId,
};

/// TPID of 802.1Q.
pub(crate) const VLAN: u16 = 0x8100;
/// TPID of the outer tag of QinQ (802.1ad).
pub(crate) const SERVICE_VLAN: u16 = 0x88a8;

/// What a frame is to hold; [`Packet::bytes`] writes it.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    /// TPIDs of the VLAN tags, the outermost first.
    pub(crate) tags: Vec<u16>,
    /// The IP header and its extensions.
    pub(crate) ip: Ip,
    /// ToS or traffic class.
    pub(crate) traffic_class: u8,
    /// What the IP header leads to.
    pub(crate) upper: Upper,
    /// Bytes after the upper header.
    pub(crate) payload_bytes: usize,
}

#[derive(Clone, Debug)]
pub(crate) enum Ip {
    V4 {
        source: [u8; 4],
        destination: [u8; 4],
        /// A multiple of four, at most 40.
        option_bytes: usize,
        fragment: Option<Fragment>,
    },
    V6 {
        source: [u8; 16],
        destination: [u8; 16],
        extensions: Vec<Extension>,
    },
}

/// Where in its packet a fragment lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    /// In units of eight bytes.
    pub(crate) offset: u16,
    pub(crate) more: bool,
    /// Of the packet; IPv4 has the lower 16 bits.
    pub(crate) identification: u32,
}

impl Fragment {
    pub(crate) const FIRST: Self = Self {
        offset: 0,
        more: true,
        identification: 1,
    };
    pub(crate) const LATER: Self = Self {
        offset: 100,
        more: false,
        identification: 1,
    };

    /// The same of another packet.
    pub(crate) const fn of(self, identification: u32) -> Self {
        Self {
            identification,
            ..self
        }
    }

    fn field(self) -> IpFragOffset {
        IpFragOffset::try_new(self.offset).expect("at most 13 bits")
    }
}

/// An IPv6 extension header; lengths are in units of eight bytes beyond the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extension {
    HopByHop(u8),
    Routing(u8),
    Destination(u8),
    Fragment(Fragment),
}

#[derive(Clone, Debug)]
pub(crate) enum Upper {
    Tcp {
        ports: (u16, u16),
        flags: u8,
        /// A multiple of four, at most 40.
        option_bytes: usize,
    },
    Udp {
        ports: (u16, u16),
    },
    /// With this SPI.
    Esp(u32),
    /// With this key, if any.
    Gre(Option<u32>),
    /// GRE as PPTP uses it, of this call.
    Call(u16),
    Icmp,
}

const ETHERNET_BYTES: usize = 14;
const TAG_BYTES: usize = 4;

impl Packet {
    /// A TCP segment without anything special.
    pub(crate) fn tcp_v4() -> Self {
        Self {
            tags: Vec::new(),
            ip: Ip::v4(),
            traffic_class: 0,
            upper: Upper::tcp(),
            payload_bytes: 20,
        }
    }

    /// The same over IPv6.
    pub(crate) fn tcp_v6() -> Self {
        Self {
            ip: Ip::v6(Vec::new()),
            ..Self::tcp_v4()
        }
    }

    /// The frame.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let upper_header = self.upper_header();
        let carried_bytes = upper_header.len() + self.payload_bytes;
        let mut frame = self.link_header();
        frame.extend(self.ip_header(carried_bytes));
        frame.extend(upper_header);
        frame.extend((0..self.payload_bytes).map(|index| index as u8));
        frame
    }

    /// How many bytes of the frame a parser has to see: up to the end of the
    /// transport header, since where the payload begins is part of the answer.
    pub(crate) fn needed_bytes(&self) -> usize {
        let upper_bytes = match self.upper {
            _ if self.is_later_fragment() => 0,
            Upper::Tcp { .. } | Upper::Udp { .. } | Upper::Gre(_) => self.upper_header().len(),
            // The SPI.
            Upper::Esp(_) => 4,
            // The sequence number behind the key is not looked at.
            Upper::Call(_) => 8,
            Upper::Icmp => 0,
        };
        self.link_header().len() + self.ip_header(0).len() + upper_bytes
    }

    pub(crate) fn is_later_fragment(&self) -> bool {
        let is_later = |fragment: &Fragment| fragment.offset != 0;
        match &self.ip {
            Ip::V4 { fragment, .. } => fragment.as_ref().is_some_and(is_later),
            Ip::V6 { extensions, .. } => extensions.iter().any(
                |extension| matches!(extension, Extension::Fragment(fragment) if is_later(fragment)),
            ),
        }
    }

    fn link_header(&self) -> Vec<u8> {
        let ip_type = match self.ip {
            Ip::V4 { .. } => EtherType::IPV4.0,
            Ip::V6 { .. } => EtherType::IPV6.0,
        };
        link_header(&self.tags, ip_type)
    }

    fn ip_header(&self, carried_bytes: usize) -> Vec<u8> {
        match &self.ip {
            Ip::V4 {
                source,
                destination,
                option_bytes,
                fragment,
            } => {
                let mut header = Ipv4Header::new(0, 64, self.protocol(), *source, *destination)
                    .expect("no payload yet");
                // Option kind 1 is padding.
                let options = vec![1; *option_bytes];
                header.options = options.as_slice().try_into().expect("fits");
                header.set_payload_len(carried_bytes).expect("fits");
                if let Some(fragment) = fragment {
                    header.dont_fragment = false;
                    header.more_fragments = fragment.more;
                    header.fragment_offset = fragment.field();
                    header.identification = fragment.identification as u16;
                }
                header.dscp = (self.traffic_class >> 2).try_into().expect("six bits");
                header.ecn = (self.traffic_class & 3).try_into().expect("two bits");
                header.header_checksum = header.calc_header_checksum();
                header.to_bytes().to_vec()
            }
            Ip::V6 {
                source,
                destination,
                extensions,
            } => {
                let (first, extensions) = chain(extensions, self.protocol());
                let header = Ipv6Header {
                    traffic_class: self.traffic_class,
                    payload_length: u16::try_from(extensions.len() + carried_bytes).expect("fits"),
                    next_header: first,
                    hop_limit: 64,
                    source: *source,
                    destination: *destination,
                    ..Ipv6Header::default()
                };
                [&header.to_bytes()[..], &extensions].concat()
            }
        }
    }

    fn protocol(&self) -> IpNumber {
        match (&self.upper, &self.ip) {
            (Upper::Tcp { .. }, _) => IpNumber::TCP,
            (Upper::Udp { .. }, _) => IpNumber::UDP,
            (Upper::Esp(_), _) => IpNumber::ENCAPSULATING_SECURITY_PAYLOAD,
            (Upper::Gre(_) | Upper::Call(_), _) => IpNumber::GRE,
            (Upper::Icmp, Ip::V4 { .. }) => IpNumber::ICMP,
            (Upper::Icmp, Ip::V6 { .. }) => IpNumber::IPV6_ICMP,
        }
    }

    /// Nothing in a later fragment, whose payload is the middle of something.
    fn upper_header(&self) -> Vec<u8> {
        match self.upper {
            _ if self.is_later_fragment() => Vec::new(),
            Upper::Tcp {
                ports,
                flags,
                option_bytes,
            } => {
                let mut header = TcpHeader::new(ports.0, ports.1, 1, 1_000);
                header
                    .set_options_raw(&vec![1; option_bytes])
                    .expect("fits");
                let mut bytes = header.to_bytes().to_vec();
                bytes[13] = flags;
                bytes
            }
            Upper::Udp { ports } => UdpHeader {
                source_port: ports.0,
                destination_port: ports.1,
                length: u16::try_from(8 + self.payload_bytes).expect("fits"),
                checksum: 0,
            }
            .to_bytes()
            .to_vec(),
            Upper::Esp(spi) => [spi.to_be_bytes(), [0, 0, 0, 1]].concat(),
            // GRE of version 0 that carries IPv4.
            Upper::Gre(None) => vec![0, 0, 8, 0],
            Upper::Gre(Some(key)) => [[0x20, 0, 8, 0], key.to_be_bytes()].concat(),
            // Version 1 with a sequence number, carries PPP (RFC 2637 §4.1).
            Upper::Call(call) => {
                let length = u16::try_from(self.payload_bytes).expect("fits");
                let key = [length.to_be_bytes(), call.to_be_bytes()].concat();
                [&[0x30, 1, 0x88, 0x0b][..], &key, &[0, 0, 0, 1]].concat()
            }
            // An echo request of ICMP, nothing known of ICMPv6.
            Upper::Icmp => vec![8, 0, 0, 0, 0, 1, 0, 1],
        }
    }
}

impl Ip {
    pub(crate) fn v4() -> Self {
        Self::V4 {
            source: [10, 0, 0, 1],
            destination: [10, 0, 1, 2],
            option_bytes: 0,
            fragment: None,
        }
    }

    pub(crate) fn v6(extensions: Vec<Extension>) -> Self {
        Self::V6 {
            source: std::array::from_fn(|index| 0x20 + index as u8),
            destination: std::array::from_fn(|index| 0xe0 - index as u8),
            extensions,
        }
    }
}

impl Upper {
    /// To the same server from this port.
    pub(crate) fn udp(port: u16) -> Self {
        Self::Udp { ports: (port, 443) }
    }

    /// A segment in the middle of a connection.
    pub(crate) fn tcp() -> Self {
        Self::Tcp {
            ports: (40_000, 443),
            flags: 0x10,
            option_bytes: 0,
        }
    }
}

/// An Ethernet header with the given tags.
pub(crate) fn link_header(tags: &[u16], carried: u16) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(ETHERNET_BYTES + tags.len() * TAG_BYTES);
    let mut types = tags.iter().copied().chain([carried]).map(EtherType);
    let mut next = || types.next().expect("one more than tags");
    let ethernet = Ethernet2Header {
        source: [2; 6],
        destination: [4; 6],
        ether_type: next(),
    };
    bytes.extend(ethernet.to_bytes());
    for _ in tags {
        let tag = SingleVlanHeader {
            vlan_id: VlanId::try_new(7).expect("twelve bits"),
            ether_type: next(),
            ..SingleVlanHeader::default()
        };
        bytes.extend(tag.to_bytes());
    }
    bytes
}

/// The extension headers, and the protocol number of the first.
fn chain(extensions: &[Extension], last: IpNumber) -> (IpNumber, Vec<u8>) {
    extensions
        .iter()
        .rev()
        .fold((last, Vec::new()), |(next, behind), extension| {
            let (number, mut bytes) = extension.header(next);
            bytes.extend(behind);
            (number, bytes)
        })
}

impl Extension {
    fn header(self, next: IpNumber) -> (IpNumber, Vec<u8>) {
        let raw = |units: u8| {
            let content = vec![0; 6 + 8 * usize::from(units)];
            let header =
                Ipv6RawExtHeader::new_raw(next, &content).expect("a whole number of units");
            header.to_bytes().to_vec()
        };
        match self {
            Self::HopByHop(units) => (IpNumber::IPV6_HEADER_HOP_BY_HOP, raw(units)),
            Self::Routing(units) => (IpNumber::IPV6_ROUTE_HEADER, raw(units)),
            Self::Destination(units) => (IpNumber::IPV6_DESTINATION_OPTIONS, raw(units)),
            Self::Fragment(fragment) => {
                let header = Ipv6FragmentHeader::new(
                    next,
                    fragment.field(),
                    fragment.more,
                    fragment.identification,
                );
                (
                    IpNumber::IPV6_FRAGMENTATION_HEADER,
                    header.to_bytes().to_vec(),
                )
            }
        }
    }
}
