//! Blocking calls for programs without an async runtime of their own.
//!
//! ```
//! use std::{num::NonZeroU8, time::Duration};
//! use cloudburst::{EndpointConfig, Key, Security, blocking::BlockingEndpoint};
//!
//! # fn main() -> Result<(), cloudburst::Error> {
//! // One key for both ends, which are on one machine here.
//! let security = Security::shared_key(Key::new(NonZeroU8::MIN, [42; 32]));
//! let here = [127, 0, 0, 1].into();
//! let config = EndpointConfig::server(0, security.clone()).with_local([here])?;
//! let server = BlockingEndpoint::bind(config)?;
//!
//! let client = BlockingEndpoint::bind(EndpointConfig::client(security).with_local([here])?)?;
//! let peer = client.connect(server.local_addrs())?;
//! client.send(peer, "made to arrive soon")?;
//! assert_eq!(server.recv()?.message, "made to arrive soon");
//! client.close(Duration::from_secs(1));
//! # Ok(())
//! # }
//! ```

use std::{
    future::Future,
    io,
    net::SocketAddr,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    runtime::{Builder, Handle},
    sync::{Semaphore, oneshot},
};

use super::{
    BindError, CloseReport, Closed, ConnectError, EndpointConfig, EndpointEvent,
    EndpointStatistics, GroupOutcome, IntoReply, PeerError, Received, ReplyError, RequestError,
    SendError, TrySendError,
    runtime::{Runtime, TokioRuntime},
};
use cloudburst_proto::{
    Failure, FailureReason, PathReport, PeerId, PublicKey, Receipt, Security, SendOptions,
};

/// An [`Endpoint`](super::Endpoint) with a thread of its own. Operations block the thread
/// that calls; several threads may share one by reference.
///
/// Dropping it ends it at once: what is under way is cancelled.
///
/// # Panics
///
/// Each operation, when called within a runtime of tokio: use the async endpoint there.
#[derive(Debug)]
pub struct BlockingEndpoint {
    inner: super::Endpoint,
    runtime: Handle,
    /// Dropped, it ends the thread.
    _stop: oneshot::Sender<()>,
}

impl BlockingEndpoint {
    /// Does what [`Endpoint::bind`](super::Endpoint::bind) does, without a runtime.
    ///
    /// # Errors
    ///
    /// A [`BindError`].
    pub fn bind(config: EndpointConfig) -> Result<Self, BindError> {
        Self::bind_with(TokioRuntime, config)
    }

    /// Does what [`Endpoint::bind_with`](super::Endpoint::bind_with) does, without a runtime of tokio: its
    /// thread has one, in which the [`Runtime`]'s sockets and timers are made and the driver is spawned.
    ///
    /// ```
    /// use std::{num::NonZeroU8, time::Duration};
    /// use cloudburst::{
    ///     EndpointConfig, Key, Security, blocking::BlockingEndpoint, memory::MemoryNetwork,
    /// };
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let security = Security::shared_key(Key::new(NonZeroU8::MIN, [42; 32]));
    /// let network = MemoryNetwork::new(1);
    /// let server = EndpointConfig::server(4433, security.clone()).with_local([[10, 0, 0, 2].into()])?;
    /// let server = BlockingEndpoint::bind_with(network.clone(), server)?;
    /// let client = EndpointConfig::client(security).with_local([[10, 0, 0, 1].into()])?;
    /// let client = BlockingEndpoint::bind_with(network, client)?;
    ///
    /// let peer = client.connect(server.local_addrs())?;
    /// client.send(peer, "made to arrive soon")?;
    /// assert_eq!(server.recv()?.message, "made to arrive soon");
    /// # client.close(Duration::from_secs(1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// A [`BindError`].
    pub fn bind_with(runtime: impl Runtime, config: EndpointConfig) -> Result<Self, BindError> {
        let system = |action| move |source| BindError::System { action, source };
        let own = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(system("start a runtime"))?;
        let handle = own.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let (bound, result) = mpsc::channel();
        let run = move || {
            own.block_on(async {
                let endpoint = super::Endpoint::bind_with(runtime, config).await;
                if bound.send(endpoint).is_ok() {
                    let _: Result<(), _> = stopped.await;
                }
            });
        };
        thread::Builder::new()
            .name("cloudburst".to_owned())
            .spawn(run)
            .map_err(system("start a thread"))?;
        let gone = |_| io::Error::other("the thread ended early");
        let inner = result.recv().map_err(gone).map_err(system("start"))??;
        Ok(Self {
            inner,
            runtime: handle,
            _stop: stop,
        })
    }

    fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Does what [`Endpoint::local_addrs`](super::Endpoint::local_addrs) does, without a runtime.
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        self.inner.local_addrs()
    }

    /// Does what [`Endpoint::connect`](super::Endpoint::connect) does, without a runtime.
    ///
    /// # Errors
    ///
    /// A [`ConnectError`].
    pub fn connect(
        &self,
        remotes: impl IntoIterator<Item = SocketAddr>,
    ) -> Result<PeerId, ConnectError> {
        self.wait(self.inner.connect(remotes))
    }

    /// Does what [`Endpoint::connect_to`](super::Endpoint::connect_to) does, without a runtime.
    ///
    /// # Errors
    ///
    /// A [`ConnectError`].
    pub fn connect_to(
        &self,
        key: PublicKey,
        remotes: impl IntoIterator<Item = SocketAddr>,
    ) -> Result<PeerId, ConnectError> {
        self.wait(self.inner.connect_to(key, remotes))
    }

    /// Does what [`Endpoint::peer_key`](super::Endpoint::peer_key) does, without a runtime.
    ///
    /// # Errors
    ///
    /// A [`PeerError`].
    pub fn peer_key(&self, peer: PeerId) -> Result<Option<PublicKey>, PeerError> {
        self.wait(self.inner.peer_key(peer))
    }

    /// Does what [`Endpoint::send`](super::Endpoint::send) does, without a runtime.
    ///
    /// # Errors
    ///
    /// A [`SendError`].
    pub fn send(&self, peer: PeerId, message: impl Into<Bytes>) -> Result<Receipt, SendError> {
        self.wait(self.inner.send(peer, message))
    }

    /// Does what [`Endpoint::send_with`](super::Endpoint::send_with) does, without a runtime.
    ///
    /// # Errors
    ///
    /// A [`SendError`].
    pub fn send_with(
        &self,
        peer: PeerId,
        message: impl Into<Bytes>,
        options: SendOptions,
    ) -> Result<Receipt, SendError> {
        self.wait(self.inner.send_with(peer, message, options))
    }

    /// Does what [`Endpoint::enqueue`](super::Endpoint::enqueue) does, without a runtime.
    ///
    /// # Errors
    ///
    /// A [`SendError`].
    pub fn enqueue(&self, peer: PeerId, message: impl Into<Bytes>) -> Result<Sending, SendError> {
        let sending = self.wait(self.inner.enqueue(peer, message))?;
        Ok(self.sending(sending))
    }

    /// Does what [`Endpoint::enqueue_with`](super::Endpoint::enqueue_with) does, without a runtime.
    ///
    /// # Errors
    ///
    /// A [`SendError`].
    pub fn enqueue_with(
        &self,
        peer: PeerId,
        message: impl Into<Bytes>,
        options: SendOptions,
    ) -> Result<Sending, SendError> {
        let sending = self.wait(self.inner.enqueue_with(peer, message, options))?;
        Ok(self.sending(sending))
    }

    /// Does what [`Endpoint::try_send`](super::Endpoint::try_send) does, without a runtime.
    ///
    /// # Errors
    ///
    /// A [`TrySendError`].
    pub fn try_send(
        &self,
        peer: PeerId,
        message: impl Into<Bytes>,
    ) -> Result<Sending, TrySendError> {
        let sending = self.inner.try_send(peer, message)?;
        Ok(self.sending(sending))
    }

    fn sending(&self, inner: super::Sending) -> Sending {
        Sending {
            inner,
            runtime: self.runtime.clone(),
        }
    }

    /// Does what [`Endpoint::send_group`](super::Endpoint::send_group) does, without a runtime.
    ///
    /// # Errors
    ///
    /// A [`SendError`] when it was taken for no peer.
    pub fn send_group(
        &self,
        peers: impl IntoIterator<Item = PeerId>,
        message: impl Into<Bytes>,
    ) -> Result<Vec<GroupOutcome>, SendError> {
        self.wait(self.inner.send_group(peers, message))
    }

    /// Does what [`Endpoint::request`](super::Endpoint::request) does, without a runtime.
    ///
    /// # Errors
    ///
    /// A [`RequestError`].
    pub fn request(
        &self,
        peer: PeerId,
        message: impl Into<Bytes>,
        timeout: Duration,
    ) -> Result<Bytes, RequestError> {
        self.wait(self.inner.request(peer, message, timeout))
    }

    /// Does what [`Endpoint::request_with`](super::Endpoint::request_with) does, without a runtime.
    ///
    /// # Errors
    ///
    /// A [`RequestError`].
    pub fn request_with(
        &self,
        peer: PeerId,
        message: impl Into<Bytes>,
        timeout: Duration,
        options: SendOptions,
    ) -> Result<Bytes, RequestError> {
        let request = self.inner.request_with(peer, message, timeout, options);
        self.wait(request)
    }

    /// Does what [`Endpoint::reply`](super::Endpoint::reply) does, without a runtime.
    ///
    /// # Errors
    ///
    /// A [`ReplyError`].
    pub fn reply(
        &self,
        request: &Received,
        message: impl Into<Bytes>,
    ) -> Result<Receipt, ReplyError> {
        self.wait(self.inner.reply(request, message))
    }

    /// Does what [`Endpoint::fail`](super::Endpoint::fail) does.
    ///
    /// # Errors
    ///
    /// A [`ReplyError`].
    pub fn fail(&self, request: &Received, failure: impl Into<Failure>) -> Result<(), ReplyError> {
        self.inner.fail(request, failure)
    }

    /// Hands every message and request that arrives to `handler`, and sends what it returns as
    /// the reply, if the message was a request. Handlers run on threads of their own, at most
    /// `concurrency` of them, and 512 in any case. One whose request is cancelled goes on to its end
    /// ([`Received::is_cancelled`] tells).
    ///
    /// It ends when another thread [closes](Self::close) the endpoint, which waits for what is
    /// being handled.
    ///
    /// ```no_run
    /// # fn example(endpoint: cloudburst::blocking::BlockingEndpoint) {
    /// endpoint.serve(4, |request| Some(request.message)); // echo
    /// # }
    /// ```
    pub fn serve<F, R>(&self, concurrency: usize, handler: F)
    where
        F: Fn(Received) -> R + Send + Sync + 'static,
        R: IntoReply + Send + 'static,
    {
        let handler = Arc::new(handler);
        // A thread goes on when nobody waits for it any more.
        let threads = Arc::new(Semaphore::new(concurrency.clamp(1, Semaphore::MAX_PERMITS)));
        let on_a_thread = move |request| {
            let (handler, threads) = (Arc::clone(&handler), Arc::clone(&threads));
            async move {
                let thread = threads.acquire_owned().await;
                let handled = tokio::task::spawn_blocking(move || {
                    let _thread = thread;
                    handler(request)
                });
                // One that panics ends alone.
                handled.await.map_err(|_| FailureReason::Panicked)
            }
        };
        self.wait(self.inner.serve(concurrency, on_a_thread));
    }

    /// Does what [`Endpoint::recv`](super::Endpoint::recv) does, without a runtime.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn recv(&self) -> Result<Received, Closed> {
        self.wait(self.inner.recv())
    }

    /// The next message or request, or nothing if none arrives for so long.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Option<Received>, Closed> {
        let received = async { tokio::time::timeout(timeout, self.inner.recv()).await };
        self.wait(received).ok().transpose()
    }

    /// Does what [`Endpoint::events`](super::Endpoint::events) does, without a runtime.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn events(&self) -> Result<Events, Closed> {
        Ok(Events {
            inner: self.inner.events()?,
            runtime: self.runtime.clone(),
        })
    }

    /// Does what [`Endpoint::statistics`](super::Endpoint::statistics) does, without a runtime.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn statistics(&self) -> Result<EndpointStatistics, Closed> {
        self.wait(self.inner.statistics())
    }

    /// Does what [`Endpoint::peers`](super::Endpoint::peers) does, without a runtime.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn peers(&self) -> Result<Vec<PeerId>, Closed> {
        self.wait(self.inner.peers())
    }

    /// Does what [`Endpoint::paths`](super::Endpoint::paths) does, without a runtime.
    ///
    /// # Errors
    ///
    /// A [`PeerError`].
    pub fn paths(&self, peer: PeerId) -> Result<Vec<PathReport>, PeerError> {
        self.wait(self.inner.paths(peer))
    }

    /// Does what [`Endpoint::set_security`](super::Endpoint::set_security) does, without a runtime.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn set_security(&self, security: Security) -> Result<(), Closed> {
        self.inner.set_security(security)
    }

    /// Does what [`Endpoint::forget`](super::Endpoint::forget) does, without a runtime.
    ///
    /// # Errors
    ///
    /// A [`PeerError`].
    pub fn forget(&self, peer: PeerId) -> Result<(), PeerError> {
        self.wait(self.inner.forget(peer))
    }

    /// Does what [`Endpoint::close`](super::Endpoint::close) does, without a runtime.
    pub fn close(&self, within: Duration) -> CloseReport {
        self.wait(self.inner.close(within))
    }
}

