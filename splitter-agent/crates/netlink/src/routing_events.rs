//! Notifications of what decides where packets go: rules, routes, next hop objects, devices and
//! addresses.

use std::fmt;
use std::io;

use rtnetlink::MulticastGroup;
use rtnetlink::sys::protocols::NETLINK_ROUTE;
use rtnetlink::sys::{AsyncSocket as _, AsyncSocketExt as _, TokioSocket};

use crate::NetlinkError;

/// All that changes where packets go.
const GROUPS: [MulticastGroup; 8] = [
    MulticastGroup::Link,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv4Rule,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv6Route,
    MulticastGroup::Ipv6Rule,
    MulticastGroup::Nexthop,
];

/// Tells that a rule, a route, a next hop object, a device or an address has changed; what has become
/// of it is to be asked. Messages are looked at, not decoded: a routing daemon sends thousands.
pub struct RoutingEvents {
    socket: TokioSocket,
    ignored: Option<u8>,
}

impl RoutingEvents {
    /// Listens in the network namespace of this thread.
    ///
    /// # Errors
    /// [`NetlinkError::Open`].
    pub fn listen() -> Result<Self, NetlinkError> {
        Ok(Self {
            socket: socket().map_err(NetlinkError::Open)?,
            ignored: None,
        })
    }

    /// Passes over routes with this number in their protocol field: those of the listener itself.
    #[must_use]
    pub fn ignoring(self, protocol: u8) -> Self {
        Self {
            ignored: Some(protocol),
            ..self
        }
    }

    /// Waits for an event. Also returns where some have been lost.
    pub async fn next(&mut self) {
        loop {
            let mut datagram = Vec::with_capacity(DATAGRAM_BYTES);
            match self.socket.recv(&mut datagram).await {
                Ok(()) if !is_event(&datagram, self.ignored) => {}
                Ok(()) => return,
                Err(error) if is_loss(&error) => return,
                // The socket broke. Who waits also looks from time to time.
                Err(_) => std::future::pending().await,
            }
        }
    }

    /// Forgets what has come by now.
    pub fn drain(&mut self) {
        loop {
            let mut datagram = Vec::with_capacity(DATAGRAM_BYTES);
            match self.socket.socket_ref().recv(&mut datagram, 0) {
                Ok(_) => {}
                Err(error) if is_loss(&error) => {}
                Err(_) => return,
            }
        }
    }
}

fn socket() -> io::Result<TokioSocket> {
    let mut socket = TokioSocket::new(NETLINK_ROUTE)?;
    let inner = socket.socket_mut();
    inner.bind_auto()?;
    for group in GROUPS {
        match inner.add_membership(group as u32) {
            // Before Linux 5.3 there are none of these.
            Err(_) if group == MulticastGroup::Nexthop => {}
            result => result?,
        }
    }
    Ok(socket)
}

/// The buffer was full: something has changed that is not known.
fn is_loss(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOBUFS)
}

fn is_event(datagram: &[u8], ignored: Option<u8>) -> bool {
    let mut rest = datagram;
    while let Some((length, kind)) = header(rest) {
        let body = rest.get(HEADER_BYTES..length).unwrap_or_default();
        if !is_route(kind) || is_event_of_route(body, ignored) {
            return true;
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    false
}

fn is_event_of_route(body: &[u8], ignored: Option<u8>) -> bool {
    let flags = body.get(RTM_FLAGS..).and_then(|it| it.first_chunk());
    let flags = flags.copied().map_or(0, u32::from_ne_bytes);
    // What the kernel has learnt of a path's MTU is no route of anybody's.
    if flags & RTM_F_CLONED != 0 {
        return false;
    }
    let protocol = body.get(RTM_PROTOCOL).copied();
    ignored.is_none() || protocol != ignored
}

fn header(message: &[u8]) -> Option<(usize, u16)> {
    let length = u32::from_ne_bytes(*message.first_chunk()?) as usize;
    let kind = u16::from_ne_bytes(*message.get(4..)?.first_chunk()?);
    (length >= HEADER_BYTES).then_some((length, kind))
}

const fn is_route(kind: u16) -> bool {
    kind == RTM_NEWROUTE || kind == RTM_DELROUTE
}

impl fmt::Debug for RoutingEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoutingEvents")
            .field("ignored", &self.ignored)
            .finish_non_exhaustive()
    }
}

/// A notification is at most this long (`NLMSG_GOODSIZE` of linux/netlink.h).
const DATAGRAM_BYTES: usize = 8_192;
/// `struct nlmsghdr` of linux/netlink.h.
const HEADER_BYTES: usize = 16;
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
/// Places in `struct rtmsg` of linux/rtnetlink.h.
const RTM_PROTOCOL: usize = 5;
const RTM_FLAGS: usize = 8;
const RTM_F_CLONED: u32 = 0x200;

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, protocol: u8, flags: u32) -> Vec<u8> {
        let mut body = vec![2, 24, 0, 0, 254, protocol, 0, 1];
        body.extend(flags.to_ne_bytes());
        let length = u32::try_from(HEADER_BYTES + body.len()).unwrap();
        let mut message = length.to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.extend([0; 10]);
        message.extend(body);
        message
    }

    #[test]
    fn routes_of_the_listener_are_passed_over_and_all_else_is_an_event() {
        let own = message(RTM_NEWROUTE, 94, 0);
        assert!(!is_event(&own, Some(94)));
        assert!(is_event(&own, None));
        assert!(is_event(&message(RTM_DELROUTE, 186, 0), Some(94)));
        assert!(is_event(&message(32, 94, 0), Some(94)), "a rule");
        let both = [own.clone(), message(RTM_NEWROUTE, 4, 0)].concat();
        assert!(is_event(&both, Some(94)));
        assert!(!is_event(&[own.clone(), own].concat(), Some(94)));
    }

    #[test]
    fn entry_that_the_kernel_has_learnt_is_no_event() {
        assert!(!is_event(&message(RTM_NEWROUTE, 2, RTM_F_CLONED), None));
    }
}
