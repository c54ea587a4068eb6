//! Next hops that the agent keeps, one of each tunnel, for packets that choose among tunnels.
//!
//! No question to the kernel leads to them: its answer is for the tunnels of the packet's class. That says whether
//! a packet is for the tunnels at all; by which it goes is the packet's choice.

use flow_balance::{MAX_PATHS, PathId};

use crate::buffer::BufferMut;
use crate::forward::{decrement_hops, readdress};

/// The next hop of a tunnel in an address family, as the agent knows it now; 20 bytes, zeros where it does not.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunnelHop {
    /// The number of the tunnel's device, by which it is told from one that has taken its slot.
    pub device: u32,
    /// The place of the device among those that packets are put into.
    pub slot: u32,
    /// The link addresses of the frame that leaves, as they lie in it: the next hop's, then ours.
    pub link: [u8; 12],
}

impl TunnelHop {
    /// Makes of the frame what leaves towards the next hop: one hop less to go, and other link addresses. `None` when
    /// it cannot be written.
    #[inline(always)]
    pub fn forward<B: BufferMut + ?Sized>(&self, frame: &mut B) -> Option<()> {
        decrement_hops(frame)?;
        readdress(frame, self.link)
    }
}

/// The next hops of all tunnels in an address family; 324 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunnelHops {
    /// The largest packet that fits each tunnel whose next hop is known: what is longer fits none for certain. 0 where
    /// none is known.
    pub mtu: u32,
    /// By the tunnels' numbers.
    pub hops: [TunnelHop; MAX_PATHS],
}

impl TunnelHops {
    /// Returns the next hop of a tunnel, if it is known.
    #[inline(always)]
    pub fn of(&self, path: PathId) -> Option<&TunnelHop> {
        Some(&self.hops[path.index()]).filter(|it| it.device != 0)
    }
}
