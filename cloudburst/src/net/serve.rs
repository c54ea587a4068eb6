//! Requests and replies, several at a time.

use std::{future::Future, sync::Arc};

use tokio::{sync::Semaphore, task::JoinSet};

use super::{Endpoint, Received, ReplyError};

impl Endpoint {
    /// Hands every message and request that arrives to `handler`, at most `concurrency`
    /// at a time, and sends what it returns as the reply, if the message was a request.
    /// While so many are being handled, others wait in the inbox. A reply that is on its
    /// way does not count.
    ///
    /// It ends when the endpoint is closed. Dropping the future stops all handlers and
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
        loop {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
                break;
            };
            let Ok(received) = self.recv().await else {
                break;
            };
            // The message goes to the handler; what is needed for the reply stays here.
            let origin = Received {
                peer: received.peer,
                message: Vec::new(),
                request: received.request,
            };
            let reply = handler(received);
            let endpoint = self.clone();
            handling.spawn(async move {
                let Some(reply) = reply.await.filter(|_| origin.is_request()) else {
                    return;
                };
                let sending = endpoint.enqueue_reply(&origin, reply).await;
                // A requester that is gone must not keep others waiting: the room for
                // messages under way bounds how many replies there are.
                drop(slot);
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
}
