//! Notifications of devices alone: one has come, gone, or changed.

use std::fmt;

use rtnetlink::MulticastGroup;
use rtnetlink::sys::{AsyncSocket as _, AsyncSocketExt as _, TokioSocket};

use crate::NetlinkError;
use crate::routing_events::{DATAGRAM_BYTES, for_each_waiting, is_loss, tokio_socket};

/// Tells that a device has come, gone or changed.
pub struct DeviceEvents {
    socket: TokioSocket,
}

impl DeviceEvents {
    /// Listens in the network namespace of this thread.
    ///
    /// # Errors
    /// [`NetlinkError::Open`].
    pub fn listen() -> Result<Self, NetlinkError> {
        let socket = tokio_socket(&[MulticastGroup::Link]).map_err(NetlinkError::Open)?;
        Ok(Self { socket })
    }

    /// Waits for a change, and forgets all that came with it. Also returns where some have been lost; and never where
    /// the socket broke, so that who waits has to look from time to time as well.
    pub async fn next(&mut self) {
        let mut datagram = Vec::with_capacity(DATAGRAM_BYTES);
        match self.socket.recv(&mut datagram).await {
            Err(error) if !is_loss(&error) => std::future::pending().await,
            Ok(()) | Err(_) => for_each_waiting(self.socket.socket_ref(), |_| ()),
        }
    }
}

impl fmt::Debug for DeviceEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceEvents").finish_non_exhaustive()
    }
}
