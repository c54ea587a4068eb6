//! Messages on their way out: the capacity they take, and the handle to wait by.

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError, mpsc, oneshot};

use super::{
    Closed, RequestError, SendError,
    commands::{Commands, Send},
    options::CallOptions,
};
use cloudburst_proto::{GoneReason, MessageKind, PeerId, Quotas, Receipt, SendId};

/// Capacity for messages under way. Those who wait for it are served in their order.
#[derive(Clone, Debug)]
pub(super) struct SendBudget {
    messages: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    most_messages: usize,
    most_bytes: usize,
}

/// Capacity that a message takes until it is delivered or abandoned.
#[derive(Debug)]
pub(super) struct Permit {
    _message: OwnedSemaphorePermit,
    _bytes: Option<OwnedSemaphorePermit>,
    /// Bytes that other messages hold, too.
    _shared_bytes: Option<Arc<OwnedSemaphorePermit>>,
}

impl SendBudget {
    pub(super) fn new(quotas: &Quotas) -> Self {
        let most = Semaphore::MAX_PERMITS.min(u32::MAX as usize);
        let most_messages = quotas.outgoing_messages.min(most);
        let most_bytes = quotas.outgoing_bytes.min(most);
        Self {
            messages: Arc::new(Semaphore::new(most_messages)),
            bytes: Arc::new(Semaphore::new(most_bytes)),
            most_messages,
            most_bytes,
        }
    }

    /// Waits for capacity. May be dropped at any time.
    pub(super) async fn wait(&self, bytes: usize) -> Result<Permit, Closed> {
        let messages = Arc::clone(&self.messages).acquire_owned();
        let message = messages.await.map_err(|_| Closed)?;
        let bytes = Arc::clone(&self.bytes).acquire_many_owned(self.units(bytes));
        Ok(Permit {
            _message: message,
            _bytes: Some(bytes.await.map_err(|_| Closed)?),
            _shared_bytes: None,
        })
    }

    /// Waits for capacity for a message to so many peers, whose bytes count once. A group that has more peers
    /// than there may be messages takes all of them, and nothing for the peers beyond. May be dropped at any
    /// time.
    pub(super) async fn wait_for_group(
        &self,
        peers: usize,
        bytes: usize,
    ) -> Result<Vec<Option<Permit>>, Closed> {
        // All at once, and before bytes as others do: so nobody waits for who waits for it.
        let units = peers.min(self.most_messages) as u32;
        let messages = Arc::clone(&self.messages).acquire_many_owned(units);
        let mut messages = messages.await.map_err(|_| Closed)?;
        let bytes = if peers == 0 { 0 } else { self.units(bytes) };
        let bytes = Arc::clone(&self.bytes).acquire_many_owned(bytes);
        let bytes = Arc::new(bytes.await.map_err(|_| Closed)?);
        let permits = (0..peers).map(|_| {
            Some(Permit {
                _message: messages.split(1)?,
                _bytes: None,
                _shared_bytes: Some(Arc::clone(&bytes)),
            })
        });
        Ok(permits.collect())
    }

    /// Nothing if there is no capacity now.
    pub(super) fn try_take(&self, bytes: usize) -> Result<Option<Permit>, Closed> {
        let take = || {
            let message = Arc::clone(&self.messages).try_acquire_owned()?;
            let bytes = Arc::clone(&self.bytes).try_acquire_many_owned(self.units(bytes))?;
            Ok(Permit {
                _message: message,
                _bytes: Some(bytes),
                _shared_bytes: None,
            })
        };
        match take() {
            Ok(permit) => Ok(Some(permit)),
            Err(TryAcquireError::NoPermits) => Ok(None),
            Err(TryAcquireError::Closed) => Err(Closed),
        }
    }

    /// The caller that waits learns that there is nothing to wait for.
    pub(super) fn close(&self) {
        self.messages.close();
        self.bytes.close();
    }

