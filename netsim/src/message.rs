//! Messages: what the workload asks for and transports carry.

/// A message from one host to another, and when it was complete.
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
    /// Bytes of the request that the receiver sends first, if it does.
    pub(crate) request_bytes: Option<u64>,
    /// The transfer of a collective operation, and flows of the same pair count as one connection there.
    pub(crate) transfer: Option<u32>,
    /// It is of background traffic.
    pub(crate) is_background: bool,
    /// Segments that had arrived when it was complete.
    pub(crate) needed: u32,
    /// Segments that had been sent when it was complete.
    pub(crate) sent_by_end: u32,
    /// Start time: when the message, or the request for it, was due.
    pub(crate) start_ns: u64,
    /// Arrival of its last byte; [`UNFINISHED`] before.
    pub(crate) end_ns: u64,
    /// The first of its flows.
    pub(crate) first_flow: u32,
    /// With subflows: segments that none of them has taken, and that have not arrived.
    pub(crate) pool: Pool,
}

/// Segments that the subflows of one message share.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pool {
    /// Segments that no subflow has taken.
    pub(crate) untaken: u32,
    /// Segments that have not arrived.
    pub(crate) missing: u32,
    /// Round trips of the first subflow until the others join.
    pub(crate) rounds: u8,
    /// The first subflow's segment whose ACK ends the present round trip.
    pub(crate) round_end: u32,
}

/// Stands for the end of a message that is not complete.
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
