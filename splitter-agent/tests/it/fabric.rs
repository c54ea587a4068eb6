//! `splitter fabric`: two leaves and two spines, with real traffic and captures on every host.

mod heard;
mod restarts;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::Duration;

use flow_testbed::namespace::Namespace;
use flow_testbed::require;
use flow_testbed::require::Requirement::{Program, QueueingDiscipline, Root};
use flow_testbed::wait;
use nix::sys::socket::{
    AddressFamily, LinkAddr, SockFlag, SockProtocol, SockType, recvfrom, setsockopt, socket,
    sockopt::RcvBuf,
};
use serde_json::Value as Json;

use crate::policy as support;
use crate::support::site::{BINARY, PATIENCE, mount_bpffs};
use support::packet::{Ip, Packet, Upper};

const DSCP: u8 = 41;
const IP: usize = 14;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const TCP: u8 = 6;
/// From leaf to leaf over a spine.
const ROUTERS: u8 = 3;
/// What a spine's port to a leaf carries in the transfers that fill it.
const RATE_MBIT: u32 = 20;

/// Two leaves with a host each, and two spines.
struct Rig {
    hosts: [Namespace; 2],
    leaves: [Namespace; 2],
    spines: [Namespace; 2],
    directory: tempfile::TempDir,
}

impl Rig {
    fn new() -> Self {
        let make = |name: &str| Namespace::new(name).expect("root");
        let rig = Self {
            hosts: ["host0", "host1"].map(make),
            leaves: ["leaf0", "leaf1"].map(make),
            spines: ["spine0", "spine1"].map(make),
            directory: tempfile::tempdir().expect("a directory"),
        };
        std::fs::create_dir(rig.bpffs()).expect("it is new");
        mount_bpffs(&rig.bpffs());
        for router in rig.leaves.iter().chain(&rig.spines) {
            for (key, value) in [
                ("net.ipv4.ip_forward", "1"),
                ("net.ipv6.conf.all.forwarding", "1"),
                ("net.ipv4.conf.all.rp_filter", "0"),
                ("net.ipv6.icmp.ratelimit", "0"),
            ] {
                router.sysctl(key, value).expect("it is known");
            }
        }
        // Every error is told.
        for namespace in rig.hosts.iter().chain(rig.routers()) {
            let set = namespace.sysctl("net.ipv4.icmp_ratemask", "0");
            set.expect("it is known");
        }
        for (number, (host, leaf)) in rig.hosts.iter().zip(&rig.leaves).enumerate() {
            host.connect("eth0", leaf, "host0").expect("root");
            let site = number + 1;
            let at_host = format!("10.{site}.0.2/24 10.{site}.0.3/24 fd00:{site}::2/64");
            let at_leaf = format!("10.{site}.0.1/24 fd00:{site}::1/64");
            set_up(host, "eth0", &at_host);
            set_up(leaf, "host0", &at_leaf);
            run(host, &format!("ip route add default via 10.{site}.0.1"));
            run(host, &format!("ip -6 route add default via fd00:{site}::1"));
            for (index, spine) in rig.spines.iter().enumerate() {
                let net = 100 + index;
                let (up, down) = (format!("up{index}"), format!("leaf{number}"));
                leaf.connect(&up, spine, &down).expect("root");
                let [near, far] = [1, 2]
                    .map(|it| format!("10.{net}.{number}.{it}/24 fd00:{net}:{number}::{it}/64"));
                set_up(leaf, &up, &near);
                set_up(spine, &down, &far);
                run(
                    spine,
                    &format!("ip route add 10.{site}.0.0/24 via 10.{net}.{number}.1"),
                );
                run(
                    spine,
                    &format!("ip -6 route add fd00:{site}::/64 via fd00:{net}:{number}::1"),
                );
                // Of the other host each address by another spine.
                let (other, last) = (2 - number, 2 + index);
                run(
                    leaf,
                    &format!("ip route add 10.{other}.0.{last}/32 via 10.{net}.{number}.2"),
                );
            }
            run(
                leaf,
                &format!("ip -6 route add default via fd00:100:{number}::2"),
            );
        }
        rig
    }

    fn bpffs(&self) -> std::path::PathBuf {
        self.directory.path().join("bpf")
    }

    fn routers(&self) -> impl Iterator<Item = &Namespace> {
        self.leaves.iter().chain(&self.spines)
    }

