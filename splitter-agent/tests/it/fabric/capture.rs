//! What hosts receive.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd as _, OwnedFd};

use flow_testbed::namespace::Namespace;
use nix::sys::socket::{
    AddressFamily, LinkAddr, SockFlag, SockProtocol, SockType, recvfrom, setsockopt, socket,
    sockopt::RcvBuf,
};

use super::{ICMP, ICMPV6, IP, TCP};

/// Sees all that a host receives.
pub(super) struct Capture(OwnedFd);

impl Capture {
    pub(super) fn start(host: &Namespace) -> Self {
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
    pub(super) fn frames(&self) -> Vec<Vec<u8>> {
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
pub(super) type Seen = BTreeMap<Vec<u8>, u32>;

/// A packet without what differs from one sending of the same to the next. None of what hosts and routers say
/// by themselves.
pub(super) fn lasting(frame: &[u8]) -> Option<Vec<u8>> {
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

pub(super) fn has_right_checksum(packet: &[u8]) -> bool {
    let words = packet[..20].chunks(2);
    let sum: u32 = words
        .map(|it| u32::from(u16::from_be_bytes([it[0], it[1]])))
        .sum();
    packet[0] >> 4 == 6 || (sum & 0xffff) + (sum >> 16) == 0xffff
}

#[track_caller]
pub(super) fn assert_same(found: &[Seen; 2], wanted: &[Seen; 2], state: &str) {
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
