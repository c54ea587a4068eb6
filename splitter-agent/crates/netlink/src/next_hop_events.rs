//! Notifications of what decides where a packet goes and by which link address: rules, routes, next
//! hop objects, devices, addresses, neighbours, and whether packets are forwarded.
//!
//! For a thread of its own that has nothing else to do: who keeps answers of the kernel has to hear at
//! once that they are void.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState as Nud,
};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::TimeVal;
use rtnetlink::MulticastGroup;
use rtnetlink::packet_core::Parseable as _;
use rtnetlink::sys::Socket;

use crate::NetlinkError;
use crate::routing_events::{self, Message};

/// Besides those of routing.
const GROUPS: [MulticastGroup; 3] = [
    MulticastGroup::Neigh,
    MulticastGroup::Ipv4Netconf,
    MulticastGroup::Ipv6Netconf,
];

/// So many neighbours are known at a time. All are forgotten when there are more: what becomes of one
/// that is not known counts as a change.
const KNOWN: usize = 4_096;

/// Hears that something has changed which may lead packets elsewhere.
pub struct NextHopEvents {
    socket: Socket,
    neighbours: HashMap<(u32, IpAddr), Link>,
}

/// A neighbour whose address has not been confirmed for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StaleNeighbour {
    /// The number of its device.
    pub interface: u32,
    /// Its address.
    pub address: IpAddr,
    /// Its link address.
    pub link_address: [u8; 6],
}

/// Tells what has changed by now.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NextHopChanges {
    /// Packets may go elsewhere than before, or by another link address.
    pub is_change: bool,
    /// More than a neighbour has changed: rules or routes may be others.
    pub is_of_routing: bool,
    /// Neighbours that wait for somebody to use them before they are confirmed again.
    pub stale: Vec<StaleNeighbour>,
}

/// The link address that packets to a neighbour get; `None` where there is none.
type Link = Option<Vec<u8>>;

impl NextHopEvents {
    /// Listens in the network namespace of this thread; [`wait`](Self::wait) lasts no longer than
    /// `patience`.
    ///
    /// # Errors
    /// [`NetlinkError::Open`].
    pub fn listen(patience: Duration) -> Result<Self, NetlinkError> {
        let socket = || {
            let socket = routing_events::socket()?;
            for group in GROUPS {
                socket.add_membership(group as u32)?;
            }
            socket.set_non_blocking(false)?;
            Ok::<_, io::Error>(socket)
        };
        let events = Self {
            socket: socket().map_err(NetlinkError::Open)?,
            neighbours: HashMap::new(),
        };
        events.set_patience(patience).map_err(NetlinkError::Open)?;
        Ok(events)
    }

    /// Has [`wait`](Self::wait) last no longer than that from now on.
    ///
    /// # Errors
    /// When the socket does not take it.
    pub fn set_patience(&self, patience: Duration) -> io::Result<()> {
        let micros = patience.as_micros().try_into().unwrap_or(i64::MAX);
        let patience = TimeVal::new(micros / 1_000_000, micros % 1_000_000);
        Ok(setsockopt(
            &self.socket,
            sockopt::ReceiveTimeout,
            &patience,
        )?)
    }

    /// Waits for a notification, and takes all that have come by then; nothing has where it has waited
    /// long enough.
    ///
    /// # Errors
    /// When the socket broke: nothing is heard any more.
    pub fn wait(&mut self) -> io::Result<NextHopChanges> {
        self.read(0)
    }

    /// Takes all notifications that have come by now, and waits for none.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn take(&mut self) -> io::Result<NextHopChanges> {
        self.read(libc::MSG_DONTWAIT)
    }

    fn read(&mut self, mut flags: i32) -> io::Result<NextHopChanges> {
        let mut changes = NextHopChanges::default();
        let neighbours = &mut self.neighbours;
        loop {
            let mut datagram = Vec::with_capacity(routing_events::DATAGRAM_BYTES);
            match self.socket.recv(&mut datagram, flags) {
                Ok(_) => routing_events::for_each(&datagram, |it| changes.take(neighbours, &it)),
                Err(error) if routing_events::is_loss(&error) => {
                    neighbours.clear();
                    changes.is_change = true;
                    changes.is_of_routing = true;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(changes),
                Err(error) => return Err(error),
            }
            flags = libc::MSG_DONTWAIT;
        }
    }
}

impl NextHopChanges {
    fn take(&mut self, known: &mut HashMap<(u32, IpAddr), Link>, message: &Message<'_>) {
        let neighbour = match message.neighbour() {
            None => {
                self.is_change = true;
                self.is_of_routing = true;
                return;
            }
            Some(body) => NeighbourMessage::parse(body).ok().and_then(Neighbour::of),
        };
        // Of another family, or not one of an address.
        let Some(neighbour) = neighbour else { return };
        let Neighbour {
            interface,
            address,
            link,
            is_stale,
        } = neighbour;
        let link = link.filter(|_| message.is_addition());
        if known.len() >= KNOWN {
            known.clear();
        }
        self.is_change |= known.insert((interface, address), link.clone()) != Some(link.clone());
        let link_address = link.and_then(|it| it.try_into().ok());
        if let Some(link_address) = link_address.filter(|_| is_stale) {
            self.stale.push(StaleNeighbour {
                interface,
                address,
                link_address,
            });
        }
    }
}

