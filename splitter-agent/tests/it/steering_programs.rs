//! The programs that mark next to packets and that redirect, run by the kernel
//! (`BPF_PROG_TEST_RUN`).

mod choosing;
mod next_hops;

use crate::policy as support;
use crate::support::fwmark;
use crate::support::loaded;
use flow_testbed::namespace::Namespace;
use flow_testbed::require;
use flow_testbed::require::Requirement::{Program, Root};
use fwmark::FrameWithMark;
use loaded::Loaded;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use splitter_config::{PacketLog, SteeringMode};
use splitter_datapath::{Object, program_name};
use splitter_policy::config::{Marking, PolicyConfig};
use splitter_policy::dscp::Dscp;
use splitter_policy::flow::TunnelRole;
use splitter_policy::forward::Fallback;
use splitter_policy::fwmark::MarkBits;
use splitter_policy::packet::{Network, TcpFlags};
use support::host::Host;
use support::packet::{Extension, Fragment, Ip, Packet, Upper, VLAN};
use support::shapes::every_shape_with;
const MARK: &str = program_name(SteeringMode::Mark);
const REDIRECT: &str = program_name(SteeringMode::Redirect);
const TCX_NEXT: u32 = -1i32 as u32;
const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;
const TABLE_SIZE: u32 = 4_096;

/// Flows change tunnels as soon as they are long.
fn eager() -> PolicyConfig {
    PolicyConfig {
        drain_margin_ns: 0,
        ..PolicyConfig::default()
    }
}

#[test]
fn marks_come_out_as_on_the_host_and_packets_and_other_bits_as_they_came() {
    require!(Root);
    for level in [PacketLog::Off, PacketLog::Trace] {
        let object = Object::for_level(level).expect("is embedded");
        let mut kernel = Loaded::new(object.bytes(), TABLE_SIZE);
        kernel.load_classifier(MARK);
        let config = PolicyConfig {
            mark_bits: MarkBits::new(0x00ff_0000).expect("one run"),
            ..eager()
        };
        kernel.set(config);
        let mut host = Host::new(config, TABLE_SIZE);
        let mut marks = Vec::new();
        // None of ours, that of the long class, and one that is nobody's.
        for came_with in [0, 0xab02_cdef, 0xffff_ffff] {
            for shape in every_shape_with(0x09) {
                let mut of_host = FrameWithMark {
                    frame: &shape.frame,
                    mark: came_with,
                };
                host.now_ns += 1_000;
                let outcome = host.split_beside(&mut of_host);
                let (run, mark, bytes) = kernel.run_marked(MARK, &shape.frame, came_with);
                assert_eq!(run, TCX_NEXT, "{}", shape.name);
                assert_eq!(bytes, shape.frame, "{}", shape.name);
                assert_eq!(mark, of_host.mark, "{}: {outcome:?}", shape.name);
                assert_eq!(mark & !0x00ff_0000, came_with & !0x00ff_0000);
                marks.push(mark & 0x00ff_0000);
            }
        }
        // Not vacuous: both classes were met.
        assert!(marks.contains(&0x0004_0000) && marks.contains(&0x0002_0000));
        let counters = kernel.counters();
        assert_eq!(counters.marks_overridden, host.counters.marks_overridden);
        assert!(counters.marks_overridden > 10);
    }
}

#[test]
fn a_shadow_sets_no_kernel_mark() {
    require!(Root);
    let object = Object::for_level(PacketLog::Off).expect("is embedded");
    let mut kernel = Loaded::new(object.bytes(), TABLE_SIZE);
    kernel.load_classifier(MARK);
    kernel.set(PolicyConfig {
        mark_bits: MarkBits::new(0x3f).expect("one run"),
        marking: Marking::SHADOW,
        ..eager()
    });
    for _ in 0..50 {
        let (run, mark, _) = kernel.run_marked(MARK, &Packet::tcp_v4().bytes(), 0x1402);
        assert_eq!((run, mark), (TCX_NEXT, 0x1402));
    }
    assert_eq!(kernel.counters().mark_failures, 0);
}

/// The loopback device of the network, by which test runs come in.
const ARRIVES_AT: u32 = 1;
const OWN: [u8; 6] = [2, 1, 1, 1, 1, 1];
const SHORT_HOP: [u8; 6] = [2, 2, 2, 2, 2, 1];
const LONG_HOP: [u8; 6] = [2, 2, 2, 2, 2, 2];

