//! Where a packet leaves: its tunnel, and the queue class in front of that.

use crate::counters::FlowEvent;
use crate::flow::{Class, TunnelRole};

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ride {
    /// What became of its flow with it, if anything.
    pub moved: Option<FlowEvent>,
    /// The class.
    pub rides: Class,
    /// The tunnel.
    pub tunnel: TunnelRole,
}

impl Ride {
    /// In a tunnel that has one class, of a flow that goes on as it did.
    #[inline(always)]
    pub const fn in_own(tunnel: TunnelRole) -> Self {
        Self {
            moved: None,
            rides: tunnel.own_class(),
            tunnel,
        }
    }

    /// As a number, for hosts that hand it on in plain data.
    #[inline(always)]
    pub const fn to_bits(self) -> u64 {
        self.tunnel as u64 | (self.rides as u64) << 1 | FlowEvent::code(self.moved) << 2
    }

    /// What the number says.
    #[inline(always)]
    pub const fn from_bits(bits: u64) -> Self {
        Self {
            moved: FlowEvent::from_code(bits >> 2),
            rides: Class::numbered(bits >> 1),
            tunnel: TunnelRole::numbered(bits),
        }
    }
}
