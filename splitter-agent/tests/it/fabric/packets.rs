//! Packets of many kinds, sent by a host as they are.

use std::net::Ipv6Addr;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::Duration;

use flow_testbed::namespace::Namespace;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use super::capture::{Capture, Seen, lasting};
use super::rig::Rig;
use super::{DSCP, IP, TCP};
use crate::policy as support;
use support::packet::{Ip, Packet, Upper};

/// Packets of many kinds, each with a number of its own: pure ACKs and others, by all hops that there are,
/// with marks of hosts, to both addresses of each family. UDP among them is what traceroute sends.
pub(super) fn packets(dscp: &[u8]) -> Vec<Vec<u8>> {
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
    let v6 = |last| Ip::V6 {
        source: address_v6(1, 2).octets(),
        destination: address_v6(2, last).octets(),
        extensions: Vec::new(),
    };
    let mut all = Vec::new();
    for ip in [v4(2), v4(3), v6(2), v6(3)] {
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

/// The address of a host behind a leaf, both counted from 1.
pub(super) fn address_v6(site: u16, last: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, site, 0, 0, 0, 0, 0, last.into())
}

/// Gives a packet its number, and its TTL.
pub(super) fn numbered(mut frame: Vec<u8>, number: u16, ttl: u8) -> Vec<u8> {
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

/// Pure ACKs alone, with the fabric's DSCP.
pub(super) fn packets_with_the_mark() -> Vec<Vec<u8>> {
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

/// Has the first host send packets; what both hosts receive then.
pub(super) fn send(rig: &Rig, packets: &[Vec<u8>]) -> [Seen; 2] {
    let captures = rig.hosts.each_ref().map(Capture::start);
    sending(rig, packets);
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

/// Has the first host send packets.
pub(super) fn sending(rig: &Rig, packets: &[Vec<u8>]) {
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
}

pub(super) fn send_frame(socket: &OwnedFd, index: u32, frame: &[u8]) {
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
