//! One UDP socket: offload, ECN, DSCP, and what is done where the system has none of it.

use std::{
    io::{self, IoSliceMut},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    task::{Context, Poll, ready},
};

#[cfg(any(target_os = "linux", target_os = "android"))]
use super::icmp::Watcher;
use super::{
    BindError,
    notices::NoticeSender,
    runtime::{
        DatagramSocket, Datagrams, RECEIVE_BUFFERS, RECEIVE_BYTES, ReceiveBuffers, SocketOptions,
        code_point,
    },
    watched::{WatchedSocket, poll_receive_ready, try_receive, try_send, wait_for_room, watch},
};
use quinn_udp::{UdpSockRef, UdpSocketState};

/// Longest train of datagrams that goes through one call: what a UDP length
/// field can state less headers (IPv6).
pub(super) const TRAIN_BYTES: usize = 65_487;

/// One call receives all that there is, if there are buffers for it (recvmmsg(2)), and what comes
/// after it is announced again (edge-triggered epoll(7)).
const RECEIVES_ALL: bool = cfg!(any(target_os = "linux", target_os = "android"));

/// A bound UDP socket of the system.
#[derive(Debug)]
pub struct UdpSocket {
    io: Arc<WatchedSocket>,
    /// Hears what the network says of its datagrams.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    watcher: Option<Watcher>,
    state: UdpSocketState,
    local: SocketAddr,
    dscp: u8,
    /// Offload failed on this socket, with our own call of the system.
    is_plain: bool,
}

impl UdpSocket {
    /// Binds and prepares a socket. Needs a runtime of tokio.
    pub(super) fn bind(options: &SocketOptions) -> Result<Self, BindError> {
        let &SocketOptions { address, dscp, .. } = options;
        let error = |kind| move |source| BindError::at(address, kind, source);
        let bare = bare(options).map_err(error("bind"))?;
        let local = bare.local_addr().map_err(error("name"))?;
        let io = watch(bare).map_err(error("watch"))?;
        let state = UdpSocketState::new(UdpSockRef::from(&io)).map_err(error("prepare"))?;
        without_time_stamps(&io).map_err(error("prepare"))?;
        hear_of_unreachable(&io, &state).map_err(error("hear of unreachable addresses on"))?;
        if dscp != 0 && !cfg!(any(target_os = "linux", target_os = "android")) {
            let source = io::Error::new(io::ErrorKind::Unsupported, "only done on Linux");
            return Err(error("set the DSCP of")(source));
        }
        Ok(Self {
            io: Arc::new(io),
            #[cfg(any(target_os = "linux", target_os = "android"))]
            watcher: None,
            state,
            local,
            dscp,
            is_plain: false,
        })
    }

    /// Datagrams that one call sends.
    pub(super) fn segments(&self) -> usize {
        if self.is_plain {
            1
        } else {
            self.state.max_gso_segments()
        }
    }

    /// Sends as much of the train as goes into one call, and says how many bytes that was.
    pub(super) fn send(&self, train: &Datagrams<'_>) -> io::Result<usize> {
        let most = self.segments().max(1) * train.segment_bytes;
        let contents = &train.contents[..train.contents.len().min(most)];
        let train = Datagrams { contents, ..*train };
        try_send(&self.io, || {
            if self.dscp == 0 {
                self.send_by_quinn(&train)
            } else {
                marked::send(&self.io, &train, self.dscp)
            }
        })?;
        Ok(contents.len())
    }

    fn send_by_quinn(&self, train: &Datagrams<'_>) -> io::Result<()> {
        let contents = train.contents;
        let transmit = quinn_udp::Transmit {
            destination: train.remote,
            ecn: code_point(train.ecn),
            contents,
            segment_size: (contents.len() > train.segment_bytes).then_some(train.segment_bytes),
            src_ip: train.local,
        };
        self.state.try_send(UdpSockRef::from(&*self.io), &transmit)
    }

