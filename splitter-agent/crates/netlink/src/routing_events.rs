//! Notifications of what decides where packets go: rules, routes, next hop objects, devices and
//! addresses.

use std::fmt;
use std::io;

use netlink_packet_route::route::RouteMessage;
use nix::sys::socket::{setsockopt, sockopt};
use rtnetlink::MulticastGroup;
use rtnetlink::packet_core::{NLM_F_EXCL, NLM_F_REPLACE, Parseable as _};
use rtnetlink::sys::protocols::NETLINK_ROUTE;
use rtnetlink::sys::{AsyncSocket as _, AsyncSocketExt as _, Socket, TokioSocket};

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

/// A notification takes about a kilobyte of the socket's buffer; so many are kept while nobody reads.
/// Without the right to have them (`CAP_NET_ADMIN`) it is what the system gives.
const BUFFER_BYTES: usize = 16 << 20;

/// Tells that a rule, a route, a next hop object, a device or an address has changed.
pub struct RoutingEvents {
    socket: TokioSocket,
    ignored: Option<u8>,
    /// The notification that ended the last wait.
    first: Option<First>,
}

/// Describes one notification of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RoutingEvent {
    /// A route of the main table was added.
    Added {
        /// The route.
        route: RouteMessage,
        /// What becomes of others of its destination and metric.
        addition: Addition,
    },
    /// A route of the main table was removed.
    Removed(RouteMessage),
    /// A device, an address or a next hop object has changed, with which the kernel also changes routes
    /// without a notification of its own.
    Other,
    /// Notifications were lost: anything may have changed.
    Lost,
}

/// Says what becomes of the routes with the destination and the metric of one that is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addition {
    /// There were none.
    Only,
    /// One of them is replaced.
    Replacement,
    /// They stay, or there are none.
    Further,
}

enum First {
    Datagram(Vec<u8>),
    Loss,
}

impl RoutingEvents {
    /// Listens in the network namespace of this thread.
    ///
    /// # Errors
    /// [`NetlinkError::Open`].
    pub fn listen() -> Result<Self, NetlinkError> {
        Ok(Self {
            socket: tokio_socket(&GROUPS).map_err(NetlinkError::Open)?,
            ignored: None,
            first: None,
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
        let mut datagram = Vec::with_capacity(DATAGRAM_BYTES);
        while self.first.is_none() {
            datagram.clear();
            match self.socket.recv(&mut datagram).await {
                Ok(()) if !is_event(&datagram, self.ignored) => {}
                Ok(()) => self.first = Some(First::Datagram(std::mem::take(&mut datagram))),
                Err(error) if is_loss(&error) => self.first = Some(First::Loss),
                // The socket broke. Who waits also looks from time to time.
                Err(_) => std::future::pending().await,
            }
        }
    }

    /// Hands over what has come by now, the oldest first: what concerns the main table.
    pub fn take(&mut self, mut see: impl FnMut(RoutingEvent)) {
        let ignored = self.ignored;
        let mut decode = |message: Option<Message<'_>>| {
            let event = match message {
                Some(message) => message.event(ignored),
                None => Some(RoutingEvent::Lost),
            };
            event.into_iter().for_each(&mut see);
        };
        match self.first.take() {
            Some(First::Datagram(datagram)) => for_each(&datagram, |it| decode(Some(it))),
            Some(First::Loss) => decode(None),
            None => {}
        }
        for_each_waiting(self.socket.socket_ref(), decode);
    }

    /// Forgets what has come by now.
    pub fn drain(&mut self) {
        self.first = None;
        for_each_waiting(self.socket.socket_ref(), |_| ());
    }
}

/// Hands over the messages that wait in a socket that does not block, and nothing for a loss.
pub(crate) fn for_each_waiting(socket: &Socket, mut see: impl FnMut(Option<Message<'_>>)) {
    let mut datagram = Vec::with_capacity(DATAGRAM_BYTES);
    loop {
        datagram.clear();
        match socket.recv(&mut datagram, 0) {
            Ok(_) => for_each(&datagram, |message| see(Some(message))),
            Err(error) if is_loss(&error) => see(None),
            Err(_) => return,
        }
    }
}

/// A socket that is notified, and does not block.
pub(crate) fn socket() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.set_non_blocking(true)?;
    subscribe(&mut socket, &GROUPS)?;
    Ok(socket)
}

pub(crate) fn tokio_socket(groups: &[MulticastGroup]) -> io::Result<TokioSocket> {
    let mut socket = TokioSocket::new(NETLINK_ROUTE)?;
    subscribe(socket.socket_mut(), groups)?;
    Ok(socket)
}

fn subscribe(socket: &mut Socket, groups: &[MulticastGroup]) -> io::Result<()> {
    // A smaller one overflows sooner, which is noticed.
    let _ = setsockopt(&*socket, sockopt::RcvBufForce, &BUFFER_BYTES);
    socket.bind_auto()?;
    for group in groups.iter().copied() {
        match socket.add_membership(group as u32) {
            // Before Linux 5.3 there are none of these.
            Err(_) if group == MulticastGroup::Nexthop => {}
            result => result?,
        }
    }
    Ok(())
}

/// The buffer was full: something has changed that is not known.
pub(crate) fn is_loss(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOBUFS)
}

