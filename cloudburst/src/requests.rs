//! Requests and replies: asking, answering, and answering several at a time.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{Arc, atomic::Ordering},
    task::Poll,
    time::Duration,
};

use tokio::{
    sync::{Semaphore, oneshot},
    task::JoinSet,
};

use super::{Closed, Endpoint, Received, ReplyError, RequestError, SendError, Sending};
use cloudburst_proto::{MessageKind, PeerId, Receipt};

impl Endpoint {
    /// Sends a request and waits for the reply, for `timeout` in all. Dropping the future
    /// cancels the request and forgets its reply.
    ///
    /// # Errors
    ///
    /// A [`RequestError`] that says whether the peer had the request at least.
    pub async fn request(
        &self,
        peer: PeerId,
        message: impl Into<Vec<u8>>,
        timeout: Duration,
    ) -> Result<Vec<u8>, RequestError> {
        let message = self.check(message.into())?;
        let mut delivered = false;
        let exchange = self.exchange(peer, message, &mut delivered);
        match tokio::time::timeout(timeout, exchange).await {
            Ok(result) => result,
            Err(_) => Err(RequestError::TimedOut {
                after: timeout,
                delivered,
            }),
        }
    }

    async fn exchange(
        &self,
        peer: PeerId,
        message: Vec<u8>,
        delivered: &mut bool,
    ) -> Result<Vec<u8>, RequestError> {
        let permit = Some(self.shared.room.wait(message.len()).await?);
        let (reply, mut replied) = oneshot::channel();
        let (mut sending, local_id) =
            self.start(peer, MessageKind::Request, message, permit, Some(reply));
        let mut forget = ForgetOnDrop(Some((self, local_id)));
        let mut is_sent = false;
        let replied = poll_fn(|context| {
            if !is_sent && let Poll::Ready(sent) = Pin::new(&mut sending).poll(context) {
                is_sent = true;
                *delivered = sent.is_ok();
            }
            // A failure to send comes by this way too.
            Pin::new(&mut replied).poll(context)
        })
        .await;
        // The driver has forgotten the request by itself.
        forget.0 = None;
        replied.unwrap_or(Err(RequestError::Closed(Closed)))
    }

    /// Answers a request, and waits until the peer has the answer.
    ///
    /// # Errors
    ///
    /// [`ReplyError::NotARequest`] for a plain message, else as with
    /// [`send`](Self::send).
    pub async fn reply(
        &self,
        request: &Received,
        message: impl Into<Vec<u8>>,
    ) -> Result<Receipt, ReplyError> {
        Ok(self.enqueue_reply(request, message.into()).await?.await?)
    }

    /// As [`enqueue`](Self::enqueue), for a reply.
    async fn enqueue_reply(
        &self,
        request: &Received,
        message: Vec<u8>,
    ) -> Result<Sending, ReplyError> {
        let to = request.request.ok_or(ReplyError::NotARequest)?;
        let message = self.check(message).map_err(SendError::from)?;
        // An endpoint that closes still lets replies through; when it is closed, nobody takes them.
        let permit = self.shared.room.wait(message.len()).await.ok();
        let kind = MessageKind::Reply { to };
        Ok(self.start(request.peer, kind, message, permit, None).0)
    }

    /// Hands every message and request that arrives to `handler`, at most `concurrency`
    /// at a time, and sends what it returns as the reply, if the message was a request.
    /// While so many are being handled, others wait in the inbox. A reply that is on its
    /// way does not count.
    ///
    /// It takes nothing new once the endpoint begins to [`close`](Self::close), which waits for
    /// what is being handled, and ends with that. Dropping the future stops all handlers and
    /// cancels replies that are on their way; a handler that panics ends alone.
    ///
    /// ```no_run
    /// # async fn example(endpoint: cloudburst::Endpoint) {
    /// endpoint
    ///     .serve(64, |request| async move { Some(request.message) }) // echo
    ///     .await;
    /// # }
    /// ```
    pub async fn serve<F, R>(&self, concurrency: usize, handler: F)
    where
        F: Fn(Received) -> R,
        R: Future<Output = Option<Vec<u8>>> + Send + 'static,
    {
        let slots = Arc::new(Semaphore::new(concurrency.clamp(1, Semaphore::MAX_PERMITS)));
        let mut handling = JoinSet::new();
        let mut closing = pin!(self.closing());
        loop {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
                break;
            };
            let Some(Ok(received)) = unless(closing.as_mut(), self.recv()).await else {
                break;
            };
            let handled = self.handle_one();
            // The message goes to the handler; what is needed for the reply stays here.
            let origin = Received {
                peer: received.peer,
                message: Vec::new(),
                request: received.request,
            };
            let reply = handler(received);
            let endpoint = self.clone();
            handling.spawn(async move {
                let handled = handled;
                let Some(reply) = reply.await.filter(|_| origin.is_request()) else {
                    return;
                };
                let sending = endpoint.enqueue_reply(&origin, reply).await;
                // A requester that is gone must not keep others waiting: the capacity for
                // messages under way bounds how many replies there are.
                drop(slot);
                drop(handled);
                let result = match sending {
                    Ok(sending) => sending.await.map_err(ReplyError::from),
                    Err(error) => Err(error),
                };
                if let Err(error) = result {
                    tracing::debug!(%error, "a reply was not delivered");
                }
            });
            while handling.try_join_next().is_some() {}
        }
        while handling.join_next().await.is_some() {}
    }

    /// Resolves when the endpoint begins to close.
    fn closing(&self) -> impl Future<Output = ()> + use<> {
        let mut closing = self.shared.closing.subscribe();
        async move {
            // Its other end is gone with all handles.
            let _ = closing.wait_for(|is_closing| *is_closing).await;
        }
    }

    /// A request is being handled from now on, until what is returned is dropped.
    fn handle_one(&self) -> Handling {
        self.shared.handling.fetch_add(1, Ordering::SeqCst);
        Handling(self.clone())
    }
}

/// A request whose reply nobody waits for, unless it came.
struct ForgetOnDrop<'a>(Option<(&'a Endpoint, u64)>);

impl Drop for ForgetOnDrop<'_> {
    fn drop(&mut self) {
        if let Some((endpoint, local_id)) = self.0 {
            endpoint.shared.commands.cancel(local_id);
        }
    }
}

/// A request that is being handled.
#[derive(Debug)]
struct Handling(Endpoint);

impl Drop for Handling {
    fn drop(&mut self) {
        let shared = &self.0.shared;
        shared.handling.fetch_sub(1, Ordering::SeqCst);
        // Only an endpoint that closes waits for that.
        if *shared.closing.borrow() {
            shared.commands.handled();
        }
    }
}

/// What the future resolves to, or nothing if `stop` does so before.
async fn unless<T>(stop: impl Future<Output = ()>, future: impl Future<Output = T>) -> Option<T> {
    let (mut stop, mut future) = (pin!(stop), pin!(future));
    poll_fn(|context| match stop.as_mut().poll(context) {
        Poll::Ready(()) => Poll::Ready(None),
        Poll::Pending => future.as_mut().poll(context).map(Some),
    })
    .await
}
