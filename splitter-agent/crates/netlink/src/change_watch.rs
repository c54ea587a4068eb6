//! Whether anybody else has changed what a process has put into the kernel's routing policy.

use rtnetlink::sys::Socket;

use crate::routing_events::{self, Message};
use crate::{Netlink, NetlinkError};

/// Tells whether what decides where packets go has been changed by others than one conversation with
/// the kernel. Changes of the main table alone do not count.
#[derive(Debug)]
pub struct ChangeWatch {
    socket: Socket,
    own_ports: [u32; 2],
}

impl ChangeWatch {
    /// Watches from now on, in the network namespace of this thread, for changes by others than `own`.
    ///
    /// # Errors
    /// [`NetlinkError::Open`].
    pub fn begin(own: &Netlink) -> Result<Self, NetlinkError> {
        Ok(Self {
            socket: routing_events::socket().map_err(NetlinkError::Open)?,
            own_ports: own.ports(),
        })
    }

    /// Returns true where others have changed a rule, a device, an address, a next hop object or a route
    /// outside of the main table since this was asked last, or may have, because notifications got
    /// lost.
    pub fn has_changed(&mut self) -> bool {
        let mut has_changed = false;
        routing_events::for_each_waiting(&self.socket, |message| {
            has_changed |= message.is_none_or(|it| !self.is_of_no_interest(&it));
        });
        has_changed
    }

    fn is_of_no_interest(&self, message: &Message<'_>) -> bool {
        let is_own = self.own_ports.contains(&message.sender);
        is_own || message.is_of_main_table() || message.is_learnt()
    }
}
