//! News of devices from the kernel.

use std::fmt;
use std::pin::Pin;

use futures_util::{FutureExt as _, Stream, StreamExt as _};
use rtnetlink::MulticastGroup;
use splitter_netlink::NetlinkError;
use tokio::task::JoinHandle;

/// Tells that some device has changed; what has become of it is to be asked.
pub(super) struct LinkEvents {
    events: Pin<Box<dyn Stream<Item = ()> + Send>>,
    connection: JoinHandle<()>,
}

impl LinkEvents {
    /// Listens in the network namespace of this thread.
    pub(super) fn listen() -> Result<Self, NetlinkError> {
        let (connection, _, events) = rtnetlink::new_multicast_connection(&[MulticastGroup::Link])
            .map_err(NetlinkError::Open)?;
        Ok(Self {
            events: Box::pin(events.map(drop)),
            connection: tokio::spawn(connection),
        })
    }

    /// Waits for an event. A burst of them counts once.
    pub(super) async fn next(&mut self) {
        if self.events.next().await.is_none() {
            // The socket broke. Devices are also looked at from time to time.
            std::future::pending::<()>().await;
        }
        while let Some(Some(())) = self.events.next().now_or_never() {}
    }
}

impl Drop for LinkEvents {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl fmt::Debug for LinkEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LinkEvents(..)")
    }
}
