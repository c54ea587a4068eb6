//! The parser against frames of every shape, whole, cut short and at random.

#[allow(dead_code, reason = "each test uses a part of it")]
mod support;

use std::net::IpAddr;

use proptest::collection::vec;
use proptest::prelude::*;
use splitter_policy::dscp::Dscp;
use splitter_policy::flow::FlowKey;
use splitter_policy::packet::{Network, Transport, TransportHeader};
use splitter_policy::pass_reason::PassReason;
use support::packet::{Extension, Fragment, Ip, Packet, Upper};
use support::shapes::every_shape;
use support::{checks, oracle};

#[test]
fn every_shape_is_seen_as_etherparse_sees_it() {
    for shape in every_shape() {
        let compared = std::panic::catch_unwind(|| oracle::compare(&shape.frame));
        let is_malformed = shape.name == "v4_impossible_header_length";
        assert_eq!(compared.ok(), Some(!is_malformed), "{}", shape.name);
    }
}

#[test]
fn a_frame_cut_anywhere_is_refused_or_read_the_same() {
    for shape in every_shape() {
        check_cuts(&shape.frame, shape.needed_bytes);
    }
}

#[test]
fn each_refusal_is_the_one_that_its_name_says() {
    let expected = [
        ("arp", PassReason::NotIp),
        ("vlan_arp", PassReason::NotIp),
        ("mpls", PassReason::NotIp),
        ("three_tags", PassReason::TooManyVlanTags),
        ("v6_seven_extensions", PassReason::TooManyExtensionHeaders),
        ("v4_impossible_header_length", PassReason::MalformedIpv4),
        ("v4_later_fragment_tcp", PassReason::LaterFragment),
        ("qinq_v6_hop_later_fragment_udp", PassReason::LaterFragment),
    ];
    let shapes = every_shape();
    for (name, refusal) in expected {
        let shape = shapes.iter().find(|shape| shape.name == name);
        let frame = &shape.expect(name).frame;
        let found = Network::parse(frame.as_slice())
            .and_then(|network| Transport::parse(frame.as_slice(), &network));
        assert_eq!(found, Err(refusal), "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn valid_packets_are_seen_as_etherparse_sees_them(packet in packets()) {
        prop_assert!(oracle::compare(&packet.bytes()), "etherparse refuses a valid packet");
    }

    #[test]
    fn valid_packets_are_seen_as_they_were_written(packet in packets()) {
        let frame = packet.bytes();
        let network = Network::parse(frame.as_slice()).expect("valid");
        prop_assert_eq!(network.frame_bytes, frame.len());
        prop_assert_eq!(network.traffic_class, packet.traffic_class);
        let dscp = Dscp::of_traffic_class(network.traffic_class);
        prop_assert_eq!(dscp.value(), packet.traffic_class >> 2);

        let found = Transport::parse(frame.as_slice(), &network);
        let Upper::Tcp { ports, flags, .. } = packet.upper else {
            prop_assert!(!matches!(found, Ok(Transport::Tcp(_))));
            return Ok(());
        };
        if packet.is_later_fragment() {
            prop_assert_eq!(found, Err(PassReason::LaterFragment));
            return Ok(());
        }
        let Ok(Transport::Tcp(tcp)) = found else {
            return Err(TestCaseError::fail(format!("{found:?}")));
        };
        prop_assert_eq!(tcp.payload_bytes, packet.payload_bytes);
        prop_assert_eq!(tcp.flags.0, flags);
        let key = FlowKey::new(network.addresses, &tcp);
        prop_assert_eq!(key.ports(), ports);
        prop_assert_eq!(key.addresses(), addresses(&packet.ip));
    }

    #[test]
    fn valid_packets_cut_anywhere_are_refused_or_read_the_same(packet in packets()) {
        check_cuts(&packet.bytes(), packet.needed_bytes());
    }

    #[test]
    fn padding_behind_a_packet_changes_nothing(packet in packets(), padding in 1usize..60) {
        let mut frame = packet.bytes();
        let whole = checks::parse(frame.as_slice());
        frame.resize(frame.len() + padding, 0xff);
        prop_assert_eq!(checks::parse(frame.as_slice()), whole);
    }

    /// Valid packets with a few bytes changed reach further than bytes at random.
    #[test]
    fn damaged_packets_never_panic(packet in packets(), damage in vec((0usize..120, any::<u8>()), 1..6)) {
        let mut frame = packet.bytes();
        for (at, byte) in damage {
            if let Some(target) = frame.get_mut(at) {
                *target = byte;
            }
        }
        checks::parser(&frame);
    }

    #[test]
    fn arbitrary_bytes_never_panic(frame in vec(any::<u8>(), 0..200)) {
        checks::parser(&frame);
    }

    #[test]
    fn a_mapped_key_names_the_same_flow(packet in packets()) {
        let frame = packet.bytes();
        let Ok((network, Ok(Transport::Tcp(tcp)))) = checks::parse(frame.as_slice()) else {
            return Ok(());
        };
        let key = FlowKey::new(network.addresses, &tcp);
        let mapped = FlowKey::V6(key.as_v6());
        prop_assert_eq!(mapped.ports(), key.ports());
        let (source, destination) = mapped.addresses();
        let canonical = (source.to_canonical(), destination.to_canonical());
        let (source, destination) = key.addresses();
        prop_assert_eq!(canonical, (source.to_canonical(), destination.to_canonical()));
        prop_assert_eq!(mapped.as_v6(), key.as_v6(), "mapping twice changes nothing");
    }
}

/// Every prefix of `frame`: refused up to `needed_bytes`, the same beyond but for
/// the length, which is believed only as far as there are bytes.
fn check_cuts(frame: &[u8], needed_bytes: usize) {
    let whole = checks::parse(frame);
    for length in 0..frame.len() {
        let cut = &frame[..length];
        // A box of its own, so that a read beyond the cut is beyond the memory.
        checks::parser(cut);
        let found = checks::parse(cut);
        if length >= needed_bytes {
            assert_eq!(
                found,
                whole.map(|seen| shortened(seen, length)),
                "{length} of {} bytes",
                frame.len()
            );
        } else {
            let refusal = match found {
                Err(refusal) | Ok((_, Err(refusal))) => refusal,
                Ok(seen) => panic!("{length} of {needed_bytes} needed bytes: {seen:?}"),
            };
            let is_truncation = refusal.name().starts_with("truncated");
            assert!(is_truncation, "{length} of {needed_bytes}: {refusal:?}");
        }
    }
}

/// What was seen of a packet, had its frame only `length` bytes.
fn shortened(
    (network, transport): (Network, Result<Transport, PassReason>),
    length: usize,
) -> (Network, Result<Transport, PassReason>) {
    let missing = network.frame_bytes.saturating_sub(length);
    let network = Network {
        frame_bytes: network.frame_bytes - missing,
        ..network
    };
    let shorter = |segment: TransportHeader| TransportHeader {
        payload_bytes: segment.payload_bytes - missing,
        ..segment
    };
    let transport = transport.map(|transport| match transport {
        Transport::Tcp(segment) => Transport::Tcp(shorter(segment)),
        Transport::Udp(segment) => Transport::Udp(shorter(segment)),
        Transport::Esp(segment) => Transport::Esp(shorter(segment)),
        Transport::Gre(segment) => Transport::Gre(shorter(segment)),
        Transport::Other => Transport::Other,
    });
    (network, transport)
}

fn addresses(ip: &Ip) -> (IpAddr, IpAddr) {
    match *ip {
        Ip::V4 {
            source,
            destination,
            ..
        } => (source.into(), destination.into()),
        Ip::V6 {
            source,
            destination,
            ..
        } => (source.into(), destination.into()),
    }
}

fn packets() -> impl Strategy<Value = Packet> {
    let tags = vec(prop_oneof![Just(0x8100), Just(0x88a8), Just(0x9100)], 0..3);
    let parts = (tags, ips(), any::<u8>(), uppers(), 0usize..64);
    parts.prop_map(|(tags, ip, traffic_class, upper, payload_bytes)| Packet {
        tags,
        ip,
        traffic_class,
        upper,
        payload_bytes,
    })
}

fn ips() -> impl Strategy<Value = Ip> {
    let v4 = (any::<[u8; 4]>(), any::<[u8; 4]>(), 0usize..11, fragments());
    let v6 = (any::<[u8; 16]>(), any::<[u8; 16]>(), extensions());
    prop_oneof![
        v4.prop_map(|(source, destination, words, fragment)| Ip::V4 {
            source,
            destination,
            option_bytes: words * 4,
            fragment,
        }),
        v6.prop_map(|(source, destination, extensions)| Ip::V6 {
            source,
            destination,
            extensions,
        }),
    ]
}

/// Hop-by-hop options may only come first, and a later fragment's header hides
/// what comes behind it; all else in any order.
fn extensions() -> impl Strategy<Value = Vec<Extension>> {
    let middle = prop_oneof![
        (0u8..4).prop_map(Extension::Routing),
        (0u8..4).prop_map(Extension::Destination),
        Just(Extension::Fragment(Fragment::FIRST)),
    ];
    let first = proptest::option::of((0u8..4).prop_map(Extension::HopByHop));
    let parts = (first, vec(middle, 0..5), fragments());
    parts.prop_map(|(first, middle, last)| {
        let last = last.map(Extension::Fragment);
        first.into_iter().chain(middle).chain(last).collect()
    })
}

fn fragments() -> impl Strategy<Value = Option<Fragment>> {
    let parts = (
        prop_oneof![Just(0), 0u16..8_192],
        any::<bool>(),
        any::<u32>(),
    );
    let fragment = parts.prop_map(|(offset, more, identification)| Fragment {
        offset,
        more,
        identification,
    });
    proptest::option::of(fragment)
}

fn uppers() -> impl Strategy<Value = Upper> {
    let tcp = (any::<(u16, u16)>(), any::<u8>(), 0usize..11);
    prop_oneof![
        4 => tcp.prop_map(|(ports, flags, words)| Upper::Tcp {
            ports,
            flags,
            option_bytes: words * 4,
        }),
        1 => any::<(u16, u16)>().prop_map(|ports| Upper::Udp { ports }),
        1 => any::<u32>().prop_map(Upper::Esp),
        1 => any::<Option<u32>>().prop_map(Upper::Gre),
        1 => any::<u16>().prop_map(Upper::Call),
        1 => Just(Upper::Icmp),
    ]
}