fn is_event(datagram: &[u8], ignored: Option<u8>) -> bool {
    let mut is_event = false;
    for_each(datagram, |message| {
        is_event |= !(message.is_learnt() || message.is_route_of(ignored));
    });
    is_event
}

/// A notification, of which no more is decoded than is asked for: a routing daemon causes thousands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message<'d> {
    kind: u16,
    flags: u16,
    /// Who has made the change, by the number of the socket; 0 for the kernel itself.
    pub(crate) sender: u32,
    body: &'d [u8],
}

impl Message<'_> {
    /// Whether it tells of what the kernel has learnt of a path's MTU, which is no route of anybody's.
    pub(crate) fn is_learnt(&self) -> bool {
        let flags = self.body.get(RTM_FLAGS..).and_then(|it| it.first_chunk());
        let flags = flags.copied().map_or(0, u32::from_ne_bytes);
        self.is_route() && flags & RTM_F_CLONED != 0
    }

    pub(crate) fn is_of_main_table(&self) -> bool {
        self.is_route() && self.body.get(RTM_TABLE) == Some(&RT_TABLE_MAIN)
    }

    /// The body of a notification about a neighbour.
    pub(crate) fn neighbour(&self) -> Option<&[u8]> {
        matches!(self.kind, RTM_NEWNEIGH | RTM_DELNEIGH).then_some(self.body)
    }

    /// Whether it tells of what is there now, and not of what has gone.
    pub(crate) fn is_addition(&self) -> bool {
        // The kernel numbers all of its messages so (`RTM_NEW`, `RTM_DEL`, `RTM_GET`, `RTM_SET`).
        self.kind.is_multiple_of(4)
    }

    fn is_route_of(&self, protocol: Option<u8>) -> bool {
        let own = self.body.get(RTM_PROTOCOL).copied();
        self.is_route() && protocol.is_some() && own == protocol
    }

    const fn is_route(&self) -> bool {
        self.kind == RTM_NEWROUTE || self.kind == RTM_DELROUTE
    }

    fn event(&self, ignored: Option<u8>) -> Option<RoutingEvent> {
        if !self.is_route() {
            let is_rule = self.kind == RTM_NEWRULE || self.kind == RTM_DELRULE;
            return (!is_rule).then_some(RoutingEvent::Other);
        }
        if !self.is_of_main_table() || self.is_learnt() || self.is_route_of(ignored) {
            return None;
        }
        let Ok(route) = RouteMessage::parse(self.body) else {
            // It is in the table all the same.
            return Some(RoutingEvent::Lost);
        };
        Some(match self.kind {
            RTM_NEWROUTE => RoutingEvent::Added {
                route,
                addition: match self.flags {
                    flags if flags & NLM_F_REPLACE != 0 => Addition::Replacement,
                    flags if flags & NLM_F_EXCL != 0 => Addition::Only,
                    _ => Addition::Further,
                },
            },
            _ => RoutingEvent::Removed(route),
        })
    }
}

