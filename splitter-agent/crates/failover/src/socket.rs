//! UDP sockets that are bound to one tunnel: what they send leaves by its device whatever the
//! routes say, and what they receive came in by it.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::socket::sockopt::{Ipv4PacketInfo, Ipv6RecvPacketInfo, RxqOvfl};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt,
};
use socket2::{Domain, Protocol, Socket, Type};
use splitter_config::Dscp;
use splitter_health::DATAGRAM_BYTES;
use splitter_netlink::InterfaceName;
use tokio::io::Interest;
use tokio::net::UdpSocket;

use super::timestamps::{self, Control, WallClock};

/// A socket of a tunnel could not be had.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} on {device}: {source}{}", remedy(.source))]
pub struct SocketError {
    /// What was tried.
    pub action: String,
    /// The tunnel's device.
    pub device: InterfaceName,
    /// What the system said.
    pub source: io::Error,
}

fn remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::AddrInUse => {
            "; set health.port to a free one, the same at both borders, or end what uses it"
        }
        io::ErrorKind::PermissionDenied => "; run as root, or set health.port to one above 1023",
        _ => "",
    }
}

/// The device that a socket is bound to, and the mark of what it sends.
#[derive(Debug, Clone)]
pub(super) struct Binding {
    pub(super) device: InterfaceName,
    pub(super) index: u32,
    pub(super) dscp: Dscp,
    /// True if the kernel is to note when datagrams come and leave.
    pub(super) is_timed: bool,
}

impl Binding {
    /// A socket for probes to `peer`. Its source address is chosen now, from those of the device.
    pub(super) fn prober(&self, peer: IpAddr, port: u16) -> Result<ProberSocket, SocketError> {
        let open = || {
            let socket = self.open(peer)?;
            setsockopt(&socket, RxqOvfl, &1)?;
            self.request_times(&socket, true);
            socket.connect(&self.remote(peer, port).into())?;
            UdpSocket::from_std(socket.into())
        };
        open()
            .map(ProberSocket::new)
            .map_err(|source| self.failed(format!("reach {peer}"), source))
    }

    /// A socket that probes of the family of `peer` come to.
    pub(super) fn responder(
        &self,
        peer: IpAddr,
        port: u16,
    ) -> Result<ResponderSocket, SocketError> {
        let any: IpAddr = match peer {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let open = || {
            let socket = self.open(peer)?;
            match peer {
                IpAddr::V4(_) => setsockopt(&socket, Ipv4PacketInfo, &true)?,
                IpAddr::V6(_) => setsockopt(&socket, Ipv6RecvPacketInfo, &true)?,
            }
            self.request_times(&socket, false);
            socket.bind(&SocketAddr::new(any, port).into())?;
            UdpSocket::from_std(socket.into())
        };
        open()
            .map(ResponderSocket)
            .map_err(|source| self.failed(format!("listen on UDP port {port}"), source))
    }

    fn open(&self, peer: IpAddr) -> io::Result<Socket> {
        let tos = u32::from(self.dscp.tos());
        let domain = match peer {
            IpAddr::V4(_) => Domain::IPV4,
            IpAddr::V6(_) => Domain::IPV6,
        };
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        socket.bind_device(Some(self.device.as_str().as_bytes()))?;
        match peer {
            IpAddr::V4(_) => socket.set_tos_v4(tos)?,
            IpAddr::V6(_) => {
                socket.set_only_v6(true)?;
                socket.set_tclass_v6(tos)?;
            }
        }
        Ok(socket)
    }

    /// Without them probes are answered and judged alike; which are missing is counted answer by answer.
    fn request_times(&self, socket: &Socket, departures: bool) {
        if self.is_timed
            && let Err(error) = timestamps::request(socket, departures)
        {
            tracing::debug!(device = %self.device, %error, "the kernel does not note times of probes");
        }
    }

    fn remote(&self, peer: IpAddr, port: u16) -> SocketAddr {
        match peer {
            IpAddr::V6(v6) if v6.is_unicast_link_local() => {
                SocketAddrV6::new(v6, port, 0, self.index).into()
            }
            other => SocketAddr::new(other, port),
        }
    }

    fn failed(&self, action: String, source: io::Error) -> SocketError {
        SocketError {
            action,
            device: self.device.clone(),
            source,
        }
    }
}

/// A datagram that came.
#[derive(Debug, Clone, Copy)]
pub(super) struct Received {
    pub(super) length: usize,
    /// When it came, by the kernel if it told.
    pub(super) at: Instant,
    pub(super) is_kernels: bool,
}

/// Sends probes and receives answers, and knows how many of these found no room.
#[derive(Debug)]
pub(super) struct ProberSocket {
    socket: UdpSocket,
    /// As of the datagram that was received last.
    dropped: AtomicU32,
    /// How many of them were reported.
    reported: u32,
    /// As of the probe that was sent last, which the kernel may give back much later.
    clock: WallClock,
}

impl ProberSocket {
    fn new(socket: UdpSocket) -> Self {
        Self {
            socket,
            dropped: AtomicU32::new(0),
            reported: 0,
            clock: WallClock::new(),
        }
    }

    /// Sends a probe, unless the queue is full.
    pub(super) fn send(&self, probe: &[u8]) -> io::Result<usize> {
        self.clock.note();
        self.socket.try_send(probe)
    }

