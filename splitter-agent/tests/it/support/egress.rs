//! What leaves a border, by device and in order, as the devices themselves send it.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd as _, OwnedFd};

use flow_testbed::namespace::Namespace;
use flow_testbed::topology::TUNNELS;
use nix::sys::socket::{
    AddressFamily, LinkAddr, SockFlag, SockProtocol, SockType, recvfrom, setsockopt, socket,
    sockopt::RcvBuf,
};

use super::site::{PATIENCE, Site};

const ETHERNET_BYTES: usize = 14;
/// Fits a tunnel's queue with many others of its kind.
const PAYLOAD_BYTES: usize = 600;
/// A device sends it (PACKET_OUTGOING of linux/if_packet.h).
const OUTGOING: u8 = 4;

/// A packet of a [`Stream`] that has left.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) device: String,
    /// Which tells its class.
    pub(crate) dscp: u8,
    pub(crate) port: u16,
    pub(crate) number: u32,
}

/// Sees all packets that a border's tunnels send, behind their queues.
pub(crate) struct Capture {
    socket: OwnedFd,
    devices: BTreeMap<usize, String>,
}

impl Capture {
    pub(crate) fn start(border: &Namespace) -> Self {
        let open = || {
            let all = SockProtocol::EthAll;
            let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
            let socket = socket(AddressFamily::Packet, SockType::Raw, flags, all);
            let socket = socket.expect("root");
            setsockopt(&socket, RcvBuf, &(4 << 20)).expect("a size");
            let index = |device: &&str| {
                let index = nix::net::if_::if_nametoindex(*device).expect("it is there");
                (index as usize, (*device).to_owned())
            };
            (socket, TUNNELS.iter().map(index).collect())
        };
        let (socket, devices) = border.enter(open).expect("it exists");
        Self { socket, devices }
    }

    /// So many packets of streams, in the order in which they left.
    pub(crate) fn left(&mut self, site: &Site, count: usize) -> Vec<Left> {
        let mut left = Vec::new();
        site.wait_for("all packets to leave", || {
            left.extend(std::iter::from_fn(|| self.next()).flatten());
            (left.len() >= count).then_some(())
        });
        left
    }

    /// The next packet that was seen, if it is one of a stream's.
    fn next(&self) -> Option<Option<Left>> {
        let mut frame = [0; 2_048];
        let (length, from) = recvfrom::<LinkAddr>(self.socket.as_raw_fd(), &mut frame).ok()?;
        let from = from?;
        Some(self.read(&frame[..length], &from))
    }

    fn read(&self, frame: &[u8], from: &LinkAddr) -> Option<Left> {
        const UDP: u8 = 17;
        let device = self.devices.get(&from.ifindex())?;
        let packet = frame.get(ETHERNET_BYTES..)?;
        let is_ours = from.pkttype() == OUTGOING && packet.first()? >> 4 == 4 && packet[9] == UDP;
        let datagram = packet.get(20..)?;
        if !is_ours || datagram.len() != 8 + PAYLOAD_BYTES {
            return None;
        }
        Some(Left {
            device: device.clone(),
            dscp: packet[1] >> 2,
            port: u16::from_be_bytes(datagram[..2].try_into().ok()?),
            number: u32::from_be_bytes(datagram[8..12].try_into().ok()?),
        })
    }
}

/// Numbered datagrams from the client to the server.
pub(crate) struct Stream {
    near: UdpSocket,
    far: UdpSocket,
    sent: u32,
}

impl Stream {
    pub(crate) fn open(site: &Site) -> Self {
        let [near, far] = [&site.topology.client, &site.topology.server].map(|host| {
            let socket = host.namespace.enter(|| UdpSocket::bind((host.ipv4, 0)));
            socket.expect("it exists").expect("a port")
        });
        near.connect(far.local_addr().expect("it has one"))
            .expect("an address");
        far.set_read_timeout(Some(PATIENCE)).expect("a setting");
        Self { near, far, sent: 0 }
    }

    pub(crate) fn port(&self) -> u16 {
        self.near.local_addr().expect("it has one").port()
    }

    pub(crate) fn send(&mut self, count: u32) {
        for _ in 0..count {
            let mut payload = [0; PAYLOAD_BYTES];
            payload[..4].copy_from_slice(&self.sent.to_be_bytes());
            self.near.send(&payload).expect("its queue holds it");
            self.sent += 1;
        }
    }

    pub(crate) fn receive_all(&mut self) {
        for _ in 0..self.sent {
            self.far.recv(&mut [0; PAYLOAD_BYTES]).expect("it arrives");
        }
    }
}