struct Neighbour {
    interface: u32,
    address: IpAddr,
    link: Link,
    is_stale: bool,
}

impl Neighbour {
    fn of(message: NeighbourMessage) -> Option<Self> {
        let (mut address, mut link) = (None, None);
        for attribute in message.attributes {
            match attribute {
                NeighbourAttribute::Destination(NeighbourAddress::Inet(it)) => {
                    address = Some(IpAddr::V4(it));
                }
                NeighbourAttribute::Destination(NeighbourAddress::Inet6(it)) => {
                    address = Some(IpAddr::V6(it));
                }
                NeighbourAttribute::LinkLayerAddress(it) => link = Some(it),
                _ => {}
            }
        }
        // As `NUD_VALID` of net/neighbour.h.
        let is_valid = matches!(
            message.header.state,
            Nud::Permanent | Nud::Noarp | Nud::Reachable | Nud::Probe | Nud::Stale | Nud::Delay
        );
        Some(Self {
            interface: message.header.ifindex,
            address: address?,
            link: link.filter(|_| is_valid),
            is_stale: message.header.state == Nud::Stale,
        })
    }
}

impl fmt::Debug for NextHopEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NextHopEvents")
            .field("neighbours", &self.neighbours.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: u16 = 28;
    const GONE: u16 = 29;
    const STALE: u16 = 4;
    const REACHABLE: u16 = 2;
    const FAILED: u16 = 0x20;
    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

    fn datagram(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut message = u32::try_from(16 + body.len())
            .unwrap()
            .to_ne_bytes()
            .to_vec();
        message.extend(kind.to_ne_bytes());
        message.extend([0; 10]);
        message.extend(body);
        message
    }

    fn neighbour(kind: u16, state: u16, link: Option<[u8; 6]>) -> Vec<u8> {
        let mut body = vec![2, 0, 0, 0];
        body.extend(7u32.to_ne_bytes());
        body.extend(state.to_ne_bytes());
        body.extend([0, 1]);
        body.extend([8, 0, 1, 0, 192, 0, 2, 1]);
        if let Some(link) = link {
            body.extend([10, 0, 2, 0]);
            body.extend(link);
            body.extend([0, 0]);
        }
        datagram(kind, &body)
    }

    /// Whether each of these, one after the other, is a change, and one of routing.
    fn changes(datagrams: &[Vec<u8>]) -> Vec<[bool; 2]> {
        let mut known = HashMap::new();
        let one = |datagram: &Vec<u8>| {
            let mut changes = NextHopChanges::default();
            routing_events::for_each(datagram, |it| changes.take(&mut known, &it));
            [changes.is_change, changes.is_of_routing]
        };
        datagrams.iter().map(one).collect()
    }

    #[test]
    fn neighbour_is_a_change_when_its_link_address_is_another_and_not_when_it_ages() {
        let other = Some([2, 0, 0, 0, 0, 2]);
        let found = changes(&[
            neighbour(NEW, REACHABLE, Some(MAC)),
            neighbour(NEW, STALE, Some(MAC)),
            neighbour(NEW, REACHABLE, Some(MAC)),
            neighbour(NEW, REACHABLE, other),
            neighbour(NEW, FAILED, other),
            neighbour(NEW, FAILED, None),
            neighbour(NEW, REACHABLE, other),
            neighbour(GONE, REACHABLE, other),
        ]);
        let is_change = [true, false, false, true, true, false, true, true];
        assert_eq!(found, is_change.map(|it| [it, false]));
    }

    #[test]
    fn everything_else_is_a_change_and_so_is_what_the_kernel_has_learnt() {
        let cloned = [2, 24, 0, 0, 254, 2, 0, 1, 0, 2, 0, 0];
        let found = changes(&[
            datagram(16, &[0; 16]),
            datagram(24, &cloned),
            datagram(33, &[0; 12]),
            datagram(80, &[0; 4]),
        ]);
        assert_eq!(found, [[true; 2]; 4]);
    }

    #[test]
    fn stale_neighbour_is_named() {
        let mut changes = NextHopChanges::default();
        let datagram = neighbour(NEW, STALE, Some(MAC));
        routing_events::for_each(&datagram, |it| changes.take(&mut HashMap::new(), &it));
        let stale = StaleNeighbour {
            interface: 7,
            address: IpAddr::from([192, 0, 2, 1]),
            link_address: MAC,
        };
        assert_eq!(changes.stale, [stale]);
    }
}