/// A router with a tunnel for each class; destinations are those of the packets.
fn router() -> Namespace {
    let router = Namespace::new("redirect").expect("it can be made");
    let run = |line: &str| {
        router
            .run(line)
            .unwrap_or_else(|error| panic!("{line}: {error}"))
    };
    router
        .sysctl("net.ipv4.conf.all.forwarding", "1")
        .expect("it is there");
    router
        .sysctl("net.ipv6.conf.all.forwarding", "1")
        .expect("it is there");
    // Else link-local addresses of the devices are announced once more when nobody else has turned out to have them, a second
    // or two from now: a change, whatever a test does then.
    router
        .sysctl("net.ipv6.conf.default.accept_dad", "0")
        .expect("it is there");
    run("ip link set lo up");
    for (device, number, mac) in [
        ("wan0", 1, SHORT_HOP),
        ("wan1", 2, LONG_HOP),
        ("isp", 3, LONG_HOP),
    ] {
        let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
        run(&format!("ip link add {device} type veth peer far-{device}"));
        run(&format!("ip link set {device} up"));
        run(&format!("ip link set far-{device} up"));
        run(&format!("ip addr add 192.0.{number}.2/24 dev {device}"));
        run(&format!(
            "ip addr add fd00:{number}::2/64 dev {device} nodad"
        ));
        for hop in [format!("192.0.{number}.1"), format!("fd00:{number}::1")] {
            run(&format!(
                "ip neigh add {hop} lladdr {mac} dev {device} nud permanent"
            ));
        }
    }
    run("ip route add default via 192.0.1.1");
    run("ip -6 route add default via fd00:1::1");
    for (ip, hop) in [("ip", "192.0.2.1"), ("ip -6", "fd00:2::1")] {
        run(&format!("{ip} route add default via {hop} table 100"));
        run(&format!("{ip} rule add tos 0x08 lookup 100"));
    }
    router
}

/// The program and its network.
struct Redirecting {
    kernel: Loaded,
    router: Namespace,
    program: &'static str,
}

impl Redirecting {
    fn new() -> Self {
        let load = |object: &[u8]| Loaded::new(object, TABLE_SIZE);
        Self::running(REDIRECT, load)
    }

    /// With the program of that name, of what is loaded.
    fn running(program: &'static str, load: impl FnOnce(&[u8]) -> Loaded + Send) -> Self {
        let router = router();
        let kernel = router.enter(|| {
            let object = Object::for_level(PacketLog::Off).expect("is embedded");
            let mut kernel = load(object.bytes());
            kernel.load_xdp(program);
            kernel.set(eager());
            for (device, tunnel) in [("wan0", TunnelRole::Short), ("wan1", TunnelRole::Long)] {
                let index = nix::net::if_::if_nametoindex(device).expect("it is there");
                kernel.redirect_into(index, tunnel);
            }
            kernel.set_lan_address(ARRIVES_AT, OWN);
            kernel
        });
        let kernel = kernel.expect("the namespace is there");
        Self {
            kernel,
            router,
            program,
        }
    }

    /// What becomes of a frame, and its bytes.
    fn send(&self, frame: &[u8]) -> (u32, Vec<u8>) {
        let run = || {
            stay_on_one_cpu();
            let mut out = vec![0; frame.len()];
            let run = self.kernel.run_xdp(self.program, frame, Some(&mut out), 1);
            (run.return_value, out)
        };
        self.router.enter(run).expect("the namespace is there")
    }

    /// Which reason is counted for the frame, which must pass.
    fn reason(&self, frame: &[u8]) -> Option<Fallback> {
        let counts = || Fallback::ALL.map(|it| self.kernel.counters().fallbacks(it));
        let before = counts();
        let (action, _) = self.send(frame);
        assert_eq!(action, XDP_PASS);
        let after = counts();
        let index = (0..before.len()).find(|&it| after[it] > before[it])?;
        assert_eq!(after[index], before[index] + 1);
        Some(Fallback::ALL[index])
    }
}

/// Each CPU has notes of its own.
fn stay_on_one_cpu() {
    let this = Pid::from_raw(0);
    let allowed = sched_getaffinity(this).expect("it is known");
    let first = (0..CpuSet::count()).find(|&cpu| allowed.is_set(cpu).unwrap_or(false));
    let mut only = CpuSet::new();
    only.set(first.expect("it runs on one"))
        .expect("there is such a CPU");
    sched_setaffinity(this, &only).expect("it may run there");
}

/// Segments that are for the router's link address, and open nothing.
fn plain() -> [Packet; 2] {
    [Packet::tcp_v4(), Packet::tcp_v6()]
}

fn frame(packet: &Packet) -> Vec<u8> {
    let mut frame = packet.bytes();
    frame[..6].copy_from_slice(&OWN);
    frame
}

fn ttl_at(packet: &Packet) -> usize {
    match packet.ip {
        Ip::V4 { .. } => 22,
        Ip::V6 { .. } => 21,
    }
}

#[test]
fn each_class_is_put_into_its_tunnel_with_one_hop_less() {
    require!(Root, Program("ip"));
    let router = Redirecting::new();
    for packet in plain() {
        let frame = frame(&packet);
        let mut hops = Vec::new();
        for _ in 0..60 {
            let (action, out) = router.send(&frame);
            assert_eq!(action, XDP_REDIRECT);
            let ttl = ttl_at(&packet);
            assert_eq!(out[ttl], frame[ttl] - 1);
            let network = Network::parse(&out[..]).expect("an IP packet");
            let mark = Dscp::of_traffic_class(network.traffic_class);
            if matches!(packet.ip, Ip::V4 { .. }) {
                assert_eq!(sum(&out[14..34]), 0xffff, "the checksum is right");
            }
            // All else is as it came.
            assert_eq!(out[34 + 20..], frame[34 + 20..]);
            hops.push((mark, <[u8; 6]>::try_from(&out[..6]).expect("six")));
        }
        let (short, long) = hops.split_at(40);
        assert!(
            short
                .iter()
                .all(|it| *it == (PolicyConfig::DEFAULT_SHORT_MARK, SHORT_HOP))
        );
        assert!(
            long.iter()
                .all(|it| *it == (PolicyConfig::DEFAULT_LONG_MARK, LONG_HOP))
        );
    }
    assert_eq!(router.kernel.counters().redirected, 120);
    assert!(
        Fallback::ALL
            .iter()
            .all(|it| router.kernel.counters().fallbacks(*it) == 0)
    );
}