    /// A message longer than all the capacity there is takes all of it.
    fn units(&self, bytes: usize) -> u32 {
        bytes.min(self.most_bytes) as u32
    }
}

/// A message under way. It resolves when the peer has the message, or when it was abandoned.
///
/// Dropping it cancels the message: the peer may have it or get it all the same.
/// [`detach`](Self::detach) lets it go its way.
#[must_use = "dropping it cancels the message; await it, or call detach"]
pub struct Sending {
    local_id: u64,
    result: oneshot::Receiver<Result<Receipt, SendError>>,
    /// Nothing once there is nothing to cancel.
    commands: Option<Commands>,
}

impl Sending {
    pub(super) fn new(
        local_id: u64,
        result: oneshot::Receiver<Result<Receipt, SendError>>,
        commands: Commands,
    ) -> Self {
        Self {
            local_id,
            result,
            commands: Some(commands),
        }
    }

    /// The message is sent as long as its budget allows, and nobody asks what became of it.
    pub fn detach(mut self) {
        self.commands = None;
    }
}

impl Future for Sending {
    type Output = Result<Receipt, SendError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let result = ready!(Pin::new(&mut self.result).poll(context));
        self.commands = None;
        Poll::Ready(result.unwrap_or(Err(SendError::Closed(Closed))))
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if let Some(commands) = self.commands.take() {
            commands.cancel(self.local_id);
        }
    }
}

impl fmt::Debug for Sending {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Sending")
            .field("ticket", &self.local_id)
            .finish_non_exhaustive()
    }
}

/// Where the end of a message is reported. Nobody may listen any more.
#[derive(Debug)]
pub(super) enum Done {
    Alone(oneshot::Sender<Result<Receipt, SendError>>),
    /// One of a group, by its index.
    Member(
        mpsc::UnboundedSender<(usize, Result<Receipt, SendError>)>,
        usize,
    ),
    Nobody,
}

impl Done {
    pub(super) fn send(self, result: Result<Receipt, SendError>) {
        match self {
            Self::Alone(done) => {
                let _ = done.send(result);
            }
            Self::Member(done, index) => {
                let _ = done.send((index, result));
            }
            Self::Nobody => {}
        }
    }
}

/// Where a reply goes.
pub(super) type ReplySender = oneshot::Sender<Result<Bytes, RequestError>>;

/// What the driver knows of messages under way.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// Whether keys tell peers apart. Without, one that was restarted answers as somebody new.
    is_protected: bool,
    messages: HashMap<SendId, Message>,
    /// Requests that have no reply yet, delivered or not, by their id on the wire.
    requests: HashMap<u64, Request>,
    tickets: HashMap<u64, SendId>,
}

/// One that the protocol has taken.
#[derive(Debug)]
struct Message {
    local_id: u64,
    bytes: usize,
    done: Done,
    permit: Option<Permit>,
}

/// A request without a reply.
#[derive(Debug)]
struct Request {
    local_id: u64,
    reply: ReplySender,
    again: Option<Again>,
    /// It was asked before, of a peer that was gone then.
    gone: Option<GoneReason>,
}

/// What is asked again of a server that is started again: it may be taken twice.
#[derive(Debug)]
struct Again {
    message: Bytes,
    options: CallOptions,
    /// The capacity that it takes, from its delivery on.
    permit: Option<Permit>,
}

