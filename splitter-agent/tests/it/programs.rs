//! The kernel programs as they ship, run by the kernel (`BPF_PROG_TEST_RUN`)
//! next to the same policy on the host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU32;

use crate::policy as support;
use crate::support::borders;
use crate::support::loaded;
use borders::{Borders, TABLE_SIZE};
use flow_balance::ServiceTime;
use flow_testbed::require;
use flow_testbed::require::Requirement::Root;
use loaded::Loaded;
use splitter_config::PacketLog;
use splitter_datapath::{Object, PROGRAM};
use splitter_policy::config::{PolicyConfig, TunnelUse, Unit};
use splitter_policy::counters::FlowEvent;
use splitter_policy::dscp::Dscp;
use splitter_policy::flow::{Class, FlowKey, TunnelRole};
use splitter_policy::packet::{Network, TcpFlags, Transport};
use splitter_policy::packet_selection::{PacketSelection, SegmentNumbers};
use splitter_policy::pass_reason::PassReason;
use splitter_policy::split::Outcome;
use splitter_policy::thresholds::Thresholds;
use support::packet::{Ip, Packet, Upper};
use support::shapes::{every_shape, every_shape_with};

/// What the kernel wants of a frame to run a program on it.
const SHORTEST_FRAME: usize = 14;

/// Flows change tunnels as soon as they are long, so that the times of the two
/// borders' clocks, which differ, decide nothing.
fn eager() -> PolicyConfig {
    PolicyConfig {
        drain_margin_ns: 0,
        ..PolicyConfig::default()
    }
}

#[test]
fn every_shape_comes_out_as_on_the_host() {
    require!(Root);
    let mut borders = Borders::new(eager());
    send_every_shape(&mut borders);
    borders.compare();
    // Not vacuous: both families were split and most refusals met.
    assert_eq!(borders.host.flows().len(), 2);
    let met = |reason: &&PassReason| borders.host.counters.passed(**reason) > 0;
    assert_eq!(PassReason::ALL.iter().filter(met).count(), 9);
}

#[test]
fn every_shape_comes_out_of_the_logging_build_as_on_the_host() {
    require!(Root);
    let mut borders = Borders::with_log(PacketLog::Trace, eager());
    send_every_shape(&mut borders);
    borders.compare();
}

#[test]
fn every_shape_comes_out_as_on_the_host_with_marks_for_legacy_rules() {
    require!(Root);
    let mut borders = Borders::new(PolicyConfig {
        match_mask: Dscp::LEGACY_BITS,
        unit: Unit::BYTES,
        thresholds: Thresholds::uniform(3_000),
        ..eager()
    });
    send_every_shape(&mut borders);
    borders.compare();
}

/// Unmarked, with either mark under each ECN codepoint, and expedited.
fn send_every_shape(borders: &mut Borders) {
    for traffic_class in [0x00, 0x09, 0x12, 0x28, 0xbb] {
        for shape in every_shape_with(traffic_class) {
            borders.split(&shape.frame, &shape.name);
        }
    }
}

#[test]
fn a_truncated_frame_passes_unchanged() {
    require!(Root);
    for level in [PacketLog::Off, PacketLog::Trace] {
        let mut borders = Borders::with_log(level, eager());
        for shape in every_shape() {
            for length in SHORTEST_FRAME..shape.frame.len() {
                let cut = &shape.frame[..length];
                let (outcome, passed) = borders.split(cut, &shape.name);
                if length < shape.needed_bytes {
                    assert_eq!(passed, cut, "{} of {length} bytes", shape.name);
                    assert!(matches!(outcome, Outcome::Passed(_)), "{}", shape.name);
                }
            }
        }
        borders.compare();
    }
}

#[test]
fn every_shape_comes_out_as_on_the_host_where_tunnels_are_shared() {
    require!(Root);
    let service = ServiceTime::from_bits_per_second(100_000_000);
    let mut borders = Borders::new(PolicyConfig {
        tunnel_use: TunnelUse::SHARED,
        thresholds: Thresholds::uniform(3),
        // Neither clock lets a flow wait: it is placed with its first long packet.
        max_wait_ns: 0,
        short_service: service,
        long_service: service,
        ..eager()
    });
    send_every_shape(&mut borders);
    borders.compare();
    let counters = borders.kernel.counters();
    let placed = [
        FlowEvent::KeptTunnel,
        FlowEvent::HandedOverDrained,
        FlowEvent::KeptTunnelAtMaxWait,
    ];
    let placed: u64 = placed.into_iter().map(|event| counters.events(event)).sum();
    assert_eq!(placed, 2, "one flow of each family");
}