fn sum(header: &[u8]) -> u32 {
    let words = header.chunks(2);
    let sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    (sum & 0xffff) + (sum >> 16)
}

#[test]
fn what_cannot_be_redirected_goes_by_the_stack_under_its_reason() {
    require!(Root, Program("ip"));
    let router = Redirecting::new();
    for packet in plain() {
        let mut last_hop = frame(&packet);
        last_hop[ttl_at(&packet)] = 1;
        assert_eq!(router.reason(&last_hop), Some(Fallback::Ttl));
        let mut other_station = frame(&packet);
        other_station[5] ^= 1;
        assert_eq!(router.reason(&other_station), Some(Fallback::NotOurs));

        let mut opening = packet.clone();
        if let Upper::Tcp { flags, .. } = &mut opening.upper {
            *flags = TcpFlags::SYN;
        }
        assert_eq!(router.reason(&frame(&opening)), Some(Fallback::Opening));
        let tagged = Packet {
            tags: vec![VLAN],
            ..packet.clone()
        };
        assert_eq!(router.reason(&frame(&tagged)), Some(Fallback::Options));
        let large = Packet {
            payload_bytes: 2_000,
            ..packet.clone()
        };
        assert_eq!(router.reason(&frame(&large)), Some(Fallback::TooLarge));
        let huge = Packet {
            payload_bytes: 20_000,
            ..packet.clone()
        };
        assert_eq!(router.reason(&frame(&huge)), Some(Fallback::Scattered));
    }
    for fragment in [Fragment::FIRST, Fragment::LATER] {
        let (mut v4, mut v6) = (Packet::tcp_v4(), Packet::tcp_v6());
        if let Ip::V4 {
            fragment: place, ..
        } = &mut v4.ip
        {
            *place = Some(fragment);
        }
        if let Ip::V6 { extensions, .. } = &mut v6.ip {
            extensions.push(Extension::Fragment(fragment));
        }
        for packet in [v4, v6] {
            let reason = router.reason(&frame(&packet));
            assert_eq!(reason, Some(Fallback::Fragment), "{fragment:?}");
        }
    }
    // ICMP is not split, so that nothing is to be redirected.
    let mut icmp = Packet::tcp_v4();
    icmp.upper = Upper::Icmp;
    assert_eq!(router.reason(&frame(&icmp)), None);
}

#[test]
fn what_routing_says_decides() {
    require!(Root, Program("ip"));
    let router = Redirecting::new();
    let run = |line: &str| {
        router
            .router
            .run(line)
            .unwrap_or_else(|error| panic!("{line}: {error}"))
    };
    let frames = plain().map(|packet| frame(&packet));
    let reasons = || frames.each_ref().map(|frame| router.reason(frame));
    let families = [("ip", "192.0.1"), ("ip -6", "fd00:1:")];

    for (ip, net) in families {
        let hop = if ip == "ip" {
            format!("{net}.9")
        } else {
            format!("{net}:9")
        };
        run(&format!("{ip} route replace default via {hop} dev wan0"));
    }
    assert_eq!(reasons(), [Some(Fallback::NoNeighbour); 2]);
    // That of the other class is not one, either.
    for (ip, hop) in [("ip", "192.0.2.1"), ("ip -6", "fd00:2::1")] {
        run(&format!("{ip} route replace default via {hop} dev wan1"));
    }
    assert_eq!(reasons(), [Some(Fallback::OtherDevice); 2]);
    for (ip, hop) in [("ip", "192.0.3.1"), ("ip -6", "fd00:3::1")] {
        run(&format!("{ip} route replace default via {hop} dev isp"));
    }
    assert_eq!(reasons(), [Some(Fallback::OtherDevice); 2]);
    for (ip, _) in families {
        run(&format!("{ip} route replace unreachable default"));
        run(&format!("{ip} rule del tos 0x08"));
        run(&format!("{ip} rule add pref 100 unreachable"));
    }
    assert_eq!(reasons(), [Some(Fallback::NoRoute); 2]);
    assert_eq!(router.kernel.counters().redirected, 0);
}

#[test]
fn a_shadow_redirects_nothing() {
    require!(Root, Program("ip"));
    let mut router = Redirecting::new();
    router.kernel.set(PolicyConfig {
        marking: Marking::SHADOW,
        ..eager()
    });
    for packet in plain() {
        let frame = frame(&packet);
        assert_eq!(router.send(&frame), (XDP_PASS, frame));
    }
}
