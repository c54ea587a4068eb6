//! The structure that the kernel hands to a program: `struct xdp_md`, `struct __sk_buff`.

use crate::fault::Fault;

/// The kind of program, which decides what its context has where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// A program of the express data path.
    Xdp,
    /// A classifier of traffic control.
    TrafficControl,
}

/// Says of a packet what the kernel knows besides its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// Number of the device by which the packet came in; 0 for none.
    pub came_in_by: u32,
    /// Number of the device that is handed the packet: that by which it leaves, or comes in.
    pub handed_to: u32,
    /// The kernel's mark of the packet (`skb->mark`).
    pub mark: u32,
}

/// A context, with the addresses of the packet's bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    pub(crate) hook: Hook,
    pub(crate) metadata: Metadata,
    /// The frame's EtherType, as it stands there.
    pub(crate) protocol: u16,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// Its address, where no region is.
pub(crate) const CONTEXT: u64 = u64::MAX << 32;

impl Context {
    /// What the verifier makes of a load from the context.
    pub(crate) fn load(&self, offset: u64, length: usize) -> Result<u64, Fault> {
        let Metadata {
            came_in_by,
            handed_to,
            mark,
        } = self.metadata;
        let length_of_frame = self.end - self.start;
        let field = match (self.hook, offset) {
            (Hook::Xdp, 0) | (Hook::TrafficControl, 76) => self.start,
            (Hook::Xdp, 4) | (Hook::TrafficControl, 80) => self.end,
            (Hook::Xdp, 8) | (Hook::TrafficControl, 140) => self.start,
            (Hook::Xdp, 12) | (Hook::TrafficControl, 36) => came_in_by.into(),
            (Hook::Xdp, 16) => 0,
            (Hook::TrafficControl, 0) => length_of_frame,
            (Hook::TrafficControl, 8) => mark.into(),
            (Hook::TrafficControl, 16) => self.protocol.into(),
            // `vlan_present`: no tag beside the bytes.
            (Hook::TrafficControl, 20) => 0,
            (Hook::TrafficControl, 40) => handed_to.into(),
            // `wire_len`
            (Hook::TrafficControl, 160) => length_of_frame,
            // `gso_segs`: no aggregate.
            (Hook::TrafficControl, 164) => 0,
            _ => return Err(Fault::Context { offset, length }),
        };
        if length == 4 {
            Ok(field)
        } else {
            Err(Fault::Context { offset, length })
        }
    }

    /// What a program may write.
    pub(crate) fn store(&mut self, offset: u64, length: usize, number: u64) -> Result<(), Fault> {
        match (self.hook, offset, length) {
            (Hook::TrafficControl, 8, 4) => self.metadata.mark = number as u32,
            _ => return Err(Fault::Context { offset, length }),
        }
        Ok(())
    }
}