    /// The file of a router, by what it is.
    fn file(&self, router: &Namespace) -> std::path::PathBuf {
        let name = router.name();
        let mut text = format!("name = '{name}'\nbpffs = {:?}\n", self.bpffs());
        if name.starts_with("leaf") {
            text += &format!("[fabric]\nrole = 'leaf'\ndscp = {DSCP}\n");
            for up in ["up0", "up1"] {
                text += &format!("[[fabric.ports]]\ndevice = '{up}'\n");
            }
            for number in 0..2 {
                let site = number + 1;
                text += &format!(
                    "[[fabric.leaves]]\nnumber = {number}\nprefixes = ['10.{site}.0.0/24', 'fd00:{site}::/64']\n"
                );
            }
        } else {
            text += &format!("[fabric]\nrole = 'spine'\ndscp = {DSCP}\n");
            for leaf in ["leaf0", "leaf1"] {
                text += &format!("[[fabric.ports]]\ndevice = '{leaf}'\nrate_mbit = {RATE_MBIT}\n");
            }
        }
        let path = self.directory.path().join(format!("{name}.toml"));
        std::fs::write(&path, text).expect("can be written");
        path
    }

    /// Runs a subcommand on a router; what it printed.
    fn fabric(&self, router: &Namespace, command: &str) -> String {
        let output = router
            .command(BINARY)
            .arg("-c")
            .arg(self.file(router))
            .args(["--json", "fabric", command])
            .output()
            .expect("it is built");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{}: {command}: {stderr}",
            router.name()
        );
        String::from_utf8(output.stdout).expect("JSON")
    }

    fn status(&self, router: &Namespace) -> Json {
        serde_json::from_str(&self.fabric(router, "status")).expect("JSON")
    }

    /// How often the router has done a step.
    fn done(&self, router: &Namespace, step: &str) -> u64 {
        let count = self.status(router)["acks"][step].as_u64();
        count.expect("a number")
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // What is pinned goes with the mount.
        let _ = nix::mount::umount(&self.bpffs());
    }
}

fn run(namespace: &Namespace, line: &str) {
    namespace.run(line).expect("root");
}

fn set_up(namespace: &Namespace, device: &str, addresses: &str) {
    for address in addresses.split(' ') {
        let nodad = if address.contains("::") { "nodad" } else { "" };
        run(
            namespace,
            &format!("ip addr add {address} dev {device} {nodad}"),
        );
    }
    run(namespace, &format!("ip link set {device} up"));
}

/// Sees all that a host receives.
struct Capture(OwnedFd);

impl Capture {
    fn start(host: &Namespace) -> Self {
        let open = || {
            let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
            let all = SockProtocol::EthAll;
            let socket = socket(AddressFamily::Packet, SockType::Raw, flags, all);
            let socket = socket.expect("root");
            setsockopt(&socket, RcvBuf, &(16 << 20)).expect("a size");
            socket
        };
        Self(host.enter(open).expect("it exists"))
    }

    /// All frames for the host so far.
    fn frames(&self) -> Vec<Vec<u8>> {
        const TO_US: u8 = 0;
        let next = || {
            let mut frame = [0; 2_048];
            let received = recvfrom::<LinkAddr>(self.0.as_raw_fd(), &mut frame).ok();
            received.map(|(length, from)| (frame[..length].to_vec(), from))
        };
        let all = std::iter::from_fn(next);
        let to_us = all.filter(|(_, from)| from.as_ref().is_some_and(|it| it.pkttype() == TO_US));
        to_us.map(|(frame, _)| frame).collect()
    }
}

/// What counts of a packet that a host has received; how often each was seen.
type Seen = BTreeMap<Vec<u8>, u32>;

/// A packet without what differs from one sending of the same to the next. None of what hosts and routers say
/// by themselves.
fn lasting(frame: &[u8]) -> Option<Vec<u8>> {
    let packet = frame.get(IP..)?;
    let (protocol, header) = match packet.first()? >> 4 {
        4 => (packet[9], 20),
        6 => (packet[6], 40),
        _ => return None,
    };
    let mut kept = packet.to_vec();
    match protocol {
        // Neighbour discovery, and who listens to which group.
        ICMPV6 if packet[header] > 127 => return None,
        ICMP => {
            // Routers number these, and the checksum is checked.
            assert!(has_right_checksum(packet), "{packet:02x?}");
            kept[4..6].fill(0);
            kept[10..12].fill(0);
        }
        // Answers to what nobody has opened.
        TCP if packet[header + 13] & 4 != 0 && packet[0] >> 4 == 4 => {
            assert!(has_right_checksum(packet), "{packet:02x?}");
            kept.truncate(header + 4);
            kept[4..6].fill(0);
            kept[10..12].fill(0);
        }
        _ => {}
    }
    Some(kept)
}

