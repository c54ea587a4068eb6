//! What the network says of datagrams it could not deliver.
//!
//! A socket that is not connected hears of it through its error queue alone
//! (IP_RECVERR, ip(7)), where each notice bears the address that the datagram went
//! to. The runtime wakes readers and writers for datagrams, not for errors: so each
//! socket has a task that does nothing else, and that sleeps while all is well.

use std::{
    io::{self, IoSliceMut},
    net::SocketAddr,
    os::fd::AsRawFd as _,
    sync::Arc,
};

use nix::{
    libc,
    sys::socket::{ControlMessageOwned, MsgFlags, SockaddrLike as _, SockaddrStorage, recvmsg},
};
use tokio::{io::Interest, task::JoinHandle};

use super::{
    notices::{NoticeSender, QUOTED_BYTES},
    watched::WatchedSocket,
};
use cloudburst_proto::IcmpKind;

/// A task that reports what the network says of a socket's datagrams, and ends with this.
#[derive(Debug)]
pub(super) struct Watcher(JoinHandle<()>);

impl Watcher {
    pub(super) fn start(socket: &Arc<WatchedSocket>, notices: NoticeSender) -> Self {
        Self(tokio::spawn(watch(Arc::clone(socket), notices)))
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Tells of all notices, until the runtime ends.
async fn watch(socket: Arc<WatchedSocket>, notices: NoticeSender) {
    while socket.ready(Interest::ERROR).await.is_ok() {
        while let Ok(found) = socket.try_io(Interest::ERROR, |_| read(&socket)) {
            if let Some((remote, kind, quoted, quoted_bytes)) = found {
                notices.report(remote, kind, &quoted[..quoted_bytes]);
            }
        }
    }
}

/// The address that a datagram went to, what is said of it, and the beginning of its payload.
type Found = (SocketAddr, IcmpKind, [u8; QUOTED_BYTES], usize);

/// One notice; none if it is of no use. [`io::ErrorKind::WouldBlock`] when there are no more.
fn read(socket: &WatchedSocket) -> io::Result<Option<Found>> {
    let mut quoted = [0; QUOTED_BYTES];
    let mut payload = [IoSliceMut::new(&mut quoted)];
    // The error is one of several control messages: time stamp, traffic class and more.
    let mut control = [0; 512];
    let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
    let message =
        recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut payload, Some(&mut control), flags)?;
    let Some(remote) = message.address.as_ref().and_then(address) else {
        return Ok(None);
    };
    let mut cmsgs = message.cmsgs()?;
    let kind = cmsgs.find_map(|cmsg| match cmsg {
        ControlMessageOwned::Ipv4RecvErr(error, _) => kind(&error, IPV4_HEADERS),
        ControlMessageOwned::Ipv6RecvErr(error, _) => kind(&error, IPV6_HEADERS),
        _ => None,
    });
    let bytes = message.bytes.min(QUOTED_BYTES);
    Ok(kind.map(|kind| (remote, kind, quoted, bytes)))
}

/// Bytes of the headers of IP and UDP (RFC 791, RFC 8200, RFC 768).
const IPV4_HEADERS: usize = 28;
const IPV6_HEADERS: usize = 48;

fn address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    match storage.family()? {
        nix::sys::socket::AddressFamily::Inet => {
            Some(SocketAddr::V4((*storage.as_sockaddr_in()?).into()))
        }
        nix::sys::socket::AddressFamily::Inet6 => {
            Some(SocketAddr::V6((*storage.as_sockaddr_in6()?).into()))
        }
        _ => None,
    }
}

/// Only what comes from the network: local errors are the answer of the call itself.
fn kind(error: &libc::sock_extended_err, headers: usize) -> Option<IcmpKind> {
    match (error.ee_origin, error.ee_type, error.ee_code) {
        // RFC 792, RFC 4443: fragmentation needed, packet too big.
        (libc::SO_EE_ORIGIN_ICMP, 3, 4) | (libc::SO_EE_ORIGIN_ICMP6, 2, _) => {
            let longest = (error.ee_info as usize).saturating_sub(headers);
            Some(IcmpKind::TooBig { longest })
        }
        (libc::SO_EE_ORIGIN_ICMP, 3, _) | (libc::SO_EE_ORIGIN_ICMP6, 1, _) => {
            Some(IcmpKind::Unreachable)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        notices,
        runtime::{DatagramSocket as _, Datagrams, SocketOptions},
        socket::UdpSocket,
    };
    use cloudburst_proto::{FourTuple, SocketId};

    #[tokio::test]
    async fn a_closed_port_is_reported_with_its_address() {
        for local in ["127.0.0.1:0", "[::1]:0"] {
            let local: SocketAddr = local.parse().unwrap();
            let Ok(mut socket) = UdpSocket::bind(&SocketOptions::new(local)) else {
                println!("skipped: no {local} here");
                continue;
            };
            let closed = std::net::UdpSocket::bind(local)
                .unwrap()
                .local_addr()
                .unwrap();
            let (reported, mut heard) = notices::channel();
            socket.set_notices(Some(NoticeSender::new(SocketId(3), reported)));

            socket.send(&Datagrams::one(closed, b"hello")).unwrap();
            let heard = tokio::time::timeout(std::time::Duration::from_secs(5), heard.recv());
            let four_tuple = FourTuple::new(SocketId(3), closed);
            let notice = heard.await.unwrap().expect("the task goes on");
            assert_eq!(notice.four_tuple, four_tuple);
            assert_eq!(notice.kind, IcmpKind::Unreachable);
            assert_eq!(notice.quoted(), b"hello", "what was sent");
        }
    }
}
