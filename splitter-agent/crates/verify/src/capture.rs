//! What passes on all devices between two addresses, in both directions, as packet sockets show it.
//!
//! A packet that leaves is shown when its device takes it, behind the queues; one that comes in before
//! the border has looked at it.

use std::io::{self, IoSliceMut};
use std::net::IpAddr;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::ReceiveTimestampns;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType,
    recvmsg, setsockopt, socket,
};
use nix::sys::time::TimeSpec;
use socket2::SockRef;
use splitter_policy::dscp::Dscp;
use splitter_policy::fwmark::MarkBits;

use crate::filter::{FwmarkIs, SNAP_BYTES, between};

/// Shows what passes between two addresses.
#[derive(Debug)]
pub(crate) struct Capture {
    sockets: Vec<(OwnedFd, Option<u8>)>,
}

/// A packet that has passed.
#[derive(Debug)]
pub(crate) struct Captured {
    /// The device's number.
    pub(crate) device: u32,
    pub(crate) is_leaving: bool,
    /// The number of the mark in the fwmark's bits; `None` where no known one is there, or none was
    /// asked for.
    pub(crate) fwmark: Option<u8>,
    /// By the clock of the day.
    pub(crate) at: Duration,
    /// From the network header on, the payload cut off.
    pub(crate) bytes: Vec<u8>,
}

impl Capture {
    /// Opens it. With `fwmarks` the fwmark of each packet is told, as far as it is one of these: a
    /// packet socket does not show it, but the kernel's filter can look at it.
    ///
    /// # Errors
    /// `EPERM` without CAP_NET_RAW.
    pub(crate) fn open(
        one: IpAddr,
        other: IpAddr,
        fwmarks: Option<(MarkBits, &[u8])>,
    ) -> io::Result<Self> {
        let mut sockets = Vec::new();
        let Some((bits, marks)) = fwmarks else {
            sockets.push((open(one, other, &FwmarkIs::Any)?, None));
            return Ok(Self { sockets });
        };
        let mask = bits.mask();
        let value = |mark: &u8| bits.of(Dscp::new(*mark).unwrap_or(Dscp::NONE));
        for mark in marks {
            let filter = FwmarkIs::Exactly {
                mask,
                value: value(mark),
            };
            sockets.push((open(one, other, &filter)?, Some(*mark)));
        }
        let values = marks.iter().map(value).collect();
        sockets.push((open(one, other, &FwmarkIs::NoneOf { mask, values })?, None));
        Ok(Self { sockets })
    }

    /// The packets that have passed since this was asked before; waits for one until `deadline`.
    pub(crate) fn next(&self, deadline: Instant) -> io::Result<Vec<Captured>> {
        let mut polled: Vec<_> = self
            .sockets
            .iter()
            .map(|(socket, _)| PollFd::new(socket.as_fd(), PollFlags::POLLIN))
            .collect();
        let left = deadline.saturating_duration_since(Instant::now());
        // A part of a millisecond counts as one.
        let left = left + Duration::from_micros(999);
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        match poll(&mut polled, timeout) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut captured = Vec::new();
        for (socket, fwmark) in &self.sockets {
            while let Some(packet) = receive(socket, *fwmark)? {
                captured.push(packet);
            }
        }
        // Of several sockets.
        captured.sort_by_key(|it: &Captured| it.at);
        Ok(captured)
    }
}

fn open(one: IpAddr, other: IpAddr, mark: &FwmarkIs) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(
        AddressFamily::Packet,
        SockType::Datagram,
        flags,
        SockProtocol::EthAll,
    )?;
    SockRef::from(&socket).attach_filter(&between(one, other, mark))?;
    setsockopt(&socket, ReceiveTimestampns, &true)?;
    Ok(socket)
}

/// `None` when there is no more.
fn receive(socket: &OwnedFd, fwmark: Option<u8>) -> io::Result<Option<Captured>> {
    /// A device sends it (PACKET_OUTGOING of linux/if_packet.h).
    const OUTGOING: u8 = 4;
    let mut bytes = vec![0; SNAP_BYTES as usize];
    let mut control = nix::cmsg_space!(TimeSpec);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let flags = MsgFlags::empty();
    let message =
        match recvmsg::<LinkAddr>(socket.as_raw_fd(), &mut parts, Some(&mut control), flags) {
            Ok(message) => message,
            Err(nix::Error::EAGAIN) => return Ok(None),
            // A device went down; the socket goes on.
            Err(nix::Error::ENETDOWN) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
    let stamp = message.cmsgs()?.find_map(|it| match it {
        ControlMessageOwned::ScmTimestampns(stamp) => Some(Duration::from(stamp)),
        _ => None,
    });
    let (length, from) = (message.bytes, message.address);
    let from = from.ok_or(io::ErrorKind::InvalidData)?;
    bytes.truncate(length);
    Ok(Some(Captured {
        device: from.ifindex() as u32,
        is_leaving: from.pkttype() == OUTGOING,
        fwmark,
        at: stamp.unwrap_or_default(),
        bytes,
    }))
}
