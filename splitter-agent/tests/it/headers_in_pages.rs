//! Marks next to packets whose headers do not lie in the linear part of the kernel's buffer, as some
//! drivers hand them over: by a TAP device that puts all but the first bytes of a frame in pages.

use crate::support::site;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Write as _};
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use etherparse::PacketBuilder;
use flow_testbed::namespace::{Namespace, TUN};
use flow_testbed::require;
use flow_testbed::require::Requirement::File as Needed;
use flow_testbed::require::skip;
use flow_testbed::topology::TUNNELS;
use nix::libc;
use serde_json::Value;
use site::{Site, on_site};

const DEVICE: &str = "tap9";
const STATION: [u8; 6] = [2, 0, 0, 9, 9, 1];
/// Of the default configuration.
const THRESHOLD: u64 = 40;
const SEGMENTS: u64 = 150;
/// Longer than the longest wait for a hand-over.
const PAUSE: Duration = Duration::from_millis(300);

const ETHERNET: usize = 14;
/// How much of a frame is in the linear part: not a byte of the IP header, half of it, all of it, and
/// some of TCP's.
const LINEAR: [usize; 4] = [ETHERNET, ETHERNET + 10, ETHERNET + 20, ETHERNET + 48];

#[test]
fn packets_with_headers_in_pages_are_marked_like_others() {
    require!(Needed(TUN));
    on_site(|site| {
        let tap = match tap_in_pieces(site.border()) {
            Ok(tap) => tap,
            Err(error) => {
                let reason = format!("cannot make a TAP device that hands over pages: {error}");
                return skip(
                    "headers_in_pages::packets_with_headers_in_pages_are_marked_like_others",
                    &reason,
                );
            }
        };
        let mac = STATION.map(|byte| format!("{byte:02x}")).join(":");
        let border = |line: &str| site.border().run(line).expect("root");
        // Receive offload would bring the headers that it knows together.
        border(&format!("ethtool -K {DEVICE} gro off"));
        border(&format!("ip link set {DEVICE} address {mac} up"));
        // Who answers is to be sent there, where nobody listens.
        border(&format!("ip address add 10.7.7.1/24 dev {DEVICE}"));
        border(&format!(
            "ip neighbour add 10.7.7.2 lladdr {mac} dev {DEVICE}"
        ));
        if site.topology.server.ipv6.is_some() {
            border(&format!("ip address add fd00:7:7::1/64 dev {DEVICE} nodad"));
            border(&format!(
                "ip neighbour add fd00:7:7::2 lladdr {mac} dev {DEVICE}"
            ));
        }
        site.configure(&format!("lan = ['{DEVICE}']\n[steering]\nmode = 'mark'\n"));
        let _daemon = site.run();
        let mut port = 20_000;
        for linear in LINEAR {
            for is_ipv6 in [false, true] {
                if is_ipv6 && site.topology.server.ipv6.is_none() {
                    continue;
                }
                port += 1;
                is_split(site, &tap, linear, &segment(site, is_ipv6, port), port);
            }
        }
        let status = site.json(&["status"]);
        let passed = status["passed"].as_array().expect("a list").iter();
        let truncated: Vec<_> = passed.filter(|it| it["reason"] == "truncated").collect();
        assert!(truncated.is_empty(), "{truncated:?}");
    });
}

/// The flow takes the short tunnel up to the threshold, and then the long one.
fn is_split(site: &Site, tap: &File, linear: usize, frame: &[u8], port: u16) {
    let send = |count| {
        for _ in 0..count {
            let pieces = [&frame[..linear], &frame[linear..]].map(IoSlice::new);
            let written = (&*tap).write_vectored(&pieces).expect("it is up");
            assert_eq!(written, frame.len());
        }
    };
    let sent = || {
        TUNNELS.map(|tunnel| {
            let counters = site.border().device_counters(tunnel);
            counters.expect("it is there").sent_packets
        })
    };
    let grown = |before: [u64; 2]| [0, 1].map(|it| sent()[it] - before[it]);
    let before = sent();
    send(THRESHOLD);
    site.wait_for("short packets", || {
        (grown(before)[0] >= THRESHOLD).then_some(())
    });
    assert!(grown(before)[1] < 5, "{linear}: {:?}", grown(before));
    // Turns it long. After a pause it may change tunnels in any case.
    send(1);
    std::thread::sleep(PAUSE);
    let before = sent();
    send(SEGMENTS);
    site.wait_for("long packets", || {
        (grown(before)[1] >= SEGMENTS).then_some(())
    });
    assert!(grown(before)[0] < 5, "{linear}: {:?}", grown(before));
    let reported = site.json(&["flows", "--limit", "1000"]);
    let flows = reported["flows"].as_array().expect("a list").iter();
    let found: Vec<&Value> = flows.filter(|it| it["source_port"] == port).collect();
    assert_eq!(found.len(), 1, "{reported}");
    assert_eq!(found[0]["packets"], THRESHOLD + 1 + SEGMENTS);
    assert_eq!(found[0]["class"], "long");
}

/// A segment from behind the device to the other site's server, which knows no such connection.
fn segment(site: &Site, is_ipv6: bool, port: u16) -> Vec<u8> {
    let server = &site.topology.server;
    let builder = PacketBuilder::ethernet2([2, 0, 0, 9, 9, 2], STATION);
    let builder = match (is_ipv6, server.ipv6) {
        (true, Some(to)) => {
            let from = "fd00:7:7::2".parse::<std::net::Ipv6Addr>().expect("valid");
            builder.ipv6(from.octets(), to.octets(), 64)
        }
        _ => builder.ipv4([10, 7, 7, 2], server.ipv4.octets(), 64),
    };
    let mut frame = Vec::new();
    builder
        .tcp(port, 9, 1, 1_000)
        .ack(1)
        .write(&mut frame, &[7; 200])
        .expect("it has room");
    frame
}

nix::ioctl_write_ptr_bad!(
    /// Binds an open descriptor to a device.
    set_interface,
    nix::request_code_write!(b'T', 202, size_of::<libc::c_int>()),
    libc::ifreq
);

/// A TAP device of which each piece that is written but the first one becomes a page of its own; it is
/// there as long as the file is.
fn tap_in_pieces(border: &Namespace) -> io::Result<File> {
    let make = || {
        let file = OpenOptions::new().read(true).write(true).open(TUN)?;
        // SAFETY: `ifreq` is plain data, for which all zeros are a value.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(DEVICE.bytes()) {
            *to = from as libc::c_char;
        }
        let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_NAPI | libc::IFF_NAPI_FRAGS;
        request.ifr_ifru.ifru_flags = flags as libc::c_short;
        // SAFETY: the descriptor is open, and the request lives and is initialised until the call
        // returns.
        unsafe { set_interface(file.as_raw_fd(), &request) }?;
        Ok(file)
    };
    border.enter(make).expect("it is there")
}