impl Outgoing {
    pub(super) fn new(is_protected: bool) -> Self {
        Self {
            is_protected,
            messages: HashMap::new(),
            requests: HashMap::new(),
            tickets: HashMap::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub(super) fn insert(&mut self, id: SendId, send: Send) {
        let Send {
            local_id,
            message,
            options,
            permit,
            done,
            ..
        } = send;
        let bytes = message.len();
        if let Some(reply) = send.reply {
            // Without keys nobody knows whether it is the same server.
            let may_again = self.is_protected && options.is_idempotent();
            let request = Request {
                local_id,
                reply,
                again: may_again.then_some(Again {
                    message,
                    options,
                    permit: None,
                }),
                gone: send.gone,
            };
            self.requests.insert(id.as_u64(), request);
        }
        self.tickets.insert(local_id, id);
        let message = Message {
            local_id,
            bytes,
            done,
            permit,
        };
        self.messages.insert(id, message);
    }

    /// All messages under way.
    pub(super) fn ids(&self) -> Vec<SendId> {
        self.messages.keys().copied().collect()
    }

    /// Bytes of a message under way.
    pub(super) fn bytes(&self, id: SendId) -> Option<usize> {
        self.messages.get(&id).map(|message| message.bytes)
    }

    /// The message's end. What waits for it may be gone.
    pub(super) fn resolve(&mut self, id: SendId, result: Result<Receipt, SendError>) {
        let Some(message) = self.messages.remove(&id) else {
            return;
        };
        match (&result, self.requests.get_mut(&id.as_u64())) {
            // The ticket still stands for the reply that is waited for.
            (Ok(_), Some(request)) => {
                if let Some(again) = &mut request.again {
                    again.permit = message.permit;
                }
            }
            (Err(error), Some(_)) => {
                if let Some(request) = self.requests.remove(&id.as_u64()) {
                    let _ = request.reply.send(Err(match (error, request.gone) {
                        (SendError::Undelivered(_), Some(gone)) => RequestError::PeerGone(gone),
                        _ => error.clone().into(),
                    }));
                }
                self.tickets.remove(&message.local_id);
            }
            (_, None) => {
                self.tickets.remove(&message.local_id);
            }
        }
        message.done.send(result);
    }

    /// A peer's reply to a request. Nobody waits for one that comes late or twice, and none counts
    /// that comes from another peer than was asked, where keys tell peers apart.
    pub(super) fn reply(&mut self, from: PeerId, to: u64, reply: Result<Bytes, RequestError>) {
        let Entry::Occupied(request) = self.requests.entry(to) else {
            return;
        };
        let asked = self.tickets.get(&request.get().local_id);
        let asked = asked.map(|id| id.peer());
        if self.is_protected && asked != Some(from) {
            return;
        }
        let request = request.remove();
        self.tickets.remove(&request.local_id);
        let _ = request.reply.send(reply);
    }

    /// A peer is gone: callers that wait for a reply of its learn of it, but for what may be taken twice and
    /// is asked again, as the peer `stays` known. Requests that are under way still, as it may be back for
    /// them, end with their messages.
    pub(super) fn peer_gone(&mut self, peer: PeerId, reason: GoneReason, stays: bool) -> Vec<Send> {
        let (tickets, messages) = (&self.tickets, &self.messages);
        let requests = self.requests.extract_if(|_, request| {
            let id = tickets.get(&request.local_id);
            id.is_some_and(|id| id.peer() == peer && !messages.contains_key(id))
        });
        let gone: Vec<_> = requests.map(|(_, request)| request).collect();
        let mut asked_again = Vec::new();
        for request in gone {
            self.tickets.remove(&request.local_id);
            let Some(again) = request.again.filter(|_| stays) else {
                let _ = request.reply.send(Err(RequestError::PeerGone(reason)));
                continue;
            };
            asked_again.push(Send {
                local_id: request.local_id,
                peer,
                kind: MessageKind::Request,
                options: again.options,
                message: again.message,
                shared: None,
                permit: again.permit,
                done: Done::Nobody,
                reply: Some(request.reply),
                gone: Some(reason),
            });
        }
        asked_again
    }

    /// Nobody waits any more: which message is to be cancelled, if it is still under way, or has no
    /// reply yet?
    pub(super) fn forget(&mut self, local_id: u64) -> Option<SendId> {
        let id = self.tickets.remove(&local_id)?;
        let is_unanswered = self.requests.remove(&id.as_u64()).is_some();
        (is_unanswered || self.messages.contains_key(&id)).then_some(id)
    }
}
