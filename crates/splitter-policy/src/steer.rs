//! Steering: a packet is marked for the tunnel that it is to take.
//!
//! The marks are the same numbers wherever they are written: in the DSCP of the
//! packet's header, or in six bits or so of the mark that the kernel keeps next to
//! the packet (`skb->mark`), which leaves its bytes as they came.

use crate::buffer::{Buffer, BufferMut};
use crate::config::PolicyConfig;
use crate::dscp::{self, Dscp, Field};

/// A packet that can carry the mark that the routing rules look at.
pub trait Steer: Buffer {
    /// The mark that it came with.
    fn incoming_mark(&self, config: &PolicyConfig, field: &Field) -> Dscp;

    /// Gives it a mark; `None` when that cannot be written.
    fn steer(&mut self, config: &PolicyConfig, field: &Field, mark: Dscp) -> Option<()>;
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
}
