//! News of devices from the kernel.

use std::sync::Arc;

use futures_util::StreamExt as _;
use rtnetlink::MulticastGroup;
use splitter_netlink::NetlinkError;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Tells that some device has changed; what has become of it is to be asked. Clones hear of the same
/// events.
#[derive(Debug, Clone)]
pub(super) struct LinkEvents {
    events: watch::Receiver<()>,
    _tasks: Arc<Tasks>,
}

/// What reads from the kernel, as long as somebody listens.
#[derive(Debug)]
struct Tasks([JoinHandle<()>; 2]);

impl LinkEvents {
    /// Listens in the network namespace of this thread.
    pub(super) fn listen() -> Result<Self, NetlinkError> {
        let (connection, _, mut messages) =
            rtnetlink::new_multicast_connection(&[MulticastGroup::Link])
                .map_err(NetlinkError::Open)?;
        let (tell, events) = watch::channel(());
        let telling = async move {
            while messages.next().await.is_some() {
                tell.send_replace(());
            }
            // The socket broke. Devices are also looked at from time to time.
            std::future::pending::<()>().await;
        };
        let tasks = [tokio::spawn(connection), tokio::spawn(telling)];
        Ok(Self {
            events,
            _tasks: Arc::new(Tasks(tasks)),
        })
    }

    /// Waits for an event. A burst of them counts once.
    pub(super) async fn next(&mut self) {
        if self.events.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}
