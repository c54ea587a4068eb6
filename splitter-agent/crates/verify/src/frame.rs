//! The frames that are put in, and what is recognised of them and of their answers where they pass.

use std::net::IpAddr;

use etherparse::{
    IpDscp, IpHeaders, IpNumber, Ipv4Header, Ipv6Header, LaxNetSlice, LaxSlicedPacket,
    PacketBuilder, PacketBuilderStep, TcpHeader, TransportSlice,
};

/// A flow of probes between two addresses of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) kind: Kind,
}

/// How a flow's packets ask for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// SYN, which any host answers, by SYN-ACK or RST.
    Tcp {
        source_port: u16,
        destination_port: u16,
    },
    /// Echo of ICMP.
    Echo { identifier: u16 },
}

/// The addresses of a frame on the link that it seems to come in by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkAddresses {
    pub(crate) source: [u8; 6],
    pub(crate) destination: [u8; 6],
}

/// A packet of a flow that was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Recognised {
    pub(crate) part: Part,
    /// The probe's number.
    pub(crate) number: u16,
    pub(crate) dscp: u8,
}

/// Tells a probe from its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Probe,
    Answer,
}

/// Any byte; not zeros, which some links compress.
const FILLING: u8 = 0x5a;
/// As most systems start from.
const HOP_LIMIT: u8 = 64;
/// Sequence numbers of TCP are 64 kB apart, so that an answer's acknowledgement tells the probe,
/// whether it counts the payload (RST) or not (SYN-ACK).
const SEQUENCE_SHIFT: u32 = 16;

impl Flow {
    /// Bytes of the headers of a probe, from the IP header on.
    pub(crate) fn header_bytes(&self) -> usize {
        let network = match self.source {
            IpAddr::V4(_) => Ipv4Header::MIN_LEN,
            IpAddr::V6(_) => Ipv6Header::LEN,
        };
        network
            + match self.kind {
                Kind::Tcp { .. } => TcpHeader::MIN_LEN,
                Kind::Echo { .. } => 8,
            }
    }

    /// A probe of `ip_bytes`, headers included, that must not be fragmented; no shorter than its
    /// headers. `None` for what is no packet: two families, or too long.
    pub(crate) fn frame(
        &self,
        link: LinkAddresses,
        number: u16,
        dscp: u8,
        ip_bytes: usize,
    ) -> Option<Vec<u8>> {
        let builder = PacketBuilder::ethernet2(link.source, link.destination).ip(self.ip(dscp)?);
        let payload = vec![FILLING; ip_bytes.saturating_sub(self.header_bytes())];
        match (self.kind, self.source) {
            (
                Kind::Tcp {
                    source_port,
                    destination_port,
                },
                _,
            ) => {
                let sequence = u32::from(number) << SEQUENCE_SHIFT;
                let mut header = TcpHeader::new(source_port, destination_port, sequence, u16::MAX);
                header.syn = true;
                written(builder.tcp_header(header), &payload)
            }
            (Kind::Echo { identifier }, IpAddr::V4(_)) => {
                written(builder.icmpv4_echo_request(identifier, number), &payload)
            }
            (Kind::Echo { identifier }, IpAddr::V6(_)) => {
                written(builder.icmpv6_echo_request(identifier, number), &payload)
            }
        }
    }

