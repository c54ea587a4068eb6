//! Traffic beside the recording, and who looks at what arrives.

use std::fmt;

use super::connection::{Connection, Connections};
use super::event::{Packet, Side};

/// A datagram of other traffic, which enters behind a border: no scheme chooses its uplink, and nobody answers it.
///
/// It waits with long flows where classes have a queue each, as what the splitter does not split, and counts as one
/// flow with all others of its direction where each flow has a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrossPacket {
    /// Time at which it comes to the uplink, from the beginning of what is simulated. One that is earlier than
    /// the one before comes with it.
    pub at_ns: u64,
    /// True on the way to the site, false from it.
    pub to_site: bool,
    /// The uplink, from 0; one that there is not stands for the last.
    pub uplink: usize,
    /// Bytes with all headers.
    pub bytes: u32,
}

/// The way of a packet of the recording from one border to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// The flow's number among those of the recording that were due, from 0.
    pub flow: u64,
    /// True on the way to the site, false from it.
    pub to_site: bool,
    /// Time at which it came to the border that it started from, before it waited for an uplink.
    pub left_ns: u64,
    /// Time at which it arrived at the other border.
    pub arrived_ns: u64,
}

/// Sees the packets of a twin as somebody would who watches both borders.
pub trait Observer {
    /// A packet has arrived.
    fn arrived(&mut self, passage: Passage);

    /// All of a flow's payload has arrived, in both directions. `flow` is its number as in [`Passage::flow`].
    fn completed(&mut self, flow: u64, at_ns: u64);
}

/// Both, where they are there.
#[derive(Default)]
pub(super) struct Beside<'a> {
    cross: Option<&'a mut dyn Iterator<Item = CrossPacket>>,
    observer: Option<&'a mut dyn Observer>,
    /// The datagram that comes next.
    pub(super) next: Option<CrossPacket>,
}

impl<'a> Beside<'a> {
    pub(super) fn new(
        cross: &'a mut dyn Iterator<Item = CrossPacket>,
        observer: &'a mut dyn Observer,
    ) -> Self {
        Self {
            cross: Some(cross),
            observer: Some(observer),
            next: None,
        }
    }

    /// Takes the next datagram, and says when it comes.
    pub(super) fn draw(&mut self) -> Option<u64> {
        self.next = self.cross.as_mut().and_then(|it| it.next());
        self.next.map(|it| it.at_ns)
    }

    pub(super) fn arrived(&mut self, packet: &Packet, connections: &mut Connections, now_ns: u64) {
        let Some(observer) = &mut self.observer else {
            return;
        };
        if let Some(connection) = connections.get(packet.connection) {
            observer.arrived(Passage {
                flow: connection.number,
                to_site: packet.from == Side::Remote,
                left_ns: packet.at_border_ns,
                arrived_ns: now_ns,
            });
        }
    }

    /// A transfer of a connection has arrived.
    pub(super) fn completed(&mut self, connection: &Connection, now_ns: u64) {
        if let Some(observer) = &mut self.observer
            && connection.has_arrived()
        {
            observer.completed(connection.number, now_ns);
        }
    }
}

impl fmt::Debug for Beside<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Beside")
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}