    /// Receives into some of the buffers. A socket that has not filled all is empty: the runtime is told
    /// so, and need not be asked by another call of the system.
    pub(super) fn receive(&self, buffers: &mut ReceiveBuffers) -> io::Result<()> {
        let ReceiveBuffers {
            memory,
            metas,
            filled,
        } = buffers;
        let mut rest = memory.chunks_mut(RECEIVE_BYTES);
        let mut slices: [IoSliceMut<'_>; RECEIVE_BUFFERS] =
            std::array::from_fn(|_| IoSliceMut::new(rest.next().unwrap_or_default()));
        *filled = 0;
        let received = try_receive(&self.io, || {
            let socket = UdpSockRef::from(&*self.io);
            *filled = self.state.recv(socket, &mut slices, metas)?;
            if RECEIVES_ALL && *filled < RECEIVE_BUFFERS {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Ok(())
        });
        match received {
            Err(error) if *filled == 0 => Err(error),
            _ => Ok(()),
        }
    }
}

impl DatagramSocket for UdpSocket {
    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        datagrams: &Datagrams<'_>,
    ) -> Poll<io::Result<usize>> {
        match self.send(datagrams) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // Where this wakes nobody, the timer does.
                wait_for_room(&self.io, context);
                Poll::Pending
            }
            sent => Poll::Ready(sent),
        }
    }

    fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
        buffers: &mut ReceiveBuffers,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(poll_receive_ready(&self.io, context));
            match self.receive(buffers) {
                // Readiness is forgotten with this answer: ask for the next.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                received => return Poll::Ready(received),
            }
        }
    }

    fn reaches(&self, remote: SocketAddr) -> bool {
        let local = self.local.ip();
        local.is_ipv4() == remote.is_ipv4() && (!local.is_loopback() || remote.ip().is_loopback())
    }

    /// None, where the socket has one address alone, or what was asked is nobody's own.
    fn reply_address(&self, asked: IpAddr) -> Option<IpAddr> {
        let is_own = match asked {
            IpAddr::V4(ip) => !ip.is_multicast() && !ip.is_broadcast(),
            IpAddr::V6(ip) => !ip.is_multicast(),
        };
        let is_any = self.local.ip().is_unspecified();
        (is_own && is_any).then_some(asked)
    }

    /// Segmentation failed, as it may at any time (EIO or EINVAL: another device,
    /// checksums off, IPsec): from now on a call for each datagram.
    fn stop_offload(&mut self) -> bool {
        let had_offload = self.has_offload();
        self.is_plain = true;
        had_offload
    }

    /// A datagram was longer than the interface takes. A train of such datagrams fails just as
    /// where there is no segmentation at all, so that it may have been abandoned for nothing.
    fn retry_offload(&mut self) {
        if self.segments() == 1
            && let Ok(state) = UdpSocketState::new(UdpSockRef::from(&*self.io))
            && without_time_stamps(&self.io).is_ok()
        {
            self.state = state;
            self.is_plain = false;
        }
    }

    fn has_offload(&self) -> bool {
        self.segments() > 1
    }

    fn buffer_bytes(&self) -> Option<usize> {
        let socket = socket2::SockRef::from(&*self.io);
        let (receive, send) = (socket.recv_buffer_size().ok()?, socket.send_buffer_size());
        let smaller = receive.min(send.ok()?);
        // Linux doubles what is asked for, for its own book-keeping, and tells that.
        Some(if cfg!(target_os = "linux") {
            smaller / 2
        } else {
            smaller
        })
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn set_notices(&mut self, notices: Option<NoticeSender>) {
        self.watcher = notices.map(|notices| Watcher::start(&self.io, notices));
    }

    /// Linux alone says which datagrams it is about.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn set_notices(&mut self, _: Option<NoticeSender>) {}
}

fn bare(options: &SocketOptions) -> io::Result<std::net::UdpSocket> {
    let &SocketOptions {
        address,
        buffer_bytes,
        ..
    } = options;
    let domain = socket2::Domain::for_address(address);
    let socket = socket2::Socket::new(domain, socket2::Type::DGRAM, Some(socket2::Protocol::UDP))?;
    if matches!(address.ip(), IpAddr::V6(_)) {
        // IPv4 has sockets of its own: one address of a peer, one way to write it.
        socket.set_only_v6(true)?;
    }
    if options.shares_port {
        share_port(&socket)?;
    }
    // As much as the system gives; the caller looks and warns.
    let _ = socket.set_recv_buffer_size(buffer_bytes);
    let _ = socket.set_send_buffer_size(buffer_bytes);
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Linux spreads peers over all sockets of the port, by a hash of addresses and ports.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn share_port(socket: &socket2::Socket) -> io::Result<()> {
    socket.set_reuse_port(true)
}

/// Others leave all to the socket that was bound last, or take no such option.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn share_port(_: &socket2::Socket) -> io::Result<()> {
    let reason = "ports are shared on Linux alone";
    Err(io::Error::new(io::ErrorKind::Unsupported, reason))
}

