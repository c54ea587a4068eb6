//! Packets that enter a tunnel without having chosen it: probes and whatever else a border sends by itself, what it
//! routes between others than the site, ARP.
//!
//! They take their time in the queue in front of the tunnel like all others. A model that leaves them out lags behind
//! the queue until it is [compared](super::TunnelQueues::correct) with that, and what is sent meanwhile arrives later than predicted.

use super::{Behind, LivePaths, PathId, SitePaths};
use crate::cpu_queues::SharedWord;

impl SitePaths {
    /// Returns the tunnel whose device has that number; none where packets do not choose, or not among its like.
    #[inline(always)]
    pub fn tunnel_of(&self, device: u32) -> Option<PathId> {
        PathId::all().find(|path| {
            let index = path.index();
            self.known >> index & 1 != 0 && self.devices[index] == device
        })
    }
}

impl<W: SharedWord, B: Behind> LivePaths<'_, W, B> {
    /// Puts a packet that a device is handed, and that has not chosen it, into the queue in front of the device's tunnel.
    /// Returns the tunnel; none where the device is no tunnel's, or its queue is full. `bytes` are those that the device
    /// sends: of merged segments all headers, too.
    #[inline(always)]
    pub fn enter(&self, device: u32, bytes: u32) -> Option<PathId> {
        let tunnel = self.site().tunnel_of(device)?;
        self.send(tunnel, bytes).then_some(tunnel)
    }
}