pub(crate) fn for_each<'d>(datagram: &'d [u8], mut see: impl FnMut(Message<'d>)) {
    let mut rest = datagram;
    while let Some((length, message)) = first(rest) {
        see(message);
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
}

fn first(datagram: &[u8]) -> Option<(usize, Message<'_>)> {
    let length = u32::from_ne_bytes(*datagram.first_chunk()?) as usize;
    let short = |at: usize| Some(u16::from_ne_bytes(*datagram.get(at..)?.first_chunk()?));
    let sender = u32::from_ne_bytes(*datagram.get(12..)?.first_chunk()?);
    let message = Message {
        kind: short(4)?,
        flags: short(6)?,
        sender,
        body: datagram.get(HEADER_BYTES..length)?,
    };
    Some((length, message))
}

impl fmt::Debug for RoutingEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoutingEvents")
            .field("ignored", &self.ignored)
            .finish_non_exhaustive()
    }
}

/// A notification is at most this long (`NLMSG_GOODSIZE` of linux/netlink.h).
pub(crate) const DATAGRAM_BYTES: usize = 8_192;
/// `struct nlmsghdr` of linux/netlink.h.
const HEADER_BYTES: usize = 16;
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_NEWNEIGH: u16 = 28;
const RTM_DELNEIGH: u16 = 29;
const RTM_NEWRULE: u16 = 32;
const RTM_DELRULE: u16 = 33;
const RT_TABLE_MAIN: u8 = 254;
/// Places in `struct rtmsg` of linux/rtnetlink.h.
const RTM_TABLE: usize = 4;
const RTM_PROTOCOL: usize = 5;
const RTM_FLAGS: usize = 8;
const RTM_F_CLONED: u32 = 0x200;

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, protocol: u8, flags: u32) -> Vec<u8> {
        message_of(kind, RT_TABLE_MAIN, protocol, flags, NLM_F_REPLACE)
    }

    fn message_of(kind: u16, table: u8, protocol: u8, flags: u32, how: u16) -> Vec<u8> {
        let mut body = vec![2, 24, 0, 0, table, protocol, 0, 1];
        body.extend(flags.to_ne_bytes());
        let length = u32::try_from(HEADER_BYTES + body.len()).unwrap();
        let mut message = length.to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.extend(how.to_ne_bytes());
        message.extend([0; 8]);
        message.extend(body);
        message
    }

    fn events(datagram: &[u8]) -> Vec<RoutingEvent> {
        let mut events = Vec::new();
        for_each(datagram, |it| events.extend(it.event(Some(94))));
        events
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
        assert_eq!(events(&message(RTM_NEWROUTE, 2, RTM_F_CLONED)), []);
    }

    #[test]
    fn main_table_changes_by_its_own_routes_and_by_devices_but_not_by_rules() {
        let added = events(&message(RTM_NEWROUTE, 186, 0));
        assert!(
            matches!(&added[..], [RoutingEvent::Added { addition: Addition::Replacement, route }]
                if route.header.destination_prefix_length == 24),
            "{added:?}"
        );
        let removed = events(&message(RTM_DELROUTE, 186, 0));
        assert!(matches!(&removed[..], [RoutingEvent::Removed(_)]));
        let other_table = message_of(RTM_NEWROUTE, 252, 186, 0, 0);
        assert_eq!(events(&other_table), []);
        assert_eq!(events(&message(RTM_NEWRULE, 0, 0)), []);
        assert_eq!(events(&message(16, 0, 0)), [RoutingEvent::Other], "a link");
    }
}