/// Events of an endpoint, from when it was asked for them; see [`BlockingEndpoint::events`].
#[derive(Debug)]
pub struct Events {
    inner: super::Events,
    runtime: Handle,
}

impl Events {
    /// Waits for the next event; nothing once the endpoint is closed.
    ///
    /// # Panics
    ///
    /// Within a runtime of tokio.
    pub fn wait(&mut self) -> Option<EndpointEvent> {
        self.runtime.block_on(self.inner.next())
    }
}

/// A message under way; see [`BlockingEndpoint::enqueue`].
///
/// Dropping it cancels the message: the peer may have it or get it all the same.
/// [`detach`](Self::detach) lets it go its way.
#[derive(Debug)]
#[must_use = "dropping it cancels the message; call wait or detach"]
pub struct Sending {
    inner: super::Sending,
    runtime: Handle,
}

impl Sending {
    /// Waits until the peer has the message, or it was abandoned.
    ///
    /// # Errors
    ///
    /// A [`SendError`].
    ///
    /// # Panics
    ///
    /// Within a runtime of tokio.
    pub fn wait(self) -> Result<Receipt, SendError> {
        self.runtime.block_on(self.inner)
    }

    /// Waits as [`wait`](Self::wait) does, but not longer than so: nothing if the message is still under
    /// way then, and it can be waited for again. Once it has returned what became of the message, there is
    /// nothing more to wait for, and it is to be dropped.
    ///
    /// # Panics
    ///
    /// Within a runtime of tokio, after its [`BlockingEndpoint`] was dropped, and when called again after
    /// it has returned what became of the message.
    pub fn wait_timeout(&mut self, timeout: Duration) -> Option<Result<Receipt, SendError>> {
        let ended = async { tokio::time::timeout(timeout, &mut self.inner).await };
        self.runtime.block_on(ended).ok()
    }

    /// The message is sent as long as its budget allows, and nobody asks what became of it.
    pub fn detach(self) {
        self.inner.detach();
    }
}