fn has_right_checksum(packet: &[u8]) -> bool {
    let words = packet[..20].chunks(2);
    let sum: u32 = words
        .map(|it| u32::from(u16::from_be_bytes([it[0], it[1]])))
        .sum();
    packet[0] >> 4 == 6 || (sum & 0xffff) + (sum >> 16) == 0xffff
}

/// Packets of many kinds, each with a number of its own: pure ACKs and others, by all hops that there are,
/// with marks of hosts, to both addresses. UDP among them is what traceroute sends.
fn packets(dscp: &[u8]) -> Vec<Vec<u8>> {
    const TTLS: [u8; 9] = [1, 2, 3, 4, 33, 63, 64, 128, 255];
    let tcp = |flags| Upper::Tcp {
        ports: (40_000, 40_001),
        flags,
        option_bytes: 12,
    };
    let kinds = [
        (tcp(0x10), 0),
        (tcp(0x50), 0),
        (tcp(0x18), 5),
        (tcp(0x02), 0),
        (tcp(0x11), 0),
        (
            Upper::Udp {
                ports: (40_000, 33_434),
            },
            12,
        ),
    ];
    let v4 = |last| Ip::V4 {
        source: [10, 1, 0, 2],
        destination: [10, 2, 0, last],
        option_bytes: 0,
        fragment: None,
    };
    let mut all = Vec::new();
    for ip in [2, 3].map(v4) {
        for (upper, payload_bytes) in &kinds {
            for (ttl, dscp) in TTLS
                .iter()
                .flat_map(|ttl| dscp.iter().map(move |it| (*ttl, *it)))
            {
                let packet = Packet {
                    tags: Vec::new(),
                    ip: ip.clone(),
                    traffic_class: dscp << 2 | 2,
                    upper: upper.clone(),
                    payload_bytes: *payload_bytes,
                };
                let number = all.len() as u16;
                all.push(numbered(packet.bytes(), number, ttl));
            }
        }
    }
    all
}

/// Gives a packet its number, and its TTL.
fn numbered(mut frame: Vec<u8>, number: u16, ttl: u8) -> Vec<u8> {
    if frame[IP] >> 4 == 6 {
        // The flow label.
        frame[IP + 2..IP + 4].copy_from_slice(&number.to_be_bytes());
        frame[IP + 7] = ttl;
        return frame;
    }
    frame[IP + 4..IP + 6].copy_from_slice(&number.to_be_bytes());
    frame[IP + 8] = ttl;
    frame[IP + 10..IP + 12].fill(0);
    let words = frame[IP..IP + 20].chunks(2);
    let sum: u32 = words
        .map(|it| u32::from(u16::from_be_bytes([it[0], it[1]])))
        .sum();
    let checksum = !(((sum & 0xffff) + (sum >> 16)) as u16);
    frame[IP + 10..IP + 12].copy_from_slice(&checksum.to_be_bytes());
    frame
}

/// Has the first host send packets; what both hosts receive then.
fn send(rig: &Rig, packets: &[Vec<u8>]) -> [Seen; 2] {
    let captures = rig.hosts.each_ref().map(Capture::start);
    let link = |namespace: &Namespace, device: &str| {
        let line = namespace
            .run(&format!("ip -o link show dev {device}"))
            .expect("it is there");
        let (_, address) = line.split_once("link/ether ").expect("Ethernet");
        let bytes = address.split(' ').next().expect("an address").split(':');
        let bytes: Vec<u8> = bytes
            .map(|it| u8::from_str_radix(it, 16).expect("hex"))
            .collect();
        bytes
    };
    let header = [link(&rig.leaves[0], "host0"), link(&rig.hosts[0], "eth0")].concat();
    let sending = || {
        let index = nix::net::if_::if_nametoindex("eth0").expect("it is there");
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, None).expect("root");
        for packet in packets {
            let frame = [&header[..], &packet[12..]].concat();
            send_frame(&socket, index, &frame);
            // Nothing is to be lost.
            std::thread::sleep(Duration::from_micros(200));
        }
    };
    rig.hosts[0].enter(sending).expect("it exists");
    // Until nothing more comes.
    let mut seen = [Seen::new(), Seen::new()];
    let mut silent = 0;
    while silent < 5 {
        std::thread::sleep(Duration::from_millis(50));
        silent += 1;
        for (capture, seen) in captures.iter().zip(&mut seen) {
            for kept in capture.frames().iter().filter_map(|it| lasting(it)) {
                *seen.entry(kept).or_default() += 1;
                silent = 0;
            }
        }
    }
    seen
}