/// quinn-udp 0.6.3 asks for time stamps, which take the capacity in its buffer for
/// control messages that ECN would need with GRO. We have no use for them.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn without_time_stamps(io: &WatchedSocket) -> io::Result<()> {
    use nix::sys::socket::{setsockopt, sockopt};
    Ok(setsockopt(io, sockopt::ReceiveTimestampns, &false)?)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn without_time_stamps(_: &WatchedSocket) -> io::Result<()> {
    Ok(())
}

/// Asks for what the network says of datagrams that it could not deliver. Linux alone says which these
/// were; elsewhere calls fail now and then, which is counted, and dead paths are found by their silence.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn hear_of_unreachable(io: &WatchedSocket, state: &UdpSocketState) -> io::Result<()> {
    state.enable_transport_errors(UdpSockRef::from(io))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn hear_of_unreachable(_: &WatchedSocket, _: &UdpSocketState) -> io::Result<()> {
    Ok(())
}

/// quinn-udp states the whole octet of traffic class with each datagram, with no
/// code point, which outweighs what is set for the socket. So with a code point we
/// call the system ourselves.
#[cfg(any(target_os = "linux", target_os = "android"))]
mod marked {
    use std::{
        io::{self, IoSlice},
        net::IpAddr,
    };

    use super::{Datagrams, WatchedSocket};
    use cloudburst_proto::Ecn;
    use nix::libc;
    use socket2::{MsgHdr, SockAddr, SockRef};

    pub(super) fn send(io: &WatchedSocket, train: &Datagrams<'_>, dscp: u8) -> io::Result<()> {
        let contents = train.contents;
        let ecn = match train.ecn {
            Ecn::Capable => 0b10,
            Ecn::CongestionExperienced => 0b11,
            _ => 0b00,
        };
        let class = i32::from(dscp << 2 | ecn);
        let mut control = Control {
            bytes: [0; MOST_CONTROL_BYTES],
            len: 0,
        };
        match train.remote.is_ipv4() {
            true => control.push(libc::IPPROTO_IP, libc::IP_TOS, &class.to_ne_bytes()),
            false => control.push(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &class.to_ne_bytes()),
        }
        if contents.len() > train.segment_bytes {
            let segment = train.segment_bytes as u16;
            control.push(libc::SOL_UDP, libc::UDP_SEGMENT, &segment.to_ne_bytes());
        }
        match train.local {
            // As `in_pktinfo` and `in6_pktinfo` lay it out, on no interface in particular: ip(7),
            // RFC 3542 §6.2.
            Some(IpAddr::V4(ip)) => {
                let mut packet_info = [0; 12];
                packet_info[4..8].copy_from_slice(&ip.octets());
                control.push(libc::IPPROTO_IP, libc::IP_PKTINFO, &packet_info);
            }
            Some(IpAddr::V6(ip)) => {
                let mut packet_info = [0; 20];
                packet_info[..16].copy_from_slice(&ip.octets());
                control.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &packet_info);
            }
            None => {}
        }
        let (remote, contents) = (SockAddr::from(train.remote), [IoSlice::new(contents)]);
        let message = MsgHdr::new()
            .with_addr(&remote)
            .with_buffers(&contents)
            .with_control(&control.bytes[..control.len]);
        loop {
            match SockRef::from(io).sendmsg(&message, 0) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result.map(drop),
            }
        }
    }

    /// Traffic class, segment and source address, each with its header: 24, 24 and 40 bytes.
    const MOST_CONTROL_BYTES: usize = 88;

    /// Control messages as cmsg(3) lays them out: length, level, type, data, each
    /// message at a multiple of the length's size.
    struct Control {
        bytes: [u8; MOST_CONTROL_BYTES],
        len: usize,
    }

    impl Control {
        fn push(&mut self, level: i32, kind: i32, data: &[u8]) {
            const LENGTH: usize = size_of::<usize>();
            const HEADER: usize = LENGTH + 8;
            let message = &mut self.bytes[self.len..];
            message[..LENGTH].copy_from_slice(&(HEADER + data.len()).to_ne_bytes());
            message[LENGTH..LENGTH + 4].copy_from_slice(&level.to_ne_bytes());
            message[LENGTH + 4..HEADER].copy_from_slice(&kind.to_ne_bytes());
            message[HEADER..HEADER + data.len()].copy_from_slice(data);
            self.len += HEADER + data.len().next_multiple_of(LENGTH);
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod marked {
    use std::io;

    use super::{Datagrams, WatchedSocket};

    pub(super) fn send(_: &WatchedSocket, _: &Datagrams<'_>, _: u8) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
#[path = "socket_tests.rs"]
mod tests;
