//! Requests and replies: asking, answering, and answering several at a time.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{Arc, atomic::Ordering},
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    sync::{Semaphore, oneshot},
    task::JoinSet,
};

use super::{
    Closed, Endpoint, Received, ReplyError, RequestError, SendError, Sending, options::CallOptions,
    pending_request::PendingRequest,
};
use cloudburst_proto::{
    Failure, FailureReason, ForeignPeer, MessageKind, PeerId, Receipt, SendOptions,
};

impl Endpoint {
    /// Sends a request and waits for the reply, for `timeout` in all.
    ///
    /// When the time is over, and when the future is dropped, the request is cancelled: the peer
    /// forgets what it has of it, and ends the handler that works on it.
    ///
    /// # Errors
    ///
    /// A [`RequestError`] that says whether the peer had the request at least.
    pub async fn request(
        &self,
        peer: PeerId,
        message: impl Into<Bytes>,
        timeout: Duration,
    ) -> Result<Bytes, RequestError> {
        let options = self.shared.send_options;
        self.request_with(peer, message, timeout, options).await
    }

    /// Does what [`request`](Self::request) does, with options for the request.
    ///
    /// # Errors
    ///
    /// A [`RequestError`] that says whether the peer had the request at least.
    pub async fn request_with(
        &self,
        peer: PeerId,
        message: impl Into<Bytes>,
        timeout: Duration,
        options: SendOptions,
    ) -> Result<Bytes, RequestError> {
        let options = CallOptions::begin(options);
        let message = (self.check(message.into())?, options);
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
        (message, options): (Bytes, CallOptions),
        delivered: &mut bool,
    ) -> Result<Bytes, RequestError> {
        let permit = Some(self.capacity(message.len(), options).await?);
        let (reply, mut replied) = oneshot::channel();
        let kind = (MessageKind::Request, options);
        let (mut sending, local_id) = self.start(peer, kind, message, permit, Some(reply));
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
    /// [`ReplyError::NotARequest`] for a plain message, [`ReplyError::Answered`] for a request that
    /// has its reply, [`ReplyError::Cancelled`] for one that needs none, else as with
    /// [`send`](Self::send).
    pub async fn reply(
        &self,
        request: &Received,
        message: impl Into<Bytes>,
    ) -> Result<Receipt, ReplyError> {
        Ok(self.enqueue_reply(request, message.into()).await?.await?)
    }

    /// Answers a request that there is no reply, and why: its sender gets
    /// [`RequestError::Failed`]. It does not wait for anything.
    ///
    /// # Errors
    ///
    /// [`ReplyError::NotARequest`] for a plain message, [`ReplyError::Answered`] for a request that
    /// has its reply, and [`ReplyError::Cancelled`] for one that needs none.
    pub fn fail(&self, request: &Received, failure: impl Into<Failure>) -> Result<(), ReplyError> {
        self.pending(request)?.fail(&failure.into())
    }

    /// The request that a message is, if it came to this endpoint.
    fn pending<'r>(&self, request: &'r Received) -> Result<&'r PendingRequest, ReplyError> {
        let pending = request.request.as_ref().ok_or(ReplyError::NotARequest)?;
        if request.peer.transport() != self.shared.transport {
            return Err(SendError::Refused(ForeignPeer.into()).into());
        }
        Ok(pending)
    }

    /// As [`enqueue`](Self::enqueue), for a reply.
    async fn enqueue_reply(
        &self,
        request: &Received,
        message: Bytes,
    ) -> Result<Sending, ReplyError> {
        let pending = self.pending(request)?;
        let message = self.check(message).map_err(SendError::from)?;
        // An endpoint that closes still lets replies through; when it is closed, nobody takes them.
        let options = self.default_options();
        let permit = match self.capacity(message.len(), options).await {
            Ok(permit) => Some(permit),
            Err(SendError::Closed(_)) => None,
            Err(error) => return Err(error.into()),
        };
        pending.answer()?;
        let kind = (MessageKind::Reply { to: pending.id() }, options);
        Ok(self.start(request.peer, kind, message, permit, None).0)
    }

    /// Hands every message and request that arrives to `handler`, at most `concurrency`
    /// at a time, and sends what it returns as the reply, if the message was a request.
    /// While so many are being handled, others wait in the inbox. A reply that is on its
    /// way does not count.
    ///
    /// A request always gets an answer: where the handler returns `None` or a [`Failure`], panics, or
    /// returns more than can be sent, its sender gets [`RequestError::Failed`] with the reason. A
    /// handler that returns `None` and keeps the [`Received`] elsewhere may reply later.
    ///
    /// When the sender of a request gives it up, the handler's future is dropped where it waits.
    ///
    /// It takes nothing new once the endpoint begins to [`close`](Self::close), which waits for
    /// what is being handled, and ends with that. Dropping the future stops all handlers and
    /// cancels replies that are on their way; a handler that panics ends alone.
    ///
    /// ```no_run
    /// use cloudburst::{Failure, Received};
    ///
    /// # async fn example(endpoint: cloudburst::Endpoint) {
    /// endpoint
    ///     .serve(64, |request: Received| async move {
    ///         match &request.message[..] {
    ///             b"secret" => Err(Failure::refused("nobody may ask for that")),
    ///             _ => Ok(request.message), // echo
    ///         }
    ///     })
    ///     .await;
    /// # }
    /// ```
    pub async fn serve<F, R>(&self, concurrency: usize, handler: F)
    where
        F: Fn(Received) -> R,
        R: Future<Output: IntoReply> + Send + 'static,
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
            if received.is_cancelled() {
                continue;
            }
            let handled = self.handle_one();
            // The message goes to the handler; what is needed for the reply stays here.
            let origin = Received {
                message: Bytes::new(),
                request: received.request.clone(),
                ..received
            };
            let reply = handler(received);
            let endpoint = self.clone();
            handling.spawn(async move {
                let handled = handled;
                if let Some(pending) = &origin.request {
                    pending.set_reason(FailureReason::Stopped);
                }
                let reply = unless(origin.cancelled(), reply).await;
                let reply = reply.map(IntoReply::into_reply);
                let sending = match reply {
                    Some(reply) => endpoint.answer(&origin, reply).await,
                    None => None,
                };
                // A requester that is gone must not keep others waiting: the capacity for
                // messages under way bounds how many replies there are.
                drop((slot, handled));
                if let Some(sending) = sending
                    && let Err(error) = sending.await
                {
                    tracing::debug!(%error, "a reply was not delivered");
                }
            });
            while handling.try_join_next().is_some() {}
        }
        while handling.join_next().await.is_some() {}
    }

    /// Sends what a handler has made of a request, if it was one and waits for its reply still.
    async fn answer(&self, origin: &Received, reply: Result<Bytes, Failure>) -> Option<Sending> {
        let pending = origin.request.as_ref()?;
        // The handler may have kept the request, to reply later.
        pending.set_reason(FailureReason::NoReply);
        let failure = match reply {
            Err(failure) if failure.reason() == FailureReason::NoReply => return None,
            Err(failure) => failure,
            Ok(message) => match self.enqueue_reply(origin, message).await {
                Ok(sending) => return Some(sending),
                Err(ReplyError::Answered | ReplyError::Cancelled) => return None,
                Err(error) => Failure::new(FailureReason::ReplyTooLarge, &error.to_string()),
            },
        };
        // Whoever has answered meanwhile, or waits no more, needs it not.
        let _ = pending.fail(&failure);
        None
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

/// Turns into a reply: what handlers of requests return.
///
/// - bytes are the reply, even if there are none;
/// - `None` is no reply: a request gets [`FailureReason::NoReply`], unless the handler has kept it;
/// - an error is no reply either, with a reason.
pub trait IntoReply {
    /// Returns the reply, or says why there is none.
    ///
    /// # Errors
    ///
    /// The reason that the sender of the request gets.
    fn into_reply(self) -> Result<Bytes, Failure>;
}

impl IntoReply for Bytes {
    fn into_reply(self) -> Result<Bytes, Failure> {
        Ok(self)
    }
}

impl IntoReply for Vec<u8> {
    fn into_reply(self) -> Result<Bytes, Failure> {
        Ok(self.into())
    }
}

impl<T: IntoReply> IntoReply for Option<T> {
    fn into_reply(self) -> Result<Bytes, Failure> {
        self.map_or(Err(FailureReason::NoReply.into()), T::into_reply)
    }
}

impl<T: IntoReply, E: Into<Failure>> IntoReply for Result<T, E> {
    fn into_reply(self) -> Result<Bytes, Failure> {
        self.map_err(E::into)?.into_reply()
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
