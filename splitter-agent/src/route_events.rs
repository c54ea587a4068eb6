//! Notifications of rules and routes from the kernel.

use std::fmt;
use std::pin::Pin;

use futures_util::{FutureExt as _, Stream, StreamExt as _};
use rtnetlink::MulticastGroup;
use splitter_netlink::NetlinkError;
use tokio::task::JoinHandle;

/// All that changes where packets go.
const GROUPS: [MulticastGroup; 7] = [
    MulticastGroup::Link,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv4Rule,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv6Route,
    MulticastGroup::Ipv6Rule,
];

/// Tells that a rule, a route, a device or an address has changed; what has become of it is to be
/// asked.
pub(crate) struct RouteEvents {
    events: Pin<Box<dyn Stream<Item = ()> + Send>>,
    connection: JoinHandle<()>,
}

impl RouteEvents {
    /// Listens in the network namespace of this thread.
    pub(crate) fn listen() -> Result<Self, NetlinkError> {
        let (connection, _, events) =
            rtnetlink::new_multicast_connection(&GROUPS).map_err(NetlinkError::Open)?;
        Ok(Self {
            events: Box::pin(events.map(drop)),
            connection: tokio::spawn(connection),
        })
    }

    /// Waits for an event.
    pub(crate) async fn next(&mut self) {
        if self.events.next().await.is_none() {
            // The socket broke. Who waits also looks from time to time.
            std::future::pending::<()>().await;
        }
    }

    /// Forgets what has come by now.
    pub(crate) fn drain(&mut self) {
        while let Some(Some(())) = self.events.next().now_or_never() {}
    }
}

impl Drop for RouteEvents {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl fmt::Debug for RouteEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RouteEvents(..)")
    }
}
