//! Events and packets of a twin, in the order of their times.
//!
//! A recording lasts for days, beyond the horizon of the simulator's timing wheel, and only few packets
//! are under way at a time: a heap does.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A packet on its way from one border to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    /// The connection that it is of.
    pub(super) connection: Handle,
    /// The border that it starts from.
    pub(super) from: Side,
    /// The side whose data it carries or acknowledges.
    pub(super) sender: Side,
    pub(super) kind: PacketKind,
    /// Bytes with all headers.
    pub(super) bytes: u32,
    /// Time at which the data left its host; acknowledgements carry it back.
    pub(super) stamp_ns: u64,
    /// Time at which it came to the border that it starts from.
    pub(super) at_border_ns: u64,
}

/// Content of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PacketKind {
    /// A segment.
    Data {
        number: u32,
        is_retransmission: bool,
    },
    /// The first segment that is missing, and the one that is answered.
    Ack { missing: u32, trigger: u32 },
    /// A step of TCP's handshake.
    Handshake(Step),
    /// A datagram of other traffic.
    Cross,
}

/// A step of the handshake in which a connection begins (RFC 9293 §3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The side that opens the connection asks.
    Syn,
    /// The other one agrees.
    SynAck,
    /// The first one has heard of that.
    Ack,
}

/// A side of the uplinks, and the direction of what starts there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Side {
    /// The site that was recorded.
    Site = 0,
    /// All that it speaks to.
    Remote = 1,
}

impl Side {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Site => Self::Remote,
            Self::Remote => Self::Site,
        }
    }
}

/// Names a connection; what comes for one that was forgotten is told by the generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handle {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl Handle {
    /// Names none: there are never so many connections.
    pub(super) const NONE: Self = Self {
        index: u32::MAX,
        generation: 0,
    };
}

/// Something that happens at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The next flow of the recording is due.
    Start,
    /// The next datagram of other traffic is due.
    Cross,
    /// A packet reaches the other side.
    Arrival(Packet),
    /// A port has sent a packet.
    PortFree(u16),
    /// A handshake may not have come to its end.
    Handshake(Handle),
    /// What came of a sender may have waited for long enough to be acknowledged: all before this segment.
    DelayedAck(Handle, Side, u32),
    /// The timer of a sender may have expired.
    Timer(Handle, Side),
    /// A paced sender has another segment.
    Paced(Handle, Side),
}

/// Events by time. Of those of the same time ports come first, and the others in the order in which they
/// were put in: what comes at the moment at which a packet leaves finds its place free. Else senders that are
/// clocked by a full queue would lose every packet to it (S. Floyd and V. Jacobson, *Traffic Phase Effects
/// in Packet-Switched Gateways*, 1991).
#[derive(Debug, Default)]
pub(super) struct Events {
    heap: BinaryHeap<Entry>,
    now_ns: u64,
    pushed: u64,
}

#[derive(Debug, PartialEq, Eq)]
struct Entry {
    at_ns: u64,
    number: u64,
    event: Event,
}

impl Ord for Entry {
    /// The earliest is the greatest, for the heap hands out that.
    fn cmp(&self, other: &Self) -> Ordering {
        let rank = |it: &Self| {
            let is_port = matches!(it.event, Event::PortFree(_));
            (it.at_ns, !is_port, it.number)
        };
        rank(other).cmp(&rank(self))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Events {
    pub(super) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    pub(super) fn push(&mut self, at_ns: u64, event: Event) {
        self.pushed += 1;
        self.heap.push(Entry {
            at_ns: at_ns.max(self.now_ns),
            number: self.pushed,
            event,
        });
    }

    pub(super) fn pop(&mut self) -> Option<Event> {
        let entry = self.heap.pop()?;
        self.now_ns = entry.at_ns;
        Some(entry.event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_one_time_keep_their_order_behind_those_of_ports() {
        let mut events = Events::default();
        events.push(3, Event::Start);
        for (at_ns, port) in [(5, 0), (3, 1), (5, 2), (3, 3), (9, 4)] {
            events.push(at_ns, Event::PortFree(port));
        }
        let mut order = Vec::new();
        while let Some(event) = events.pop() {
            order.push((events.now_ns(), event));
        }
        let port = |(at_ns, it)| (at_ns, Event::PortFree(it));
        let mut expected = [(3, 1), (3, 3), (5, 0), (5, 2), (9, 4)].map(port).to_vec();
        expected.insert(2, (3, Event::Start));
        assert_eq!(order, expected);
    }
}
