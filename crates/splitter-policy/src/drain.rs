//! Leaky buckets that tell when what was sent into a tunnel has left it.
//!
//! A bucket models a FIFO that drains at the tunnel's rate. It sees only what
//! this border sends. Where it cannot know, each bucket errs to the side that
//! keeps a flow in order: the short tunnel's drains late, the long one's early.

use flow_balance::VirtualQueue;

/// Both tunnels as this border models them; the one value of the tunnels map.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tunnels {
    /// In front of the short tunnel; never too early.
    pub short: VirtualQueue,
    /// In front of the long tunnel; never too late.
    pub long: VirtualQueue,
    /// Until when a long flow is taken to be still in the short tunnel.
    pub occupied_until_ns: u64,
}
