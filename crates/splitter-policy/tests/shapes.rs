//! What is split besides TCP, and fragments: through the whole path of a packet.

#[allow(dead_code, reason = "each test uses a part of it")]
mod support;

use splitter_policy::config::{PolicyConfig, Protocols};
use splitter_policy::counters::FlowEvent;
use splitter_policy::flow::{Class, TunnelRole};
use splitter_policy::pass_reason::PassReason;
use splitter_policy::split::Outcome;
use splitter_policy::thresholds::Thresholds;
use support::host::Host;
use support::packet::{Extension, Fragment, Ip, Packet, Upper};

const THRESHOLD: u64 = 3;
const ALL: Protocols = Protocols::UDP.with(Protocols::ESP).with(Protocols::GRE);
const SHORT: Outcome = Outcome::Split {
    class: Class::Short,
    tunnel: TunnelRole::Short,
};
const LONG: Outcome = Outcome::Split {
    class: Class::Long,
    tunnel: TunnelRole::Long,
};

fn host(protocols: Protocols) -> Host {
    let config = PolicyConfig {
        thresholds: Thresholds::uniform(THRESHOLD),
        drain_margin_ns: 0,
        protocols,
        ..PolicyConfig::default()
    };
    Host::new(config, 64)
}

fn send(host: &mut Host, packet: &Packet) -> Outcome {
    host.now_ns += 1_000_000;
    host.split(&mut packet.bytes())
}

fn packets(upper: &Upper) -> [Packet; 2] {
    [Ip::v4(), Ip::v6(Vec::new())].map(|ip| Packet {
        ip,
        upper: upper.clone(),
        ..Packet::tcp_v4()
    })
}

#[test]
fn each_protocol_is_split_where_it_is_switched_on_and_nowhere_else() {
    let cases = [
        (Upper::udp(1), Protocols::UDP, PassReason::Udp),
        (Upper::Esp(7), Protocols::ESP, PassReason::Esp),
        (Upper::Gre(Some(7)), Protocols::GRE, PassReason::Gre),
        (Upper::Gre(None), Protocols::GRE, PassReason::Gre),
    ];
    for (upper, protocol, refusal) in cases {
        for packet in packets(&upper) {
            let mut off = host(Protocols::NONE);
            assert_eq!(send(&mut off, &packet), Outcome::Passed(refusal));
            let mut on = host(protocol);
            let outcomes: Vec<_> = (0..5).map(|_| send(&mut on, &packet)).collect();
            assert_eq!(outcomes, [SHORT, SHORT, SHORT, LONG, LONG], "{upper:?}");
            assert_eq!(on.counters.events(FlowEvent::Started), 1);
        }
    }
}

/// Between the same hosts: ports, SPI, key or call, and the protocol itself.
#[test]
fn flows_are_told_apart_by_what_their_protocol_has_for_it() {
    let uppers = [
        Upper::tcp(),
        Upper::udp(1),
        Upper::udp(2),
        Upper::Esp(7),
        Upper::Esp(8),
        Upper::Gre(None),
        Upper::Gre(Some(7)),
        Upper::Gre(Some(8)),
        Upper::Call(9),
        Upper::Call(10),
    ];
    let mut host = host(ALL);
    for _ in 0..THRESHOLD {
        for upper in &uppers {
            for packet in packets(upper) {
                assert_eq!(send(&mut host, &packet), SHORT, "{upper:?}");
            }
        }
    }
    let flows = uppers.len() as u64 * 2;
    assert_eq!(host.counters.events(FlowEvent::Started), flows);
}

#[test]
fn a_call_is_one_flow_whatever_the_length_of_its_packets() {
    let mut host = host(ALL);
    let [packet, _] = packets(&Upper::Call(7));
    for payload_bytes in [100, 200, 300] {
        let packet = Packet {
            payload_bytes,
            ..packet.clone()
        };
        assert_eq!(send(&mut host, &packet), SHORT);
    }
    assert_eq!(send(&mut host, &packet), LONG);
}

/// A fragment of the packet with this identification.
fn fragment(ip: &Ip, identification: u32, part: Fragment) -> Packet {
    let part = part.of(identification);
    let ip = match ip.clone() {
        Ip::V4 {
            source,
            destination,
            option_bytes,
            ..
        } => Ip::V4 {
            source,
            destination,
            option_bytes,
            fragment: Some(part),
        },
        Ip::V6 {
            source,
            destination,
            ..
        } => Ip::V6 {
            source,
            destination,
            extensions: vec![Extension::Fragment(part)],
        },
    };
    Packet {
        ip,
        upper: Upper::udp(1),
        ..Packet::tcp_v4()
    }
}

#[test]
fn later_fragments_follow_the_flow_of_the_first() {
    for ip in [Ip::v4(), Ip::v6(Vec::new())] {
        let mut host = host(ALL);
        let first = |id| fragment(&ip, id, Fragment::FIRST);
        let later = |id| fragment(&ip, id, Fragment::LATER);
        // It came before the one with the ports.
        let unknown = Outcome::Passed(PassReason::LaterFragment);
        assert_eq!(send(&mut host, &later(1)), unknown);
        assert_eq!(send(&mut host, &first(1)), SHORT);
        assert_eq!(send(&mut host, &later(1)), SHORT);
        // Of another packet, whose first part went elsewhere.
        assert_eq!(send(&mut host, &later(2)), unknown);
        // Each counts, so that what is sent in fragments turns long like all else.
        assert_eq!(send(&mut host, &later(1)), SHORT);
        assert_eq!(send(&mut host, &later(1)), LONG);
        assert_eq!(send(&mut host, &first(3)), LONG);
        assert_eq!(send(&mut host, &later(3)), LONG);
        assert_eq!(host.counters.events(FlowEvent::Started), 1);
        // An identification comes round again.
        host.now_ns += 40_000_000_000;
        assert_eq!(send(&mut host, &later(3)), unknown);
    }
}

/// With the segment size of a LAN whose TCP sends less in a packet than its UDP does.
#[test]
fn a_large_datagram_is_one_packet() {
    let mut host = host(ALL);
    host.config.segment_bytes = 1_460;
    let [packet, _] = packets(&Upper::udp(1));
    let packet = Packet {
        payload_bytes: 1_472,
        ..packet
    };
    assert_eq!(send(&mut host, &packet), SHORT);
    let counted = host.counters.packets(Class::Short, TunnelRole::Short);
    assert_eq!(counted, 1);
}

#[test]
fn fragments_of_what_is_not_split_are_not_remembered() {
    let mut host = host(Protocols::NONE);
    let first = fragment(&Ip::v4(), 1, Fragment::FIRST);
    let later = fragment(&Ip::v4(), 1, Fragment::LATER);
    assert_eq!(send(&mut host, &first), Outcome::Passed(PassReason::Udp));
    let outcome = send(&mut host, &later);
    assert_eq!(outcome, Outcome::Passed(PassReason::LaterFragment));
}
