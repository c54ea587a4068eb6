//! Flows: a sender, its receiver, and what they have counted.

use flow_tcp::{Receiver, Sender};

use super::expresspass::CreditFlow;
use crate::engine::packet::{NONE, Packet, flag};

/// The role of a flow: what it carries of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A whole message, or a copy of one.
    Whole,
    /// Part of a message: a subflow.
    Part,
    /// The request for a message.
    Request,
}

/// A sender and its receiver.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
    pub(crate) from: u16,
    pub(crate) to: u16,
    pub(crate) message: u32,
    pub(crate) role: Role,
    pub(crate) priority: u8,
    /// Which of the hosts' transports it is of.
    pub(crate) transport: u8,
    /// Its first segment is a SYN.
    pub(crate) has_handshake: bool,
    /// It neither sends nor waits any more.
    pub(crate) closed: bool,
    /// The segment that is not full, and its bytes of data.
    pub(crate) short: (u32, u16),
    pub(crate) timer: Timer,
    pub(crate) stats: FlowStats,
    /// It goes by credits in the place of a window.
    pub(crate) credits: Option<Box<CreditFlow>>,
}

/// The timer of a flow. It is not moved with each ACK: when its event comes too early it is put in
/// again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timer {
    /// Time at which the retransmission timeout expires.
    pub(crate) deadline_ns: u64,
    /// Number of the pending event.
    pub(crate) event: u32,
    /// Time of the pending event.
    pub(crate) event_ns: u64,
}

impl Default for Timer {
    fn default() -> Self {
        Self {
            deadline_ns: 0,
            event: NONE,
            event_ns: 0,
        }
    }
}

/// Counters of one flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlowStats {
    /// Segments sent, those sent again included.
    pub(crate) sent: u32,
    /// Segments that were retransmitted.
    pub(crate) retransmitted: u32,
    /// Retransmission timeouts of the flow.
    pub(crate) timeouts: u32,
    /// Segments that arrived, duplicates included.
    pub(crate) arrived: u32,
    /// Segments that arrived marked.
    pub(crate) marked: u32,
    /// Time that those which arrived had spent in queues of switches.
    pub(crate) queued_ns: u64,
}

impl FlowStats {
    /// A segment has arrived.
    #[inline]
    pub(super) fn count_arrival(&mut self, packet: &Packet) {
        self.arrived += 1;
        self.marked += u32::from(packet.has(flag::CE));
        self.queued_ns += u64::from(packet.aux);
    }
}