#[test]
fn flow_goes_by_the_threshold_of_its_site_in_the_kernel_as_on_the_host() {
    require!(Root);
    let thresholds = Thresholds::uniform(40).followed_by(40, [9, 50]);
    let thresholds = thresholds.expect("they fit");
    let mut borders = Borders::new(PolicyConfig {
        thresholds,
        ..eager()
    });
    let [low, high] = [9, 50].map(|it| thresholds.index_of(it));
    // The longest prefix decides, and no IPv4 address lies in one of IPv6.
    let packets = [Packet::tcp_v4(), Packet::tcp_v6()];
    let [v4, v6] = packets.each_ref().map(destination);
    borders.kernel.set_sites(&[
        (v4, 8, high),
        (v4, 24, low),
        (Ipv6Addr::UNSPECIFIED.into(), 0, low),
        (v6, 64, high),
    ]);
    let other = Packet {
        ip: Ip::v4(),
        upper: Upper::tcp(),
        ..Packet::tcp_v4()
    };
    let elsewhere = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(10, 9, 9, 9)];
    let [nowhere, wider] = elsewhere.map(|to| readdressed(&other, to));
    for (address, index) in [(v4, low), (v6, high), (elsewhere[1].into(), high)] {
        borders.host.set_threshold_of(address, index);
    }
    let cases = [
        (packets[0].bytes(), 10),
        (packets[1].bytes(), 51),
        (nowhere, 41),
        (wider, 51),
    ];
    for (frame, first_long) in cases {
        let mut outcomes = (1..=60).map(|it| (it, borders.split(&frame, "flow").0));
        let is_long = |(_, it): &(i32, Outcome)| {
            matches!(
                it,
                Outcome::Split {
                    class: Class::Long,
                    ..
                }
            )
        };
        assert_eq!(outcomes.find(is_long).map(|it| it.0), Some(first_long));
    }
    borders.compare();
}

/// Where a packet goes.
fn destination(packet: &Packet) -> IpAddr {
    match &packet.ip {
        Ip::V4 { destination, .. } => (*destination).into(),
        Ip::V6 { destination, .. } => (*destination).into(),
    }
}

/// An IPv4 packet to another address.
fn readdressed(packet: &Packet, to: Ipv4Addr) -> Vec<u8> {
    let mut packet = packet.clone();
    if let Ip::V4 { destination, .. } = &mut packet.ip {
        *destination = to.octets();
    }
    packet.bytes()
}

#[test]
fn packet_forty_one_is_the_first_that_is_marked_long() {
    require!(Root);
    for packet in [Packet::tcp_v4(), Packet::tcp_v6()] {
        let mut borders = Borders::new(eager());
        let frame = packet.bytes();
        for number in 1..=60 {
            let (outcome, marked) = borders.split(&frame, "flow");
            let (class, tunnel, mark) = if number <= 40 {
                (
                    Class::Short,
                    TunnelRole::Short,
                    PolicyConfig::DEFAULT_SHORT_MARK,
                )
            } else {
                (
                    Class::Long,
                    TunnelRole::Long,
                    PolicyConfig::DEFAULT_LONG_MARK,
                )
            };
            assert_eq!(outcome, Outcome::Split { class, tunnel }, "packet {number}");
            assert_eq!(dscp(&marked), mark, "packet {number}");
        }
        borders.compare();
        let counters = borders.kernel.counters();
        assert_eq!(counters.events(FlowEvent::BecameLong), 1);
        assert_eq!(counters.events(FlowEvent::HandedOverDrained), 1);
    }
}

#[test]
fn a_long_flow_stays_in_the_short_tunnel_until_the_guard_has_passed() {
    require!(Root);
    let patient = PolicyConfig {
        drain_margin_ns: 3_600_000_000_000,
        max_wait_ns: 3_600_000_000_000,
        ..PolicyConfig::default()
    };
    let mut borders = Borders::new(patient);
    let frame = Packet::tcp_v4().bytes();
    for _ in 0..60 {
        let (_, marked) = borders.split(&frame, "flow");
        assert_eq!(dscp(&marked), PolicyConfig::DEFAULT_SHORT_MARK);
    }
    let held = borders.kernel.counters();
    assert_eq!(held.packets(Class::Long, TunnelRole::Short), 20);

    // The settings are read again for each packet.
    let no_cap = PolicyConfig {
        max_wait_ns: 0,
        ..patient
    };
    borders.kernel.set(no_cap);
    borders.host.config = no_cap;
    let (_, marked) = borders.split(&frame, "flow");
    assert_eq!(dscp(&marked), PolicyConfig::DEFAULT_LONG_MARK);
    assert_eq!(
        borders
            .kernel
            .counters()
            .events(FlowEvent::HandedOverAtMaxWait),
        1
    );
    borders.compare();
}

