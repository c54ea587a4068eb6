//! Packets that pass untreated, a path for each reason but a full table, which is an insertion's.

use super::{Path, eager, segment};
use crate::packet::{Extension, Fragment, Ip, Packet, SERVICE_VLAN, Upper, VLAN, link_header};

pub(super) fn paths() -> Vec<Path> {
    let path = |(name, frame): (&str, Vec<u8>)| {
        Path::new(
            format!("passed_{name}"),
            "split",
            eager(),
            &["pass", name],
            move |border| border.measure(&frame),
        )
    };
    let mut paths: Vec<_> = frames().into_iter().map(path).collect();
    let forged = Packet {
        traffic_class: 2 << 2,
        ..with(Upper::udp(5_000))
    };
    let forged = forged.bytes();
    paths.push(Path::new(
        "passed_udp_with_a_long_mark",
        "split",
        eager(),
        &["pass", "udp", "mark overridden", "dscp 4"],
        move |border| border.measure(&forged),
    ));
    paths
}

fn frames() -> Vec<(&'static str, Vec<u8>)> {
    let tcp = segment(Ip::v4(), 1, 0x10, 100).bytes();
    let tcp_v6 = segment(Ip::v6(Vec::new()), 1, 0x10, 100).bytes();
    let with_byte = |frame: &[u8], offset: usize, byte: u8| {
        let mut frame = frame.to_vec();
        frame[offset] = byte;
        frame
    };
    let tags = |number: usize| {
        let tags = [SERVICE_VLAN, VLAN, VLAN];
        Packet {
            tags: tags[..number].to_vec(),
            ..segment(Ip::v4(), 1, 0x10, 100)
        }
    };
    let mut later = segment(Ip::v4(), 1, 0x10, 100);
    if let Ip::V4 { fragment, .. } = &mut later.ip {
        *fragment = Some(Fragment::LATER);
    }
    let chain = vec![Extension::Destination(0); 7];
    let arp = [link_header(&[], 0x0806), vec![0; 28]].concat();
    vec![
        ("truncated_ethernet", tags(1).bytes()[..16].to_vec()),
        ("too_many_vlan_tags", tags(3).bytes()),
        ("not_ip", arp),
        ("truncated_ipv4", tcp[..30].to_vec()),
        ("malformed_ipv4", with_byte(&tcp, 14, 0x41)),
        ("truncated_ipv6", tcp_v6[..50].to_vec()),
        ("malformed_ipv6", with_byte(&tcp_v6, 14, 0x50)),
        (
            "too_many_extension_headers",
            segment(Ip::v6(chain), 1, 0x10, 100).bytes(),
        ),
        ("later_fragment", later.bytes()),
        ("truncated_transport", tcp[..40].to_vec()),
        ("malformed_tcp", with_byte(&tcp, 14 + 20 + 12, 0x40)),
        ("udp", with(Upper::udp(5_000)).bytes()),
        ("esp", with(Upper::Esp(7)).bytes()),
        ("gre", with(Upper::Gre(Some(7))).bytes()),
        ("other_protocol", with(Upper::Icmp).bytes()),
    ]
}

fn with(upper: Upper) -> Packet {
    Packet {
        upper,
        ..segment(Ip::v4(), 1, 0x10, 100)
    }
}