    /// Takes each datagram that has left of which the kernel has told the time, unless the wall clock was set meanwhile.
    pub(super) fn departures(&self, mut take: impl FnMut(&[u8], Instant)) {
        let is_steady = self.clock.is_steady();
        while timestamps::departure(&self.socket, |probe, at| {
            if is_steady {
                take(probe, at);
            }
        }) {}
    }

    /// Waits for a datagram. One that is too long fills the buffer.
    pub(super) async fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        self.socket
            .async_io(Interest::READABLE, || self.read(buffer))
            .await
    }

    /// Receives a datagram that is there already.
    pub(super) fn try_receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        self.socket.try_io(Interest::READABLE, || self.read(buffer))
    }

    /// How many datagrams have found no room since this was asked before.
    pub(super) fn new_drops(&mut self) -> u32 {
        let dropped = *self.dropped.get_mut();
        let before = std::mem::replace(&mut self.reported, dropped);
        dropped.wrapping_sub(before)
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<Received> {
        let mut control = nix::cmsg_space!(u32, Control);
        let mut parts = [IoSliceMut::new(buffer)];
        let descriptor = self.socket.as_raw_fd();
        let message = recvmsg::<SockaddrStorage>(
            descriptor,
            &mut parts,
            Some(&mut control),
            MsgFlags::empty(),
        )?;
        let mut noted = None;
        for ancillary in message.cmsgs()? {
            if let ControlMessageOwned::RxqOvfl(dropped) = ancillary {
                self.dropped.store(dropped, Ordering::Relaxed);
            }
            noted = noted.or(timestamps::noted(&ancillary));
        }
        // A clock that was set since the probe was sent tells no time of its answer.
        let noted = noted.filter(|_| self.clock.is_steady());
        let arrived = noted.and_then(timestamps::instant);
        Ok(Received {
            length: message.bytes,
            at: arrived.unwrap_or_else(Instant::now),
            is_kernels: arrived.is_some(),
        })
    }
}

/// Answers from the address that it was asked at: the peer takes an answer from no other one.
#[derive(Debug)]
pub(super) struct ResponderSocket(UdpSocket);

/// Where a request came from, and the address it came to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub(super) length: usize,
    pub(super) source: SocketAddr,
    local: Option<IpAddr>,
    /// When it came, by the wall clock, if the kernel told.
    noted: Option<Duration>,
}

impl Request {
    /// For how long it has been here, if the kernel told when it came.
    pub(super) fn stay(&self) -> Option<Duration> {
        self.noted.and_then(timestamps::since)
    }
}

impl ResponderSocket {
    /// Waits for a datagram. One that is too long fills the buffer.
    pub(super) async fn receive(
        &self,
        buffer: &mut [u8; DATAGRAM_BYTES + 1],
    ) -> io::Result<Request> {
        self.0
            .async_io(Interest::READABLE, || receive(&self.0, buffer))
            .await
    }

    /// Sends the reply to a request. When the queue is full it is left out, as if it were lost.
    pub(super) fn reply(&self, request: Request, reply: &[u8]) -> io::Result<()> {
        self.0
            .try_io(Interest::WRITABLE, || send(&self.0, request, reply))
    }
}

fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<Request> {
    let mut control = nix::cmsg_space!(libc::in6_pktinfo, Control);
    let mut parts = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::empty();
    let message =
        recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut parts, Some(&mut control), flags)?;
    let (mut local, mut noted) = (None, None);
    for ancillary in message.cmsgs()? {
        match ancillary {
            ControlMessageOwned::Ipv4PacketInfo(info) => {
                let octets = info.ipi_spec_dst.s_addr.to_ne_bytes();
                local = Some(Ipv4Addr::from(octets).into());
            }
            ControlMessageOwned::Ipv6PacketInfo(info) => {
                local = Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).into());
            }
            other => noted = noted.or(timestamps::noted(&other)),
        }
    }
    let source = message.address.as_ref().and_then(socket_address);
    Ok(Request {
        length: message.bytes,
        source: source.ok_or(io::ErrorKind::InvalidData)?,
        local,
        noted,
    })
}

fn send(socket: &UdpSocket, request: Request, reply: &[u8]) -> io::Result<()> {
    let to = SockaddrStorage::from(request.source);
    let parts = [IoSlice::new(reply)];
    let (v4, v6);
    let control = match request.local {
        Some(IpAddr::V4(local)) => {
            let address = libc::in_addr {
                s_addr: u32::from_ne_bytes(local.octets()),
            };
            v4 = libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: address,
                ipi_addr: libc::in_addr { s_addr: 0 },
            };
            Some(ControlMessage::Ipv4PacketInfo(&v4))
        }
        Some(IpAddr::V6(local)) => {
            let address = libc::in6_addr {
                s6_addr: local.octets(),
            };
            v6 = libc::in6_pktinfo {
                ipi6_addr: address,
                ipi6_ifindex: 0,
            };
            Some(ControlMessage::Ipv6PacketInfo(&v6))
        }
        None => None,
    };
    let control: Vec<_> = control.into_iter().collect();
    sendmsg(
        socket.as_raw_fd(),
        &parts,
        &control,
        MsgFlags::empty(),
        Some(&to),
    )?;
    Ok(())
}

fn socket_address(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address
        .as_sockaddr_in()
        .map(|it| SocketAddr::V4((*it).into()));
    v4.or_else(|| {
        address
            .as_sockaddr_in6()
            .map(|it| SocketAddr::V6((*it).into()))
    })
}