    fn ip(&self, dscp: u8) -> Option<IpHeaders> {
        // The transport's builder puts the protocol in.
        let protocol = IpNumber::TCP;
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let header = Ipv4Header {
                    dscp: IpDscp::try_new(dscp).ok()?,
                    dont_fragment: true,
                    time_to_live: HOP_LIMIT,
                    protocol,
                    source: source.octets(),
                    destination: destination.octets(),
                    ..Ipv4Header::default()
                };
                Some(IpHeaders::Ipv4(header, Default::default()))
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let header = Ipv6Header {
                    traffic_class: dscp << 2,
                    hop_limit: HOP_LIMIT,
                    next_header: protocol,
                    source: source.octets(),
                    destination: destination.octets(),
                    ..Ipv6Header::default()
                };
                Some(IpHeaders::Ipv6(header, Default::default()))
            }
            _ => None,
        }
    }

    /// Recognises a probe of this flow or its answer, from the IP header on; the payload may be cut
    /// off.
    pub(crate) fn recognise(&self, packet: &[u8]) -> Option<Recognised> {
        let sliced = LaxSlicedPacket::from_ip(packet).ok()?;
        let (source, destination, dscp) = match sliced.net? {
            LaxNetSlice::Ipv4(it) => {
                let header = it.header();
                let (from, to) = (header.source_addr(), header.destination_addr());
                (from.into(), to.into(), header.dcp())
            }
            LaxNetSlice::Ipv6(it) => {
                let header = it.header();
                let (from, to) = (header.source_addr(), header.destination_addr());
                (from.into(), to.into(), header.dscp())
            }
            LaxNetSlice::Arp(_) => return None,
        };
        let part = match (source, destination) {
            ends if ends == (self.source, self.destination) => Part::Probe,
            ends if ends == (self.destination, self.source) => Part::Answer,
            _ => return None,
        };
        Some(Recognised {
            part,
            number: self.number(part, &sliced.transport?)?,
            dscp: dscp.value(),
        })
    }

    fn number(&self, part: Part, transport: &TransportSlice<'_>) -> Option<u16> {
        match (self.kind, transport) {
            (
                Kind::Tcp {
                    source_port,
                    destination_port,
                },
                TransportSlice::Tcp(tcp),
            ) => {
                let ports = (tcp.source_port(), tcp.destination_port());
                match part {
                    // What the border itself sends, to reject what the far host has accepted, is no SYN.
                    Part::Probe if ports == (source_port, destination_port) && tcp.syn() => {
                        Some((tcp.sequence_number() >> SEQUENCE_SHIFT) as u16)
                    }
                    Part::Answer if ports == (destination_port, source_port) && tcp.ack() => {
                        // The SYN counts as one byte.
                        let acknowledged = tcp.acknowledgment_number().wrapping_sub(1);
                        Some((acknowledged >> SEQUENCE_SHIFT) as u16)
                    }
                    _ => None,
                }
            }
            (Kind::Echo { identifier }, TransportSlice::Icmpv4(icmp)) => {
                let kind = if part == Part::Probe { 8 } else { 0 };
                (icmp.type_u8() == kind)
                    .then(|| echo_number(identifier, icmp.bytes5to8()))
                    .flatten()
            }
            (Kind::Echo { identifier }, TransportSlice::Icmpv6(icmp)) => {
                let kind = if part == Part::Probe { 128 } else { 129 };
                (icmp.type_u8() == kind)
                    .then(|| echo_number(identifier, icmp.bytes5to8()))
                    .flatten()
            }
            _ => None,
        }
    }
}

fn echo_number(identifier: u16, bytes: [u8; 4]) -> Option<u16> {
    let [id_high, id_low, high, low] = bytes;
    (u16::from_be_bytes([id_high, id_low]) == identifier).then_some(u16::from_be_bytes([high, low]))
}

/// A step of the builder that has a transport.
trait Step {
    fn to_vec(self, payload: &[u8]) -> Option<Vec<u8>>;
}

macro_rules! step {
    ($($header:ty),*) => {$(
        impl Step for PacketBuilderStep<$header> {
            fn to_vec(self, payload: &[u8]) -> Option<Vec<u8>> {
                let mut frame = Vec::with_capacity(self.size(payload.len()));
                self.write(&mut frame, payload).ok()?;
                Some(frame)
            }
        }
    )*};
}

step!(
    TcpHeader,
    etherparse::Icmpv4Header,
    etherparse::Icmpv6Header
);

fn written(step: impl Step, payload: &[u8]) -> Option<Vec<u8>> {
    step.to_vec(payload)
}

#[cfg(test)]
mod tests {
    use etherparse::SlicedPacket;

    use super::*;

    const LINK: LinkAddresses = LinkAddresses {
        source: [2, 0, 0, 0, 0, 9],
        destination: [2, 0, 0, 0, 0, 1],
    };
    const TCP: Kind = Kind::Tcp {
        source_port: 40_000,
        destination_port: 9,
    };
    const ECHO: Kind = Kind::Echo { identifier: 77 };

