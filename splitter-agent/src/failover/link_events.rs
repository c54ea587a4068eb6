//! News of devices from the kernel.

use std::fmt;
use std::pin::Pin;

use futures_util::{FutureExt as _, Stream, StreamExt as _};
use rtnetlink::MulticastGroup;
use splitter_netlink::NetlinkError;
use tokio::task::JoinHandle;

/// Tells that some device has changed; what has become of it is to be asked.
pub(super) struct LinkNews {
    news: Pin<Box<dyn Stream<Item = ()> + Send>>,
    connection: JoinHandle<()>,
}

impl LinkNews {
    /// Listens in the network namespace of this thread.
    pub(super) fn listen() -> Result<Self, NetlinkError> {
        let (connection, _, news) = rtnetlink::new_multicast_connection(&[MulticastGroup::Link])
            .map_err(NetlinkError::Open)?;
        Ok(Self {
            news: Box::pin(news.map(drop)),
            connection: tokio::spawn(connection),
        })
    }

    /// Waits for news. A burst of them counts once.
    pub(super) async fn next(&mut self) {
        if self.news.next().await.is_none() {
            // The socket broke. Devices are also looked at from time to time.
            std::future::pending::<()>().await;
        }
        while let Some(Some(())) = self.news.next().now_or_never() {}
    }
}

impl Drop for LinkNews {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl fmt::Debug for LinkNews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LinkNews(..)")
    }
}
