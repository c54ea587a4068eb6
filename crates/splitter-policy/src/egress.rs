//! Where a packet leaves: its tunnel, and the queue class in front of that.

use crate::counters::FlowEvent;
use crate::flow::{Class, TunnelRole};

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Egress {
    /// What became of its flow with it, if anything.
    pub hand_over: Option<FlowEvent>,
    /// The class.
    pub queue_class: Class,
    /// The tunnel.
    pub tunnel: TunnelRole,
}

impl Egress {
    /// In a tunnel that has one class, of a flow that goes on as it did.
    #[inline(always)]
    pub const fn dedicated_to(tunnel: TunnelRole) -> Self {
        Self {
            hand_over: None,
            queue_class: tunnel.own_class(),
            tunnel,
        }
    }

    /// As a number, for hosts that hand it on in plain data.
    #[inline(always)]
    pub const fn to_bits(self) -> u64 {
        self.tunnel as u64 | (self.queue_class as u64) << 1 | FlowEvent::code(self.hand_over) << 2
    }

    /// What the number says.
    #[inline(always)]
    pub const fn from_bits(bits: u64) -> Self {
        Self {
            hand_over: FlowEvent::from_code(bits >> 2),
            queue_class: Class::numbered(bits >> 1),
            tunnel: TunnelRole::numbered(bits),
        }
    }
}
