//! The parser against the etherparse crate, which was written by others.

use std::net::IpAddr;

use etherparse::{
    IpNumber, IpPayloadSlice, Ipv4Slice, Ipv6ExtensionSlice, Ipv6Slice, LinkExtSlice, NetSlice,
    SlicedPacket, TcpHeaderSlice, UdpHeaderSlice,
};
use splitter_policy::flow::FlowKey;
use splitter_policy::packet::{Fragment, MAX_EXTENSION_HEADERS, MAX_VLAN_TAGS, Network, Transport};
use splitter_policy::pass_reason::PassReason;

/// Panics where the parser and etherparse say different things of a frame.
///
/// Returns whether etherparse had anything to say: it refuses malformed frames,
/// and reads headers (MACsec, AH) that the parser leaves alone.
pub(crate) fn compare(frame: &[u8]) -> bool {
    let Ok(sliced) = SlicedPacket::from_ethernet(frame) else {
        return false;
    };
    let has_macsec = |it: &LinkExtSlice<'_>| matches!(it, LinkExtSlice::Macsec(_));
    if sliced.link_exts.iter().any(has_macsec) {
        return false;
    }
    if sliced.link_exts.len() > MAX_VLAN_TAGS {
        assert_eq!(Network::parse(frame), Err(PassReason::TooManyVlanTags));
        return true;
    }
    match &sliced.net {
        Some(NetSlice::Ipv4(ip)) => compare_v4(frame, ip),
        Some(NetSlice::Ipv6(ip)) => compare_v6(frame, ip),
        Some(NetSlice::Arp(_)) | None => {
            assert_eq!(Network::parse(frame), Err(PassReason::NotIp));
            true
        }
    }
}

fn compare_v4(frame: &[u8], ip: &Ipv4Slice<'_>) -> bool {
    if ip.extensions().auth.is_some() {
        return false;
    }
    let header = ip.header();
    let seen = Seen {
        offset: offset_in(frame, header.slice()),
        traffic_class: header.dcp().value() << 2 | header.ecn().value(),
        addresses: (
            header.source_addr().into(),
            header.destination_addr().into(),
        ),
        fragment: fragment(
            u16::from_ne_bytes(header.identification().to_be_bytes()).into(),
            header.fragments_offset().value(),
            header.more_fragments(),
        ),
        payload: ip.payload(),
    };
    seen.compare(frame);
    true
}

fn compare_v6(frame: &[u8], ip: &Ipv6Slice<'_>) -> bool {
    let (mut count, mut part) = (0, Fragment::Whole);
    for extension in ip.extensions().clone() {
        match extension {
            Ipv6ExtensionSlice::Authentication(_) => return false,
            // Etherparse reads on behind a later fragment's header, where there
            // is the middle of something (RFC 8200 §4.5).
            _ if part.is_later() => return false,
            Ipv6ExtensionSlice::Fragment(it) => {
                let identification = u32::from_ne_bytes(it.identification().to_be_bytes());
                part = fragment(
                    identification,
                    it.fragment_offset().value(),
                    it.more_fragments(),
                );
            }
            _ => {}
        }
        count += 1;
    }
    if count > MAX_EXTENSION_HEADERS {
        assert_eq!(
            Network::parse(frame),
            Err(PassReason::TooManyExtensionHeaders)
        );
        return true;
    }
    let header = ip.header();
    let seen = Seen {
        offset: offset_in(frame, header.slice()),
        traffic_class: header.traffic_class(),
        addresses: (
            header.source_addr().into(),
            header.destination_addr().into(),
        ),
        fragment: part,
        payload: ip.payload(),
    };
    seen.compare(frame);
    true
}

/// What etherparse sees of an IP packet.
struct Seen<'a> {
    offset: usize,
    traffic_class: u8,
    addresses: (IpAddr, IpAddr),
    fragment: Fragment,
    payload: &'a IpPayloadSlice<'a>,
}

impl Seen<'_> {
    fn compare(&self, frame: &[u8]) {
        let network = Network::parse(frame).expect("etherparse accepts it");
        let transport_offset = offset_in(frame, self.payload.payload);
        let end = transport_offset + self.payload.payload.len();
        assert_eq!(network.offset, self.offset);
        assert_eq!(network.transport_offset, transport_offset);
        assert_eq!(network.frame_bytes, end);
        assert_eq!(network.traffic_class, self.traffic_class);
        assert_eq!(network.protocol, self.payload.ip_number.0);
        assert_eq!(network.fragment, self.fragment);
        self.compare_transport(&network, Transport::parse(frame, &network));
    }

    /// Etherparse leaves the transport of first fragments alone; their headers
    /// are read here with its header types.
    fn compare_transport(&self, network: &Network, found: Result<Transport, PassReason>) {
        if self.fragment.is_later() {
            assert_eq!(found, Err(PassReason::LaterFragment));
            return;
        }
        match self.payload.ip_number {
            IpNumber::TCP => self.compare_tcp(network, found),
            // A header that the packet's length cuts short may still be found
            // whole in the frame's padding.
            IpNumber::UDP if UdpHeaderSlice::from_slice(self.payload.payload).is_err() => {}
            IpNumber::UDP => self.compare_udp(network, found),
            // Etherparse knows neither; where too little is left, only padding may
            // be read.
            IpNumber::ENCAPSULATING_SECURITY_PAYLOAD | IpNumber::GRE => {
                let is_ours = matches!(found, Ok(Transport::Esp(_) | Transport::Gre(_)));
                assert!(is_ours || found == Err(PassReason::TruncatedTransport));
            }
            _ => assert_eq!(found, Ok(Transport::Other)),
        }
    }

    fn compare_udp(&self, network: &Network, found: Result<Transport, PassReason>) {
        let payload = self.payload.payload;
        let header = UdpHeaderSlice::from_slice(payload).expect("looked at before");
        let Ok(Transport::Udp(segment)) = found else {
            panic!("etherparse found UDP: {found:?}");
        };
        assert_eq!(segment.payload_bytes, payload.len() - header.slice().len());
        let key = FlowKey::new(network.addresses, &segment);
        let ports = (header.source_port(), header.destination_port());
        assert_eq!(key.ports(), ports);
    }

    fn compare_tcp(&self, network: &Network, found: Result<Transport, PassReason>) {
        let payload = self.payload.payload;
        let Ok(header) = TcpHeaderSlice::from_slice(payload) else {
            found.expect_err("etherparse refuses the TCP header");
            return;
        };
        let Ok(Transport::Tcp(tcp)) = found else {
            panic!("etherparse found TCP: {found:?}");
        };
        assert_eq!(tcp.flags.0, header.slice()[13]);
        assert_eq!(tcp.flags.opens(), header.syn());
        assert_eq!(tcp.flags.closes(), header.fin() || header.rst());
        assert_eq!(tcp.payload_bytes, payload.len() - header.slice().len());

        let key = FlowKey::new(network.addresses, &tcp);
        assert_eq!(key.addresses(), self.addresses);
        assert_eq!(
            key.ports(),
            (header.source_port(), header.destination_port())
        );
    }
}

fn fragment(identification: u32, offset: u16, more_follow: bool) -> Fragment {
    match (offset, more_follow) {
        (0, false) => Fragment::Whole,
        (0, true) => Fragment::First(identification),
        _ => Fragment::Later(identification),
    }
}

/// Where a part of the frame starts.
fn offset_in(frame: &[u8], part: &[u8]) -> usize {
    part.as_ptr() as usize - frame.as_ptr() as usize
}
