//! Connections kept open, each for one request at a time.

use std::{cell::RefCell, collections::VecDeque, future::Future, io, rc::Rc, time::Duration};

use futures_util::future::LocalBoxFuture;
use tokio::{sync::Semaphore, task::spawn_local, time::sleep};

/// How long to wait before trying to open a connection again.
const RETRY: Duration = Duration::from_millis(100);

type Open<T> = Box<dyn Fn(usize) -> LocalBoxFuture<'static, io::Result<T>>>;

/// Connections of the kind `T`. A request takes the one that was idle longest, and waits in order
/// while there is none. A connection on which a request fails, or is given up, is replaced.
pub(super) struct Pool<T> {
    shared: Rc<Shared<T>>,
}

struct Shared<T> {
    open: Open<T>,
    idle: RefCell<VecDeque<(usize, T)>>,
    /// One permit for each idle connection.
    permits: Semaphore,
}

/// A connection in use. It is replaced unless [`give_back`](Self::give_back) is called.
pub(super) struct Lease<T: 'static> {
    shared: Rc<Shared<T>>,
    index: usize,
    connection: Option<T>,
}

impl<T: 'static> Pool<T> {
    /// Opens `count` connections at once. `open` gets the index of the one to be opened.
    pub(super) async fn open<F>(
        count: usize,
        open: impl Fn(usize) -> F + 'static,
    ) -> io::Result<Self>
    where
        F: Future<Output = io::Result<T>> + 'static,
    {
        let shared = Rc::new(Shared {
            open: Box::new(move |index| Box::pin(open(index))),
            idle: RefCell::default(),
            permits: Semaphore::new(0),
        });
        let opened = futures_util::future::try_join_all((0..count).map(|it| (shared.open)(it)));
        for (index, connection) in opened.await?.into_iter().enumerate() {
            shared.put(index, connection);
        }
        Ok(Self { shared })
    }

    /// Takes a connection as soon as one is free.
    pub(super) async fn take(&self) -> io::Result<Lease<T>> {
        let permit = self.shared.permits.acquire().await;
        permit.map_err(io::Error::other)?.forget();
        let taken = self.shared.idle.borrow_mut().pop_front();
        let (index, connection) =
            taken.ok_or_else(|| io::Error::other("no idle connection for a permit"))?;
        Ok(Lease {
            shared: Rc::clone(&self.shared),
            index,
            connection: Some(connection),
        })
    }
}

impl<T> Shared<T> {
    fn put(&self, index: usize, connection: T) {
        self.idle.borrow_mut().push_back((index, connection));
        self.permits.add_permits(1);
    }
}

impl<T> Lease<T> {
    /// Returns the connection that was taken, or an error after it was given back.
    pub(super) fn connection(&mut self) -> io::Result<&mut T> {
        let connection = self.connection.as_mut();
        connection.ok_or_else(|| io::Error::other("the connection was given back"))
    }

    /// The request succeeded: others may use the connection.
    pub(super) fn give_back(mut self) {
        if let Some(connection) = self.connection.take() {
            self.shared.put(self.index, connection);
        }
    }
}

impl<T> Drop for Lease<T> {
    fn drop(&mut self) {
        if self.connection.take().is_none() {
            return;
        }
        let (shared, index) = (Rc::downgrade(&self.shared), self.index);
        spawn_local(async move {
            // Ends with the pool.
            while let Some(shared) = shared.upgrade() {
                match (shared.open)(index).await {
                    Ok(connection) => return shared.put(index, connection),
                    Err(_) => sleep(RETRY).await,
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::{runtime, task::LocalSet, time::timeout};

    use super::*;

    #[test]
    fn connections_are_lent_in_turn_and_replaced_when_lost() -> io::Result<()> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_time()
            .build()?;
        LocalSet::new().block_on(&runtime, async {
            let opened = Rc::new(Cell::new(0));
            let pool = Pool::open(2, move |_| {
                opened.set(opened.get() + 1);
                let number = opened.get();
                async move { Ok(number) }
            });
            let pool = pool.await?;
            let mut first = pool.take().await?;
            let mut second = pool.take().await?;
            assert_eq!((*first.connection()?, *second.connection()?), (1, 2));
            let waited = timeout(Duration::from_millis(10), pool.take()).await;
            assert!(waited.is_err(), "both are in use");

            second.give_back();
            drop(first);
            assert_eq!(*pool.take().await?.connection()?, 2);
            assert_eq!(*pool.take().await?.connection()?, 3);
            Ok(())
        })
    }
}