#[test]
fn a_flow_ends_with_fin_and_starts_afresh_with_syn() {
    require!(Root);
    let mut borders = Borders::new(eager());
    for flags in [TcpFlags::SYN, 0x10, TcpFlags::FIN | 0x10, TcpFlags::SYN] {
        let mut packet = Packet::tcp_v4();
        packet.upper = Upper::Tcp {
            ports: (1, 2),
            flags,
            option_bytes: 0,
        };
        borders.split(&packet.bytes(), "flow");
    }
    borders.compare();
    let counters = borders.kernel.counters();
    assert_eq!(counters.finished(Class::Short), 1);
    assert_eq!(counters.events(FlowEvent::RestartedSyn), 1);
    let took_ns = counters.completion(Class::Short).sum_ns;
    assert!(
        (1..1_000_000_000).contains(&took_ns),
        "three packets took {took_ns} ns"
    );
}

#[test]
fn a_forged_long_mark_is_overridden() {
    require!(Root);
    let mut borders = Borders::new(eager());
    let forged = PolicyConfig::DEFAULT_LONG_MARK.value() << 2 | 0b01;
    let mut overridden = 0;
    for shape in every_shape_with(forged) {
        let before = borders.host.counters.marks_overridden;
        let (outcome, marked) = borders.split(&shape.frame, &shape.name);
        let Ok(network) = Network::parse(marked.as_slice()) else {
            continue;
        };
        if matches!(outcome, Outcome::Passed(_)) {
            let short = PolicyConfig::DEFAULT_SHORT_MARK.applied_to(forged);
            assert_eq!(network.traffic_class, short, "{}", shape.name);
            assert_eq!(borders.host.counters.marks_overridden, before + 1);
            overridden += 1;
        }
    }
    assert!(overridden > 300, "of all that is not TCP: {overridden}");
    assert_eq!(borders.kernel.counters().marks_overridden, overridden);
    borders.compare();
}

/// The benchmark does the same with ten million and ten thousand.
#[test]
fn a_flood_of_new_flows_leaves_long_ones_as_they_are() {
    require!(Root);
    const LONG: u32 = 100;
    const FLOOD: u32 = 100_000;
    let object = Object::for_level(PacketLog::Off).expect("is embedded");
    let mut kernel = Loaded::new(object.bytes(), TABLE_SIZE);
    kernel.load_xdp(PROGRAM);
    kernel.set(eager());
    let long: Vec<_> = (0..LONG).map(|number| flow(0x0a00_0000 + number)).collect();
    for frame in &long {
        kernel.run_xdp(PROGRAM, frame, None, 60);
    }
    for number in 0..FLOOD {
        // From anywhere; with every 1,000 of them a short flow of ten packets.
        let host = number.wrapping_mul(0x9e37_79b1) | 1 << 31;
        kernel.run_xdp(PROGRAM, &flow(host), None, 1);
        if number % 1_000 == 0 {
            let frame = flow(number | 1 << 30);
            let mut marked = vec![0; frame.len()];
            kernel.run_xdp(PROGRAM, &frame, Some(&mut marked), 10);
            assert_eq!(dscp(&marked), PolicyConfig::DEFAULT_SHORT_MARK);
        }
    }
    let kept = long.iter().filter(|frame| {
        let mut marked = vec![0; frame.len()];
        kernel.run_xdp(PROGRAM, frame, Some(&mut marked), 1);
        let entry = kernel.flow(&key(frame));
        dscp(&marked) == PolicyConfig::DEFAULT_LONG_MARK && entry.is_some_and(|it| it.packets == 61)
    });
    assert!(kept.count() as u32 >= LONG * 99 / 100);
    let counters = kernel.counters();
    let untracked = counters.passed(PassReason::TableFull);
    assert!(untracked < u64::from(FLOOD) / 100, "{untracked}");
    assert!(counters.events(FlowEvent::Evicted) > 0);
}

/// A segment of 20 bytes from a host.
fn flow(host: u32) -> Vec<u8> {
    let mut packet = Packet::tcp_v4();
    if let Ip::V4 { source, .. } = &mut packet.ip {
        *source = host.to_be_bytes();
    }
    packet.bytes()
}

/// As a driver with LRO hands it over: headers in the linear part, the rest of
/// the 64 KiB in fragments.
#[test]
fn an_aggregate_in_many_buffers_counts_as_its_segments() {
    require!(Root);
    let mut borders = Borders::new(PolicyConfig {
        segment_bytes: 1_460,
        ..eager()
    });
    let mut aggregate = Packet::tcp_v4();
    aggregate.payload_bytes = 65_535 - 40;
    let (outcome, marked) = borders.split(&aggregate.bytes(), "aggregate");
    let (class, tunnel) = (Class::Long, TunnelRole::Long);
    assert_eq!(outcome, Outcome::Split { class, tunnel });
    assert_eq!(dscp(&marked), PolicyConfig::DEFAULT_LONG_MARK);
    assert_eq!(borders.kernel.counters().packets(class, tunnel), 45);
    assert_eq!(borders.kernel.counters().bytes(class, tunnel), 65_549);
    borders.compare();
}