fn send_frame(socket: &OwnedFd, index: u32, frame: &[u8]) {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: 0,
        sll_ifindex: index as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: buffer and address are valid for as many bytes as are named.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            frame.as_ptr().cast(),
            frame.len(),
            0,
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as u32,
        )
    };
    assert_eq!(
        sent,
        frame.len() as isize,
        "{}",
        std::io::Error::last_os_error()
    );
}

#[track_caller]
fn assert_same(found: &[Seen; 2], wanted: &[Seen; 2], state: &str) {
    for (host, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        let missing: Vec<_> = wanted
            .iter()
            .filter(|it| found.get(it.0) != Some(it.1))
            .collect();
        let more: Vec<_> = found
            .iter()
            .filter(|it| wanted.get(it.0) != Some(it.1))
            .collect();
        assert!(
            missing.is_empty() && more.is_empty(),
            "{state}: host {host} misses {} such as {:02x?}, and has {} such as {:02x?}",
            missing.len(),
            missing.first(),
            more.len(),
            more.first()
        );
    }
}

/// Transfers so much from an address of the first host to one of the second; `during` runs meanwhile. What
/// the first host has received of it must be as it would be without a fabric's programs.
fn transfer(rig: &Rig, last: u8, bytes: usize, during: impl FnOnce()) {
    let from = SocketAddr::from((Ipv4Addr::new(10, 1, 0, last), 0));
    let to = SocketAddr::from((Ipv4Addr::new(10, 2, 0, last), 5_001));
    let listen = || TcpListener::bind(to).expect("a port");
    let listener = rig.hosts[1].enter(listen).expect("it exists");
    let capture = Capture::start(&rig.hosts[0]);
    let received = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("it connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("a setting");
        std::io::copy(&mut stream, &mut std::io::sink()).expect("it arrives")
    });
    let connect = || {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let socket = socket.expect("there are sockets");
        socket.bind(&from.into()).expect("its address");
        socket.connect(&to.into()).expect("it listens");
        TcpStream::from(socket)
    };
    let mut stream = rig.hosts[0].enter(connect).expect("it exists");
    let sender = std::thread::spawn(move || {
        stream.write_all(&vec![7; bytes]).expect("it is sent");
        stream
            .shutdown(std::net::Shutdown::Write)
            .expect("it is open");
        stream.read_to_end(&mut Vec::new()).expect("it ends");
    });
    during();
    sender.join().expect("it ends");
    assert_eq!(received.join().expect("it ends"), bytes as u64);
    let mut acks = 0;
    for frame in capture.frames() {
        let packet = &frame[IP..];
        if packet[0] >> 4 == 4 && packet[9] == TCP && packet[12..16] == [10, 2, 0, last] {
            assert_eq!(packet[8], 64 - ROUTERS, "TTL");
            assert_eq!(packet[1] >> 2, 0, "DSCP");
            assert!(has_right_checksum(packet), "{packet:02x?}");
            acks += 1;
        }
    }
    assert!(acks > 10, "{acks} ACKs");
}

#[test]
fn page_is_what_the_metrics_declare() {
    const PAGE: &str = include_str!("../../../docs/src/reference/fabric.md");
    const COMMAND: &str = "UPDATE=1 cargo test -p splitter-agent --test it fabric::page_is_what";
    let filled = splitter_agent::metrics::fill_fabric_reference(PAGE).expect("a marker");
    if std::env::var_os("UPDATE").is_some() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../docs/src/reference/fabric.md"
        );
        std::fs::write(path, filled).expect("the page can be written");
    } else {
        assert!(
            PAGE == filled,
            "the page has another table; run `{COMMAND}`"
        );
    }
}

