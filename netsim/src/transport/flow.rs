//! Messages, and the flows that carry them.

use super::{receiver::Receiver, sender::Sender};
use crate::engine::packet::NONE;

/// What is to get from one host to another, and when it did.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// The host that sends it.
    pub(crate) from: u16,
    /// The host that receives it.
    pub(crate) to: u16,
    /// Priority of its packets.
    pub(crate) priority: u8,
    /// How many flows carry it.
    pub(crate) flows: u8,
    /// Which of the scenario's traffic it belongs to.
    pub(crate) origin: u16,
    /// How large it is.
    pub(crate) bytes: u64,
    /// The receiver asks for it first, with so many bytes.
    pub(crate) request_bytes: Option<u64>,
    /// It is of background traffic.
    pub(crate) is_background: bool,
    /// Segments that had arrived when it was complete.
    pub(crate) needed: u32,
    /// When it was due; with a request, when that was.
    pub(crate) start_ns: u64,
    /// When its last byte arrived; [`UNFINISHED`] before.
    pub(crate) end_ns: u64,
    /// The first of its flows.
    pub(crate) first_flow: u32,
    /// With subflows: segments that none of them has taken, and that have not arrived.
    pub(crate) pool: Pool,
}

/// What subflows share.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pool {
    /// Segments that no subflow has taken.
    pub(crate) untaken: u32,
    /// Segments that have not arrived.
    pub(crate) missing: u32,
}

/// The end of what has not ended.
pub(crate) const UNFINISHED: u64 = u64::MAX;

impl Message {
    pub(crate) fn is_finished(&self) -> bool {
        self.end_ns != UNFINISHED
    }

    /// Which of the hosts' transports carries it.
    pub(crate) fn transport(&self) -> usize {
        usize::from(self.is_background)
    }
}

/// What a flow carries.
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
    /// It neither sends nor waits any more.
    pub(crate) closed: bool,
    /// The segment that is not full, and its bytes of data.
    pub(crate) short: (u32, u16),
    pub(crate) timer: Timer,
    pub(crate) figures: FlowFigures,
}

/// The timer of a flow. It is not moved with each ACK: when its event comes too early it is put in
/// again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timer {
    /// When the sender's patience ends.
    pub(crate) deadline_ns: u64,
    /// The pending event.
    pub(crate) event: u32,
    /// When that comes.
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

/// What is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlowFigures {
    /// Segments sent, those sent again included.
    pub(crate) sent: u32,
    /// Segments sent again.
    pub(crate) again: u32,
    /// Timeouts.
    pub(crate) timeouts: u32,
    /// Segments that arrived.
    pub(crate) arrived: u32,
    /// Segments that arrived marked.
    pub(crate) marked: u32,
    /// Time that those which arrived had spent in queues of switches.
    pub(crate) queued_ns: u64,
}
