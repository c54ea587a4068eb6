//! One UDP socket: offload, ECN, DSCP, and what is done where the system has none of it.

use std::{
    io::{self, IoSliceMut},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use super::{
    BindError,
    watched::{WatchedSocket, try_receive, try_send, watch},
};
use cloudburst_proto::Ecn;
use quinn_udp::{EcnCodepoint, RecvMeta, UdpSockRef, UdpSocketState};

/// Longest train of datagrams that goes through one call: what a UDP length
/// field can state less headers (IPv6).
pub(super) const TRAIN_BYTES: usize = 65_487;
/// The kernel joins at most so much into one buffer (GRO).
const RECEIVE_BYTES: usize = 1 << 16;
/// Buffers for one call of receive: half a mebibyte stays in the second-level cache.
const RECEIVE_BUFFERS: usize = 8;

/// One call receives all that there is, if there are buffers for it (recvmmsg(2)), and what comes
/// after it is announced again (edge-triggered epoll(7)).
const RECEIVES_ALL: bool = cfg!(any(target_os = "linux", target_os = "android"));

/// A bound socket.
#[derive(Debug)]
pub(super) struct Socket {
    io: Arc<WatchedSocket>,
    state: UdpSocketState,
    local: SocketAddr,
    dscp: u8,
    /// Offload failed on this socket, with our own call of the system.
    is_plain: bool,
}

/// Datagrams to one address, of which those before `offset` have been sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Train {
    /// The address of ours that they leave from; nothing leaves it to the system.
    pub(super) local: Option<IpAddr>,
    pub(super) remote: SocketAddr,
    pub(super) ecn: Ecn,
    pub(super) segment_bytes: usize,
    pub(super) offset: usize,
    pub(super) end: usize,
}