/// The law of the fabric, on packets: hosts see every TTL, DSCP and checksum as without it, whatever is in
/// place on which router, and errors of routers quote what they would.
#[test]
fn hosts_see_what_they_would_see_without_a_fabric() {
    require!(Root, Program("ip"), Program("ethtool"));
    let rig = Rig::new();
    let packets = packets(&[0, 10]);
    // Neighbours are asked for once.
    send(&rig, &packets);
    let without = send(&rig, &packets);
    // Not vacuous: most have come to the other host, and errors of each router back.
    assert!(without[1].len() * 2 > packets.len(), "{}", without[1].len());
    let errors = without[0]
        .keys()
        .filter(|it| it[0] >> 4 == 4 && it[9] == ICMP);
    assert!(errors.count() > 30);
    transfer(&rig, 2, 500_000, || {});

    for router in rig.routers() {
        assert!(rig.fabric(router, "plan").contains("\"attach\""));
        rig.fabric(router, "up");
        // A second time changes nothing.
        assert!(rig.fabric(router, "plan").contains("\"keep\""));
        rig.fabric(router, "up");
    }
    assert_same(&send(&rig, &packets), &without, "all are in place");
    let [near, far] = &rig.leaves;
    let [spine, other] = &rig.spines;
    // Of TTL 64 and without a DSCP: a pure ACK and one with ECN's flag, to both addresses.
    assert_eq!(rig.done(near, "written"), 4);
    assert_eq!(rig.done(spine, "reported") + rig.done(other, "reported"), 4);
    assert_eq!(rig.done(far, "read"), 4);
    for last in [2, 3] {
        let before = rig.done(near, "read");
        transfer(&rig, last, 500_000, || {});
        assert!(rig.done(near, "read") > before + 10);
    }

    // A spine that is not ours among ours; and taken out in the middle of a transfer.
    transfer(&rig, 3, 4_000_000, || drop(rig.fabric(other, "down")));
    let before = rig.done(far, "restored");
    assert_same(&send(&rig, &packets), &without, "a spine is not ours");
    assert_eq!(rig.done(far, "restored"), before + 2);
    transfer(&rig, 3, 500_000, || {});
    transfer(&rig, 3, 4_000_000, || drop(rig.fabric(other, "up")));

    // A leaf's agent is killed: it and its programs are what is pinned.
    let mut agent = near.command(BINARY);
    agent.arg("-c").arg(rig.file(near)).args(["fabric", "run"]);
    let mut agent = agent.spawn().expect("it is built");
    let serves = || {
        near.enter(|| TcpStream::connect("127.0.0.1:9463").ok())
            .ok()
            .flatten()
    };
    wait::within(PATIENCE, "the agent of a leaf", serves);
    transfer(&rig, 2, 4_000_000, || agent.kill().expect("it runs"));
    agent.wait().expect("it was killed");
    assert_same(&send(&rig, &packets), &without, "a leaf's agent was killed");

    // The one thing that hosts cannot have is the fabric's own mark on pure ACKs.
    let marked = packets_with_the_mark();
    let seen = send(&rig, &marked);
    assert!(!seen[1].is_empty());
    for packet in seen[1].keys() {
        let class = match packet[0] >> 4 {
            4 => packet[1],
            _ => packet[0] << 4 | packet[1] >> 4,
        };
        assert_eq!(
            class, 2,
            "no DSCP, and the ECN bits it came with: {packet:02x?}"
        );
    }

    for router in rig.routers() {
        rig.fabric(router, "down");
    }
    assert_same(&send(&rig, &packets), &without, "all is taken back");
    assert!(
        !rig.bpffs().join("splitter-fabric").exists(),
        "pins are left"
    );
}

/// Pure ACKs alone, with the fabric's DSCP.
fn packets_with_the_mark() -> Vec<Vec<u8>> {
    let pure = |frame: &Vec<u8>| {
        let tcp = if frame[IP] >> 4 == 6 {
            IP + 40
        } else {
            IP + 20
        };
        let at = if frame[IP] >> 4 == 6 { IP + 6 } else { IP + 9 };
        frame[at] == TCP && frame[tcp + 13] & 0x3f == 0x10
    };
    packets(&[DSCP]).into_iter().filter(pure).collect()
}

/// A queue of a spine's port is what a leaf hears of it.
#[test]
fn leaf_hears_how_full_the_port_of_a_spine_is() {
    const TBF: &str = "tbf rate 20mbit burst 3100 limit 62500";
    require!(
        Root,
        Program("ip"),
        Program("ethtool"),
        QueueingDiscipline(TBF)
    );
    let rig = Rig::new();
    for spine in &rig.spines {
        run(spine, &format!("tc qdisc add dev leaf1 root {TBF}"));
    }
    for router in rig.routers() {
        rig.fabric(router, "up");
    }
    let hears = |port: usize| {
        let status = rig.status(&rig.leaves[0]);
        let reports = &status["ports"][port]["remote_backlog_ms"];
        let of_the_other = reports[1].as_array().expect("a leaf and a time");
        assert_eq!(of_the_other[0], 1);
        of_the_other[1].as_f64().expect("a number")
    };
    assert_eq!(hears(0), 0.0);
    transfer(&rig, 2, 3_000_000, || {
        let fills = || (hears(0) > 10.0).then_some(());
        wait::within(PATIENCE, "the leaf to hear of the queue", fills);
        // By the other spine nothing has gone.
        assert_eq!(hears(1), 0.0);
    });
    // It drains as time passes.
    wait::within(PATIENCE, "the queue to drain", || {
        (hears(0) == 0.0).then_some(())
    });
}

fn scrape() -> String {
    let mut stream = TcpStream::connect("127.0.0.1:9463").expect("it serves");
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )
    .expect("open");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}
