//! One frame of every shape that the parser knows, and of those it refuses.

use super::packet::{Extension, Fragment, Ip, Packet, SERVICE_VLAN, Upper, VLAN, link_header};

/// A frame with the name of its shape.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) name: String,
    pub(crate) frame: Vec<u8>,
    /// How many of its bytes the parser has to see; see [`Packet::needed_bytes`].
    pub(crate) needed_bytes: usize,
    /// Whether it differs from plain TCP in more than one respect.
    is_combined: bool,
}

/// All of them: every tagging with every IP header with every upper header.
pub(crate) fn every_shape() -> Vec<Shape> {
    every_shape_with(0)
}

/// The same with this ToS or traffic class.
pub(crate) fn every_shape_with(traffic_class: u8) -> Vec<Shape> {
    let mut shapes = refused();
    for (tag_name, tags) in taggings() {
        for (ip_name, ip) in ip_headers() {
            for (upper_name, upper) in upper_headers() {
                let differences = [
                    !tags.is_empty(),
                    ip_name != "v4" && ip_name != "v6",
                    upper_name != "tcp",
                ];
                let packet = Packet {
                    tags: tags.clone(),
                    ip: ip.clone(),
                    upper,
                    traffic_class,
                    ..Packet::tcp_v4()
                };
                shapes.push(Shape {
                    name: format!("{tag_name}{ip_name}_{upper_name}"),
                    frame: packet.bytes(),
                    needed_bytes: packet.needed_bytes(),
                    is_combined: differences.iter().filter(|&&differs| differs).count() > 1,
                });
            }
        }
    }
    shapes
}

/// Those that differ from plain TCP in one respect at most.
pub(crate) fn simple_shapes_with(traffic_class: u8) -> Vec<Shape> {
    let mut shapes = every_shape_with(traffic_class);
    shapes.retain(|shape| !shape.is_combined);
    shapes
}

fn taggings() -> [(&'static str, Vec<u16>); 3] {
    [
        ("", vec![]),
        ("vlan_", vec![VLAN]),
        ("qinq_", vec![SERVICE_VLAN, VLAN]),
    ]
}

fn ip_headers() -> Vec<(String, Ip)> {
    let v4 = |option_bytes, fragment| Ip::V4 {
        source: [10, 0, 0, 1],
        destination: [10, 0, 1, 2],
        option_bytes,
        fragment,
    };
    let mut headers = vec![
        ("v4".to_owned(), v4(0, None)),
        ("v4_first_fragment".to_owned(), v4(0, Some(Fragment::FIRST))),
        ("v4_later_fragment".to_owned(), v4(0, Some(Fragment::LATER))),
        (
            "v4_options_4_first_fragment".to_owned(),
            v4(4, Some(Fragment::FIRST)),
        ),
    ];
    headers
        .extend((1..=10).map(|words| (format!("v4_options_{}", words * 4), v4(words * 4, None))));
    headers.extend(extension_chains().map(|(name, chain)| (format!("v6{name}"), Ip::v6(chain))));
    headers
}

/// Every combination in the order of RFC 8200 §4.1, and the special ones.
fn extension_chains() -> impl Iterator<Item = (String, Vec<Extension>)> {
    const KINDS: [(&str, Extension); 4] = [
        ("_hop", Extension::HopByHop(0)),
        ("_routing", Extension::Routing(2)),
        ("_fragment", Extension::Fragment(Fragment::FIRST)),
        ("_destination", Extension::Destination(1)),
    ];
    let combinations = (0..1 << KINDS.len()).map(|chosen| {
        KINDS
            .iter()
            .enumerate()
            .filter(|(index, _)| chosen & (1 << index) != 0)
            .map(|(_, &kind)| kind)
            .unzip()
    });
    let destination = Extension::Destination(0);
    combinations.chain([
        (
            "_destination_routing_destination".to_owned(),
            vec![destination, Extension::Routing(0), destination],
        ),
        (
            "_later_fragment".to_owned(),
            vec![Extension::Fragment(Fragment::LATER)],
        ),
        (
            "_hop_later_fragment".to_owned(),
            vec![Extension::HopByHop(0), Extension::Fragment(Fragment::LATER)],
        ),
        ("_six_extensions".to_owned(), vec![destination; 6]),
    ])
}

fn upper_headers() -> [(&'static str, Upper); 8] {
    [
        ("tcp", Upper::tcp()),
        (
            "tcp_options",
            Upper::Tcp {
                ports: (40_000, 443),
                flags: 0x10,
                option_bytes: 12,
            },
        ),
        (
            "udp",
            Upper::Udp {
                ports: (40_000, 443),
            },
        ),
        ("esp", Upper::Esp(256)),
        ("gre", Upper::Gre(None)),
        ("gre_key", Upper::Gre(Some(7))),
        ("gre_call", Upper::Call(7)),
        ("icmp", Upper::Icmp),
    ]
}

/// What is refused before there is a transport to look at.
fn refused() -> Vec<Shape> {
    const ARP: u16 = 0x0806;
    const IPV4: u16 = 0x0800;
    let shape = |name: &str, headers: Vec<u8>| Shape {
        name: name.to_owned(),
        needed_bytes: headers.len(),
        frame: [headers, vec![0; 28]].concat(),
        is_combined: false,
    };
    let crowded = Packet {
        ip: Ip::v6(vec![Extension::Destination(0); 7]),
        ..Packet::tcp_v6()
    };
    vec![
        shape("arp", link_header(&[], ARP)),
        shape("vlan_arp", link_header(&[VLAN], ARP)),
        shape(
            "three_tags",
            // The third TPID alone tells that there are too many.
            link_header(&[SERVICE_VLAN, VLAN], VLAN),
        ),
        shape("mpls", link_header(&[], 0x8847)),
        Shape {
            name: "v6_seven_extensions".to_owned(),
            // The sixth header names the seventh.
            needed_bytes: 14 + 40 + 6 * 8,
            frame: crowded.bytes(),
            is_combined: false,
        },
        Shape {
            name: "v4_impossible_header_length".to_owned(),
            needed_bytes: 14 + 20,
            frame: [link_header(&[], IPV4), vec![0x44; 20]].concat(),
            is_combined: false,
        },
    ]
}
