//! Steering: a packet is marked for the tunnel that it is to take.
//!
//! The marks are the same numbers wherever they are written: in the DSCP of the
//! packet's header, or in six bits or so of the mark that the kernel keeps next to
//! the packet (`skb->mark`), which leaves its bytes as they came.

use crate::buffer::{Buffer, BufferMut};
use crate::config::PolicyConfig;
use crate::dscp::{self, Dscp, Field};
use crate::packet::ETHERNET_BYTES;

/// A packet that can carry the mark that the routing rules look at.
pub trait Steer: Buffer {
    /// The mark that it came with.
    fn incoming_mark(&self, config: &PolicyConfig, field: &Field) -> Dscp;

    /// Gives it a mark; `None` when that cannot be written.
    fn steer(&mut self, config: &PolicyConfig, field: &Field, mark: Dscp) -> Option<()>;

    /// Gives it a mark where it has no VLAN tag.
    #[inline(always)]
    fn steer_untagged(&mut self, config: &PolicyConfig, is_v6: bool, mark: Dscp) -> Option<()> {
        // Who marks elsewhere does not look at the class.
        let field = Field {
            offset: ETHERNET_BYTES as u8,
            is_v6,
            traffic_class: 0,
        };
        self.steer(config, &field, mark)
    }
}

/// Where the bytes can be changed, the mark is the DSCP of the IP header.
impl<B: BufferMut + ?Sized> Steer for B {
    #[inline(always)]
    fn incoming_mark(&self, _: &PolicyConfig, field: &Field) -> Dscp {
        Dscp::of_traffic_class(field.traffic_class)
    }

    #[inline(always)]
    fn steer(&mut self, _: &PolicyConfig, field: &Field, mark: Dscp) -> Option<()> {
        dscp::rewrite(self, field, mark).map(|_| ())
    }

    #[inline(always)]
    fn steer_untagged(&mut self, _: &PolicyConfig, is_v6: bool, mark: Dscp) -> Option<()> {
        dscp::rewrite_untagged(self, is_v6, mark)
    }
}