    fn flows() -> Vec<Flow> {
        let ends = [["10.1.1.1", "10.2.1.2"], ["fd00:1::1", "fd00:2::2"]];
        let flow = |[source, destination]: [&str; 2], kind| Flow {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            kind,
        };
        ends.into_iter()
            .flat_map(|it| [flow(it, TCP), flow(it, ECHO)])
            .collect()
    }

    #[test]
    fn probe_has_the_length_the_mark_and_the_number_that_were_asked_for() {
        for flow in flows() {
            for (number, dscp, bytes) in [(0, 0, 60), (7, 2, 1_500), (u16::MAX, 63, 3_000)] {
                let frame = flow.frame(LINK, number, dscp, bytes).unwrap();
                assert_eq!(frame.len(), 14 + bytes, "{flow:?}");
                let expected = Recognised {
                    part: Part::Probe,
                    number,
                    dscp,
                };
                // Also when the payload is cut off.
                for shown in [&frame[14..], &frame[14..14 + flow.header_bytes()]] {
                    assert_eq!(flow.recognise(shown), Some(expected), "{flow:?}");
                }
                let parsed = SlicedPacket::from_ethernet(&frame).unwrap();
                assert!(parsed.transport.is_some());
            }
            let short = flow.frame(LINK, 0, 0, 0).unwrap();
            assert_eq!(short.len(), 14 + flow.header_bytes());
        }
    }

    #[test]
    fn probes_of_ipv4_must_not_be_fragmented() {
        let frame = flows()[0].frame(LINK, 1, 0, 100).unwrap();
        assert_eq!(frame[20] & 0x40, 0x40);
    }

    #[test]
    fn packets_of_another_flow_are_not_recognised() {
        let all = flows();
        for (index, flow) in all.iter().enumerate() {
            let frame = flow.frame(LINK, 3, 0, 100).unwrap();
            for (other_index, other) in all.iter().enumerate() {
                let is_own = index == other_index;
                assert_eq!(other.recognise(&frame[14..]).is_some(), is_own);
            }
            let port = Kind::Tcp {
                source_port: 40_001,
                destination_port: 9,
            };
            let other = Flow {
                kind: port,
                ..*flow
            };
            assert_eq!(other.recognise(&frame[14..]), None);
            assert_eq!(flow.recognise(&frame[20..]), None);
            assert_eq!(flow.recognise(&[]), None);
        }
    }

    /// The answer of a far host, built as the host would.
    fn tcp_answer(flow: &Flow, acknowledgment: u32, rst: bool) -> Vec<u8> {
        let reverse = Flow {
            source: flow.destination,
            destination: flow.source,
            ..*flow
        };
        let mut header = TcpHeader::new(9, 40_000, 1, 0);
        header.ack = true;
        (header.rst, header.syn) = (rst, !rst);
        header.acknowledgment_number = acknowledgment;
        let builder = PacketBuilder::ethernet2(LINK.destination, LINK.source);
        let builder = builder.ip(reverse.ip(0).unwrap()).tcp_header(header);
        written(builder, &[]).unwrap()
    }

    #[test]
    fn answers_tell_the_probe_with_and_without_its_payload() {
        for flow in [flows()[0], flows()[2]] {
            for number in [0_u16, 5, u16::MAX] {
                let sequence = u32::from(number) << 16;
                for (counted, rst) in [(1, false), (1 + 1_460, true), (1, true)] {
                    let answer = tcp_answer(&flow, sequence.wrapping_add(counted), rst);
                    let seen = flow.recognise(&answer[14..]).unwrap();
                    assert_eq!((seen.part, seen.number), (Part::Answer, number));
                }
            }
        }
    }

    #[test]
    fn answer_to_an_echo_is_recognised_and_another_program_s_is_not() {
        for (flow, at, kind) in [(flows()[1], 34, 0), (flows()[3], 54, 129)] {
            let reverse = Flow {
                source: flow.destination,
                destination: flow.source,
                ..flow
            };
            let mut answer = reverse.frame(LINK, 12, 0, 84).unwrap();
            answer[at] = kind;
            let seen = flow.recognise(&answer[14..]).unwrap();
            assert_eq!((seen.part, seen.number), (Part::Answer, 12));
            let kind = Kind::Echo { identifier: 78 };
            assert_eq!(Flow { kind, ..flow }.recognise(&answer[14..]), None);
        }
    }
}
