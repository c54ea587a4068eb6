//! The bound on connections: the one that has kept the endpoint waiting longest gives way to a
//! new one.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{sync::Notify, time::Instant};

/// Bounds how many connections are served at a time, and closes the oldest idle one for a new one:
/// who connects and sends nothing, or reads nothing, keeps nobody else out.
#[derive(Clone, Debug)]
pub(crate) struct Connections {
    most: usize,
    shared: Arc<Shared>,
}

/// A connection's place among those that are served. Dropped, it is free again.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionSlot(Arc<Slot>);

/// A request that is being handled: its connection does not give way meanwhile.
#[derive(Debug)]
pub(crate) struct BusySlot<'s>(&'s Slot);

#[derive(Debug, Default)]
struct Shared {
    open: Mutex<Open>,
    /// A slot has become free, or may be taken from its connection.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    connections: HashMap<u64, Connection>,
}

#[derive(Debug)]
struct Connection {
    /// Since when the client is to send or to read something; none while we are to answer.
    idle_since: Option<Instant>,
    evicted: Arc<Notify>,
}

#[derive(Debug)]
struct Slot {
    id: u64,
    evicted: Arc<Notify>,
    shared: Arc<Shared>,
}

impl Connections {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            shared: Arc::default(),
        }
    }

    /// Waits for a slot, which takes one from the oldest idle connection if there is no other;
    /// while requests are being handled on all connections, it takes until one is done.
    pub(crate) async fn admit(&self) -> ConnectionSlot {
        loop {
            let changed = self.shared.changed.notified();
            if let Some(slot) = self.try_admit() {
                return slot;
            }
            changed.await;
        }
    }

    fn try_admit(&self) -> Option<ConnectionSlot> {
        let mut open = self.shared.open();
        if open.connections.len() >= self.most {
            open.evict()?;
        }
        let id = open.next;
        open.next += 1;
        let evicted = Arc::new(Notify::new());
        let connection = Connection {
            idle_since: Some(Instant::now()),
            evicted: Arc::clone(&evicted),
        };
        open.connections.insert(id, connection);
        let shared = Arc::clone(&self.shared);
        Some(ConnectionSlot(Arc::new(Slot {
            id,
            evicted,
            shared,
        })))
    }
}

impl ConnectionSlot {
    /// Keeps the slot while a request is handled.
    pub(crate) fn busy(&self) -> BusySlot<'_> {
        self.0.set_idle_since(None);
        BusySlot(&self.0)
    }

    /// Waits until the slot has been given to another connection.
    pub(crate) async fn evicted(&self) {
        self.0.evicted.notified().await;
    }
}

impl Drop for BusySlot<'_> {
    fn drop(&mut self) {
        self.0.set_idle_since(Some(Instant::now()));
        self.0.shared.changed.notify_one();
    }
}

impl Slot {
    fn set_idle_since(&self, since: Option<Instant>) {
        if let Some(connection) = self.shared.open().connections.get_mut(&self.id) {
            connection.idle_since = since;
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.shared.open().connections.remove(&self.id);
        self.shared.changed.notify_one();
    }
}

impl Shared {
    fn open(&self) -> MutexGuard<'_, Open> {
        // Nothing panics while it holds the lock, and each change leaves the map whole.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// Takes the slot from the connection that has been idle for longest, if one is.
    fn evict(&mut self) -> Option<()> {
        let idle = self.connections.iter();
        let idle = idle.filter_map(|(id, connection)| Some((connection.idle_since?, *id)));
        let (_, oldest) = idle.min()?;
        let connection = self.connections.remove(&oldest)?;
        connection.evicted.notify_one();
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{pin::pin, task::Poll};

    /// Whether it has come to an end by now.
    async fn is_over(future: impl Future<Output = ()>) -> bool {
        let mut future = pin!(future);
        std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_ready())).await
    }

    #[tokio::test]
    async fn the_oldest_idle_connection_gives_way_and_a_busy_one_never() {
        let connections = Connections::new(2);
        let (first, second) = (connections.admit().await, connections.admit().await);
        let busy = first.busy();
        let third = connections.admit().await;
        assert!(is_over(second.evicted()).await, "it was idle");
        assert!(!is_over(first.evicted()).await, "it is handling a request");
        let also_busy = third.busy();
        assert!(!is_over(async { drop(connections.admit().await) }).await);
        drop(busy);
        let fourth = connections.admit().await;
        assert!(is_over(first.evicted()).await, "it became idle");
        drop(also_busy);
        drop(third);
        let fifth = connections.admit().await;
        assert!(!is_over(fourth.evicted()).await, "there was a free slot");
        drop(fifth);
    }
}
