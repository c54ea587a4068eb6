//! The egress of a packet: its tunnel, and the queue class in front of that.

use crate::counters::FlowEvent;
use crate::flow::{Class, TunnelRole};

/// The tunnel and the queue class by which a packet leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Egress {
    /// The hand-over that its flow made with it, if any.
    pub hand_over: Option<FlowEvent>,
    /// The queue class in front of the tunnel.
    pub queue_class: Class,
    /// The tunnel.
    pub tunnel: TunnelRole,
}

impl Egress {
    /// The egress into a tunnel that has one class, of a flow that goes on as it did.
    #[inline(always)]
    pub const fn dedicated_to(tunnel: TunnelRole) -> Self {
        Self {
            hand_over: None,
            queue_class: tunnel.own_class(),
            tunnel,
        }
    }

    /// Packs the egress into a number, for hosts that pass it on in plain data.
    #[inline(always)]
    pub const fn to_bits(self) -> u64 {
        self.tunnel as u64 | (self.queue_class as u64) << 1 | FlowEvent::code(self.hand_over) << 2
    }

    /// Unpacks the egress that [`Egress::to_bits`] made a number of.
    #[inline(always)]
    pub const fn from_bits(bits: u64) -> Self {
        Self {
            hand_over: FlowEvent::from_code(bits >> 2),
            queue_class: Class::numbered(bits >> 1),
            tunnel: TunnelRole::numbered(bits),
        }
    }
}
