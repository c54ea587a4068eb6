//! Packets of flows that are known.

use splitter_policy::config::{Marking, PolicyConfig, Protocols, TunnelUse};
use splitter_policy::fwmark::MarkBits;
use splitter_policy::thresholds::Thresholds;

use super::{FAMILIES, FIN, LONG, Path, SHORT, Segment, eager, ordinary, segment, v4};
use crate::border::Border;
use crate::packet::{Extension, Ip, Packet, Upper, VLAN};

pub(super) fn paths() -> Vec<Path> {
    let mut paths = Vec::new();
    for (family, frame) in FAMILIES {
        paths.extend(plain(family, frame));
    }
    paths.extend(headers());
    paths.extend(changes());
    paths.extend(settings());
    paths
}

fn plain(family: &str, frame: Segment) -> [Path; 4] {
    let marks = PolicyConfig {
        mark_bits: MarkBits::new(0x3f00).expect("one run"),
        ..eager()
    };
    [
        long(format!("known_long_{family}"), frame(1)),
        Path::new(
            format!("known_short_{family}"),
            "split",
            eager(),
            &["pass", "Short on Short", "dscp 4"],
            move |border| {
                border.send_times(&frame(1), SHORT)?;
                border.measure(&frame(1))
            },
        ),
        Path::new(
            format!("mark_known_long_{family}"),
            "mark",
            marks,
            &["next", "Long on Long", "fwmark 0x200"],
            move |border| {
                border.send_times(&frame(1), LONG)?;
                border.measure(&frame(1))
            },
        ),
        Path::new(
            format!("redirect_known_long_{family}"),
            "redirect",
            eager(),
            &[
                "redirect",
                "Long on Long",
                "redirected",
                &format!("left Long {family}"),
                "dscp 2",
                "readdressed",
            ],
            move |border| {
                border.redirect()?;
                border.vouch()?;
                border.send_times(&frame(1), LONG)?;
                border.measure(&frame(1))
            },
        ),
    ]
}

/// A flow whose packets are such frames, and that is long.
fn long(name: impl Into<String>, frame: Vec<u8>) -> Path {
    let does = ["pass", "Long on Long", "dscp 2"];
    Path::new(name, "split", eager(), &does, move |border| {
        border.send_times(&frame, LONG)?;
        border.measure(&frame)
    })
}

/// Headers that the short cut does not read.
fn headers() -> [Path; 4] {
    let plain = segment(Ip::v4(), 1, 0x10, 1_400);
    let tagged = Packet {
        tags: vec![VLAN],
        ..plain.clone()
    };
    let mut with_options = plain.clone();
    if let Ip::V4 { option_bytes, .. } = &mut with_options.ip {
        *option_bytes = 8;
    }
    let extended = Ip::v6(vec![Extension::HopByHop(0), Extension::Destination(0)]);
    let datagram = Packet {
        upper: Upper::udp(50_000),
        ..plain
    };
    let datagram = datagram.bytes();
    [
        long("known_long_v4_vlan", tagged.bytes()),
        long("known_long_v4_options", with_options.bytes()),
        long(
            "known_long_v6_extensions",
            segment(extended, 1, 0x10, 1_400).bytes(),
        ),
        Path::new(
            "known_long_v4_udp",
            "split",
            PolicyConfig {
                protocols: Protocols::UDP,
                ..eager()
            },
            &["pass", "Long on Long", "dscp 2"],
            move |border| {
                border.send_times(&datagram, LONG)?;
                border.measure(&datagram)
            },
        ),
    ]
}

/// Packets with which a flow becomes another than it was.
fn changes() -> Vec<Path> {
    const THRESHOLD: usize = PolicyConfig::DEFAULT_THRESHOLD as usize;
    let becomes_long = |border: &mut Border| {
        border.send_times(&v4(1), THRESHOLD)?;
        border.measure(&v4(1))
    };
    let patient = ordinary();
    let sites = Thresholds::uniform(40).followed_by(1 << 39, [40, 1 << 40]);
    let sites = PolicyConfig {
        thresholds: sites.expect("they fit"),
        ..eager()
    };
    vec![
        Path::new(
            "becomes_long_v4",
            "split",
            eager(),
            &[
                "pass",
                "Long on Long",
                "BecameLong",
                "HandedOverDrained",
                "dscp 2",
            ],
            becomes_long,
        ),
        Path::new(
            "becomes_long_v4_by_site",
            "split",
            sites,
            &[
                "pass",
                "Long on Long",
                "BecameLong",
                "HandedOverDrained",
                "dscp 2",
            ],
            move |border| {
                let index = sites.thresholds.index_of(40);
                border.set_site([10, 0, 0, 0].into(), index)?;
                becomes_long(border)
            },
        ),
        Path::new(
            "waits_to_drain_v4",
            "split",
            patient,
            &["pass", "Long on Short", "dscp 4"],
            |border| {
                border.send_times(&v4(1), THRESHOLD + 2)?;
                border.measure(&v4(1))
            },
        ),
        Path::new(
            "finished_v4",
            "split",
            eager(),
            &["pass", "Short on Short", "Short finished", "dscp 4"],
            |border| {
                border.send_times(&v4(1), SHORT)?;
                border.measure(&segment(Ip::v4(), 1, FIN, 0).bytes())
            },
        ),
        Path::new(
            "restarted_idle_v4",
            "split",
            eager(),
            &["pass", "Short on Short", "RestartedIdle", "dscp 4"],
            |border| {
                border.send_times(&v4(1), LONG)?;
                border.end_flows();
                border.measure(&v4(1))
            },
        ),
    ]
}

fn settings() -> Vec<Path> {
    let shared = PolicyConfig {
        tunnel_use: TunnelUse::SHARED,
        max_wait_ns: 0,
        short_service: super::rated::gigabit(),
        long_service: super::rated::gigabit(),
        ..eager()
    };
    vec![
        Path::new(
            "known_long_v4_shadow",
            "split",
            PolicyConfig {
                marking: Marking::SHADOW,
                ..eager()
            },
            &["pass", "Long on Long"],
            |border| {
                border.send_times(&v4(1), LONG)?;
                border.measure(&v4(1))
            },
        ),
        Path::new(
            "known_short_v4_shared",
            "split",
            shared,
            &["pass", "Short on Short", "dscp 4"],
            |border| {
                border.send_times(&v4(1), SHORT)?;
                border.measure(&v4(1))
            },
        ),
        Path::new(
            "known_long_v4_shared",
            "split",
            shared,
            &["pass", "Long on Short", "dscp 3"],
            |border| {
                border.send_times(&v4(1), LONG)?;
                border.pass_ticks(1);
                border.measure(&v4(1))
            },
        ),
    ]
}