#[test]
fn the_tap_notes_tcp_flows_and_lets_everything_go_on() {
    require!(Root);
    const TCX_NEXT: u32 = -1i32 as u32;
    let object = Object::for_level(PacketLog::Off).expect("is embedded");
    let mut kernel = Loaded::new(object.bytes(), TABLE_SIZE);
    kernel.load_classifier("tap");
    for packet in [Packet::tcp_v4(), Packet::tcp_v6()] {
        let frame = packet.bytes();
        for _ in 0..3 {
            let run = kernel.run_classifier("tap", &frame);
            assert_eq!(run.return_value, TCX_NEXT);
        }
        let noted = kernel.tapped(&key(&frame)).expect("was seen");
        assert_eq!((noted.packets, noted.bytes), (3, 3 * frame.len() as u64));
        assert!(noted.first_ns > 0 && noted.last_ns > noted.first_ns);
    }
    for shape in every_shape() {
        let run = kernel.run_classifier("tap", &shape.frame);
        assert_eq!(run.return_value, TCX_NEXT, "{}", shape.name);
    }
}

#[test]
fn the_tap_times_packets_by_what_does_not_change_on_the_way() {
    require!(Root);
    let object = Object::for_level(PacketLog::Off).expect("is embedded");
    let all = PacketSelection::one_in(NonZeroU32::MIN, [1, 2]);
    let mut kernel = Loaded::with_packets(object.bytes(), all, 4);
    kernel.load_classifier("tap");
    let digest = |frame: &[u8]| {
        let network = Network::parse(frame).expect("an IP packet");
        let numbers = SegmentNumbers::read(frame, &network).expect("a TCP segment");
        all.select(&key(frame).as_v6(), &numbers).expect("all are")
    };
    for (place, packet) in [Packet::tcp_v4(), Packet::tcp_v6()].into_iter().enumerate() {
        let sent = packet.bytes();
        kernel.run_classifier("tap", &sent);
        // As it arrives: with another mark, and a hop limit that has been counted down.
        let marked = Packet {
            traffic_class: packet.traffic_class ^ 0b1011_1000,
            ..packet
        };
        let mut arrived = marked.bytes();
        let hop_limit = if place == 0 { 22 } else { 21 };
        arrived[hop_limit] -= 3;
        kernel.run_classifier("tap", &arrived);
        let (selected, noted) = kernel.packets();
        assert_eq!(selected, 2 * (place as u64 + 1));
        let [one, other] = [noted[2 * place], noted[2 * place + 1]];
        assert_eq!([one.digest, other.digest], [digest(&sent); 2]);
        assert_eq!([one.flow, other.flow], [key(&sent).as_v6(); 2]);
        assert!(one.at_ns < other.at_ns);
        let classes = [one, other].map(|it| it.traffic_class as u8);
        assert_eq!(classes, [packet.traffic_class, marked.traffic_class]);
    }
    // What there is no place for is counted, and no place is used twice.
    let before = kernel.packets().1;
    let next = flow(7);
    kernel.run_classifier("tap", &next);
    assert_eq!(kernel.packets(), (5, before));
    assert!(kernel.tapped(&key(&next)).is_some());
    const TCX_NEXT: u32 = -1i32 as u32;
    for shape in every_shape() {
        let run = kernel.run_classifier("tap", &shape.frame);
        assert_eq!(run.return_value, TCX_NEXT, "{}", shape.name);
    }
}

#[test]
fn the_tap_times_no_packet_unless_it_is_told_to() {
    require!(Root);
    let object = Object::for_level(PacketLog::Off).expect("is embedded");
    let mut kernel = Loaded::new(object.bytes(), TABLE_SIZE);
    kernel.load_classifier("tap");
    kernel.run_classifier("tap", &Packet::tcp_v4().bytes());
    assert_eq!(kernel.packets(), (0, Vec::new()));
}

fn dscp(frame: &[u8]) -> Dscp {
    let network = Network::parse(frame).expect("an IP packet");
    Dscp::of_traffic_class(network.traffic_class)
}

fn key(frame: &[u8]) -> FlowKey {
    let network = Network::parse(frame).expect("an IP packet");
    let Ok(Transport::Tcp(tcp)) = Transport::parse(frame, &network) else {
        panic!("no TCP packet");
    };
    FlowKey::new(network.addresses, &tcp)
}
