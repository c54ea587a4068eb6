//! The verdict of classification on a packet.

use crate::counters::FlowEvent;
use crate::flow::{Class, TunnelRole};

/// The verdict on a packet: its class and egress, and what happened to its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The flow's class, this packet counted.
    pub class: Class,
    /// The tunnel of this packet.
    pub tunnel: TunnelRole,
    /// The queue class in front of it: the tunnel's own, if that has one.
    pub queue_class: Class,
    /// The reason why the flow starts again with this packet, if it does.
    pub start: Option<FlowEvent>,
    /// This packet is the flow's first long one.
    pub became_long: bool,
    /// The hand-over that the flow makes with this packet, if any.
    pub hand_over: Option<FlowEvent>,
    /// The flow completion time, when this packet is the first FIN or RST.
    pub completed_ns: Option<u64>,
}

impl Verdict {
    /// All but the completion time in one number, and that, 0 for none.
    #[inline(always)]
    pub(crate) const fn to_bits(self) -> (u64, u64) {
        let bits = self.class as u64
            | (self.tunnel as u64) << 1
            | (self.became_long as u64) << 2
            | (self.queue_class as u64) << 3
            | FlowEvent::code(self.start) << 8
            | FlowEvent::code(self.hand_over) << 16;
        let completed_ns = match self.completed_ns {
            // Nothing takes no time at all.
            Some(completed_ns) if completed_ns > 0 => completed_ns,
            Some(_) => 1,
            None => 0,
        };
        (bits, completed_ns)
    }

    #[inline(always)]
    pub(crate) const fn from_bits(bits: u64, completed_ns: u64) -> Self {
        Self {
            class: Class::numbered(bits),
            tunnel: TunnelRole::numbered(bits >> 1),
            queue_class: Class::numbered(bits >> 3),
            became_long: bits & 4 != 0,
            start: FlowEvent::from_code(bits >> 8 & 0xff),
            hand_over: FlowEvent::from_code(bits >> 16 & 0xff),
            completed_ns: if completed_ns == 0 {
                None
            } else {
                Some(completed_ns)
            },
        }
    }
}