impl Socket {
    /// Binds and prepares a socket. Needs a runtime of tokio.
    pub(super) fn bind(
        address: SocketAddr,
        dscp: u8,
        buffer_bytes: usize,
    ) -> Result<Self, BindError> {
        let error = |kind| move |source| BindError::at(address, kind, source);
        let bare = bare(address, buffer_bytes).map_err(error("bind"))?;
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
            state,
            local,
            dscp,
            is_plain: false,
        })
    }

    pub(super) const fn local(&self) -> SocketAddr {
        self.local
    }

    pub(super) fn io(&self) -> &Arc<WatchedSocket> {
        &self.io
    }

    /// The smaller of the kernel's two buffers, in bytes.
    pub(super) fn buffer_bytes(&self) -> io::Result<usize> {
        let socket = socket2::SockRef::from(&*self.io);
        let smaller = socket.recv_buffer_size()?.min(socket.send_buffer_size()?);
        // Linux doubles what is asked for, for its own book-keeping, and tells that.
        Ok(if cfg!(target_os = "linux") {
            smaller / 2
        } else {
            smaller
        })
    }

    /// The address that answers leave from, to a datagram that was sent to `asked`; nothing, where
    /// the socket has one address alone, or what was asked is nobody's own.
    pub(super) fn asked_address(&self, asked: Option<IpAddr>) -> Option<IpAddr> {
        let is_own = |ip: &IpAddr| match ip {
            IpAddr::V4(ip) => !ip.is_multicast() && !ip.is_broadcast(),
            IpAddr::V6(ip) => !ip.is_multicast(),
        };
        let is_any = self.local.ip().is_unspecified();
        asked.filter(is_own).filter(|_| is_any)
    }

    /// Whether a datagram can go from here to there.
    pub(super) fn reaches(&self, remote: SocketAddr) -> bool {
        let local = self.local.ip();
        local.is_ipv4() == remote.is_ipv4() && (!local.is_loopback() || remote.ip().is_loopback())
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
    pub(super) fn send(&mut self, train: &Train, bytes: &[u8]) -> io::Result<usize> {
        let rest = &bytes[train.offset..train.end];
        let most = self.segments().max(1) * train.segment_bytes;
        let contents = &rest[..rest.len().min(most)];
        try_send(&self.io, || {
            if self.dscp == 0 {
                self.send_by_quinn(train, contents)
            } else {
                marked::send(&self.io, train, contents, self.dscp)
            }
        })?;
        Ok(contents.len())
    }

    fn send_by_quinn(&self, train: &Train, contents: &[u8]) -> io::Result<()> {
        let transmit = quinn_udp::Transmit {
            destination: train.remote,
            ecn: code_point(train.ecn),
            contents,
            segment_size: (contents.len() > train.segment_bytes).then_some(train.segment_bytes),
            src_ip: train.local,
        };
        self.state.try_send(UdpSockRef::from(&*self.io), &transmit)
    }

    /// Segmentation failed, as it may at any time (EIO or EINVAL: another device,
    /// checksums off, IPsec): from now on a call for each datagram.
    pub(super) fn stop_offload(&mut self) {
        self.is_plain = true;
    }

    /// A datagram was longer than the interface takes. A train of such datagrams fails just as
    /// where there is no segmentation at all, so that it may have been abandoned for nothing.
    pub(super) fn retry_offload(&mut self) {
        if self.segments() == 1
            && let Ok(state) = UdpSocketState::new(UdpSockRef::from(&*self.io))
            && without_time_stamps(&self.io).is_ok()
        {
            self.state = state;
            self.is_plain = false;
        }
    }

    /// Receives into some of the buffers, and says into how many. A socket that has not filled all is
    /// empty: the runtime is told so, and need not be asked by another call of the system.
    pub(super) fn receive(&self, buffers: &mut Buffers) -> io::Result<usize> {
        let Buffers { memory, metas } = buffers;
        let mut rest = memory.chunks_mut(RECEIVE_BYTES);
        let mut slices: [IoSliceMut<'_>; RECEIVE_BUFFERS] =
            std::array::from_fn(|_| IoSliceMut::new(rest.next().unwrap_or_default()));
        let mut filled = 0;
        let received = try_receive(&self.io, || {
            let socket = UdpSockRef::from(&*self.io);
            filled = self.state.recv(socket, &mut slices, metas)?;
            if RECEIVES_ALL && filled < RECEIVE_BUFFERS {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Ok(())
        });
        match received {
            Err(error) if filled == 0 => Err(error),
            _ => Ok(filled),
        }
    }
}

/// Addresses of a datagram that has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses {
    /// The address of ours that it was sent to, where the system tells.
    pub(super) local: Option<IpAddr>,
    pub(super) remote: SocketAddr,
}

/// Memory that datagrams are received into, the same all the time.
#[derive(Debug)]
pub(super) struct Buffers {
    memory: Vec<u8>,
    metas: [RecvMeta; RECEIVE_BUFFERS],
}

impl Buffers {
    pub(super) fn new() -> Self {
        Self {
            memory: vec![0; RECEIVE_BUFFERS * RECEIVE_BYTES],
            metas: [RecvMeta::default(); RECEIVE_BUFFERS],
        }
    }

    /// Puts datagrams into the buffers, one in each, as long as there are any; says into how many.
    pub(super) fn fill(
        &mut self,
        mut next: impl FnMut() -> Option<(SocketAddr, Ecn, Box<[u8]>)>,
    ) -> usize {
        let buffers = self.memory.chunks_mut(RECEIVE_BYTES).zip(&mut self.metas);
        let mut filled = 0;
        for (buffer, meta) in buffers {
            let Some((remote, ecn, datagram)) = next() else {
                break;
            };
            buffer[..datagram.len()].copy_from_slice(&datagram);
            *meta = RecvMeta::default();
            (meta.addr, meta.len, meta.stride) = (remote, datagram.len(), datagram.len());
            meta.ecn = code_point(ecn);
            filled += 1;
        }
        filled
    }

    /// Each datagram in the first `filled` buffers, with its addresses and mark.
    pub(super) fn datagrams(
        &mut self,
        filled: usize,
    ) -> impl Iterator<Item = (Addresses, Ecn, &mut [u8])> {
        self.memory
            .chunks_mut(RECEIVE_BYTES)
            .zip(&self.metas)
            .take(filled)
            .flat_map(|(buffer, meta)| {
                let ecn = match meta.ecn {
                    None => Ecn::NotCapable,
                    Some(EcnCodepoint::Ce) => Ecn::CongestionExperienced,
                    Some(_) => Ecn::Capable,
                };
                let addresses = Addresses {
                    local: meta.dst_ip,
                    remote: meta.addr,
                };
                buffer[..meta.len]
                    .chunks_mut(meta.stride.max(1))
                    .map(move |datagram| (addresses, ecn, datagram))
            })
    }
}

const fn code_point(ecn: Ecn) -> Option<EcnCodepoint> {
    match ecn {
        Ecn::NotCapable => None,
        Ecn::Capable => Some(EcnCodepoint::Ect0),
        Ecn::CongestionExperienced => Some(EcnCodepoint::Ce),
    }
}

fn bare(address: SocketAddr, buffer_bytes: usize) -> io::Result<std::net::UdpSocket> {
    let domain = socket2::Domain::for_address(address);
    let socket = socket2::Socket::new(domain, socket2::Type::DGRAM, Some(socket2::Protocol::UDP))?;
    if matches!(address.ip(), IpAddr::V6(_)) {
        // IPv4 has sockets of its own: one address of a peer, one way to write it.
        socket.set_only_v6(true)?;
    }
    // As much as the system gives; the caller looks and warns.
    let _ = socket.set_recv_buffer_size(buffer_bytes);
    let _ = socket.set_send_buffer_size(buffer_bytes);
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
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

    use super::{Train, WatchedSocket};
    use cloudburst_proto::Ecn;
    use nix::libc;
    use socket2::{MsgHdr, SockAddr, SockRef};

    pub(super) fn send(
        io: &WatchedSocket,
        train: &Train,
        contents: &[u8],
        dscp: u8,
    ) -> io::Result<()> {
        let ecn = match train.ecn {
            Ecn::NotCapable => 0b00,
            Ecn::Capable => 0b10,
            Ecn::CongestionExperienced => 0b11,
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

    use super::{Train, WatchedSocket};

    pub(super) fn send(_: &WatchedSocket, _: &Train, _: &[u8], _: u8) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
#[path = "socket_tests.rs"]
mod tests;
