//! Real TCP from one host to the other.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

use super::capture::{Capture, Seen, has_right_checksum};
use super::packets::{address_v6, send};
use super::rig::Rig;
use super::{IP, ROUTERS, TCP};
use crate::support::site::PATIENCE;

/// Transfers so much from an address of the first host to one of the second; `during` runs meanwhile. What
/// the first host has received of it must be as it would be without a fabric's programs.
pub(super) fn transfer(rig: &Rig, last: u8, bytes: usize, during: impl FnOnce()) {
    let address = |site| IpAddr::from([10, site, 0, last]);
    transfer_between(rig, [address(1), address(2)], bytes, during);
}

/// The same over IPv6.
pub(super) fn transfer_v6(rig: &Rig, last: u8, bytes: usize, during: impl FnOnce()) {
    let address = |site| IpAddr::from(address_v6(site, last));
    transfer_between(rig, [address(1), address(2)], bytes, during);
}

/// What both hosts receive without a fabric: all neighbours are known, as connections over all paths show, and
/// two times in a row are the same.
pub(super) fn settled(rig: &Rig, packets: &[Vec<u8>]) -> [Seen; 2] {
    for last in [2, 3] {
        transfer(rig, last, 300_000, || {});
        transfer_v6(rig, last, 300_000, || {});
    }
    let mut before = send(rig, packets);
    for _ in 0..10 {
        let now = send(rig, packets);
        if now == before {
            return now;
        }
        before = now;
    }
    panic!("hosts never receive the same twice");
}

fn transfer_between(rig: &Rig, [from, to]: [IpAddr; 2], bytes: usize, during: impl FnOnce()) {
    // A port of its own each time: what another test's child has inherited and not yet closed may still hold
    // the last one.
    let listen = || TcpListener::bind((to, 0)).expect("a port");
    let listener = rig.hosts[1].enter(listen).expect("it exists");
    let from = SocketAddr::from((from, 0));
    let to = listener.local_addr().expect("it is bound");
    let capture = Capture::start(&rig.hosts[0]);
    let received = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("it connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("a setting");
        std::io::copy(&mut stream, &mut std::io::sink()).expect("it arrives")
    });
    let connect = || {
        let socket = socket2::Socket::new(
            socket2::Domain::for_address(to),
            socket2::Type::STREAM,
            None,
        );
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
        let Some(seen) = Segment::of(&frame[IP..]).filter(|it| it.source == to.ip()) else {
            continue;
        };
        assert_eq!((seen.ttl, seen.dscp), (64 - ROUTERS, 0), "TTL and DSCP");
        assert!(has_right_checksum(&frame[IP..]), "{frame:02x?}");
        acks += 1;
    }
    assert!(acks > 10, "{acks} ACKs");
}

/// What a host sees of a TCP segment's IP header.
struct Segment {
    source: IpAddr,
    ttl: u8,
    dscp: u8,
}

impl Segment {
    fn of(packet: &[u8]) -> Option<Self> {
        let (protocol, source, ttl, class) = match packet[0] >> 4 {
            4 => {
                let source: [u8; 4] = packet[12..16].try_into().ok()?;
                (packet[9], source.into(), packet[8], packet[1])
            }
            6 => {
                let source: [u8; 16] = packet[8..24].try_into().ok()?;
                let class = packet[0] << 4 | packet[1] >> 4;
                (packet[6], source.into(), packet[7], class)
            }
            _ => return None,
        };
        let segment = Self {
            source,
            ttl,
            dscp: class >> 2,
        };
        (protocol == TCP).then_some(segment)
    }
}

/// What the agent of a role serves.
pub(super) fn scrape() -> String {
    scrape_at("127.0.0.1:9463")
}

/// What the agent serves that splits.
pub(super) fn scrape_splitter() -> String {
    scrape_at("127.0.0.1:9461")
}

fn scrape_at(address: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it serves");
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )
    .expect("open");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}
