//! What handles ask the driver for.
//!
//! The channel has no bound of its own, for a caller that drops a future cannot wait to say so. What is
//! in it is bounded by what those hold who put it there, which they wait for beforehand:
//!
//! - a message the [`Permit`] that its quota gives; and its cancellation comes once for each;
//! - a failure, which is short, the place that its request had in the inbox, or in a handler;
//! - a question one of [`QUESTIONS`] places, until the driver takes it;
//! - security, the one place that there is: what the driver has not taken yet is replaced.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::{
    CloseReport, Closed, ConnectError, EndpointStatistics,
    options::CallOptions,
    outgoing::{Done, Permit, ReplySender},
};
use cloudburst_proto::{
    Failure, GoneReason, MessageKind, PathReport, PeerId, PublicKey, Security, SharedMessage,
};

/// Questions that wait for the driver at a time; others wait for one of them.
const QUESTIONS: usize = 256;

/// What the driver is asked for.
#[derive(Debug)]
pub(super) enum Command {
    /// A message.
    Send(Send),
    /// Nobody waits for the message, or for the reply to it.
    Cancel(u64),
    /// There is no reply to a peer's request.
    Fail {
        peer: PeerId,
        to: u64,
        failure: Vec<u8>,
    },
    /// Something to be answered. The permit is the place it takes in the queue.
    Query(Question, OwnedSemaphorePermit),
    /// There are other keys, or others may speak.
    TakeSecurity,
    /// A request was handled, while the endpoint closes.
    Handled,
}

/// A message to be sent, with the capacity it takes. Replies of an endpoint that closes take none.
#[derive(Debug)]
pub(super) struct Send {
    pub(super) local_id: u64,
    pub(super) peer: PeerId,
    pub(super) kind: MessageKind,
    pub(super) options: CallOptions,
    pub(super) message: Bytes,
    /// The same, where several peers are sent it.
    pub(super) shared: Option<SharedMessage>,
    pub(super) permit: Option<Permit>,
    pub(super) done: Done,
    pub(super) reply: Option<ReplySender>,
    /// It is asked again, of a peer that had taken it and was gone then.
    pub(super) gone: Option<GoneReason>,
}

/// What the driver answers.
#[derive(Debug)]
pub(super) enum Question {
    Connect {
        remotes: Vec<SocketAddr>,
        key: Option<PublicKey>,
        done: oneshot::Sender<Result<PeerId, ConnectError>>,
    },
    PeerKey {
        peer: PeerId,
        done: oneshot::Sender<Option<PublicKey>>,
    },
    Forget {
        peer: PeerId,
        done: oneshot::Sender<()>,
    },
    EndpointStatistics(oneshot::Sender<EndpointStatistics>),
    Peers(oneshot::Sender<Vec<PeerId>>),
    Paths {
        peer: PeerId,
        done: oneshot::Sender<Vec<PathReport>>,
    },
    Close {
        within: Duration,
        done: oneshot::Sender<CloseReport>,
    },
}

/// Where commands are put.
#[derive(Clone, Debug)]
pub(super) struct Commands {
    queue: mpsc::UnboundedSender<Command>,
    places: Arc<Semaphore>,
    security: Arc<Mutex<Option<Security>>>,
}

/// Where failures are put by those who do not keep the endpoint from ending.
#[derive(Clone, Debug)]
pub(super) struct WeakCommands(mpsc::WeakUnboundedSender<Command>);

/// Where the driver takes them from.
#[derive(Debug)]
pub(super) struct CommandReceiver {
    queue: mpsc::UnboundedReceiver<Command>,
    places: Arc<Semaphore>,
    security: Arc<Mutex<Option<Security>>>,
}

pub(super) fn channel() -> (Commands, CommandReceiver) {
    let (queue, taken) = mpsc::unbounded_channel();
    let places = Arc::new(Semaphore::new(QUESTIONS));
    let security = Arc::default();
    let commands = Commands {
        queue,
        places: Arc::clone(&places),
        security: Arc::clone(&security),
    };
    let taken = CommandReceiver {
        queue: taken,
        places,
        security,
    };
    (commands, taken)
}

impl Commands {
    /// A driver that is gone drops the message, which the caller that waits for it takes for closed.
    pub(super) fn send(&self, send: Send) {
        let _ = self.queue.send(Command::Send(send));
    }

    /// To be called once at most for each message.
    pub(super) fn cancel(&self, local_id: u64) {
        // A driver that is gone has cancelled everything.
        let _ = self.queue.send(Command::Cancel(local_id));
    }

    pub(super) fn downgrade(&self) -> WeakCommands {
        WeakCommands(self.queue.downgrade())
    }

    pub(super) fn handled(&self) {
        let _ = self.queue.send(Command::Handled);
    }

    /// Waits for a place, and for the answer.
    pub(super) async fn ask<T>(
        &self,
        question: impl FnOnce(oneshot::Sender<T>) -> Question,
    ) -> Result<T, Closed> {
        let place = Arc::clone(&self.places).acquire_owned().await;
        let place = place.map_err(|_| Closed)?;
        let (done, answer) = oneshot::channel();
        let command = Command::Query(question(done), place);
        self.queue.send(command).map_err(|_| Closed)?;
        answer.await.map_err(|_| Closed)
    }

    pub(super) fn set_security(&self, security: Security) -> Result<(), Closed> {
        let is_told = lock(&self.security).replace(security).is_some();
        if is_told && !self.queue.is_closed() {
            return Ok(());
        }
        self.queue.send(Command::TakeSecurity).map_err(|_| Closed)
    }
}

impl WeakCommands {
    /// Nobody is told by an endpoint that is gone.
    pub(super) fn fail(&self, peer: PeerId, to: u64, failure: &Failure) {
        if let Some(queue) = self.0.upgrade() {
            let failure = failure.to_bytes();
            let _ = queue.send(Command::Fail { peer, to, failure });
        }
    }
}

impl CommandReceiver {
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Command>> {
        self.queue.poll_recv(context)
    }

    pub(super) fn security(&self) -> Option<Security> {
        lock(&self.security).take()
    }
}

impl Drop for CommandReceiver {
    /// Nobody waits for a place at an endpoint whose driver is gone.
    fn drop(&mut self) {
        self.places.close();
    }
}

/// Security is replaced as a whole: there is no half of it to be found.
fn lock(security: &Mutex<Option<Security>>) -> MutexGuard<'_, Option<Security>> {
    security.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;

    use super::*;

    #[test]
    fn questions_wait_for_a_place() {
        let (commands, mut taken) = channel();
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut asked: Vec<_> = (0..QUESTIONS + 10)
            .map(|_| Box::pin(commands.ask(Question::Peers)))
            .collect();
        for asked in &mut asked {
            assert!(asked.as_mut().poll(&mut context).is_pending());
        }
        // Those who have gone leave their question behind, and no more than has a place.
        drop(asked);
        let mut waiting = Vec::new();
        while let Poll::Ready(command) = taken.poll_next(&mut context) {
            waiting.push(command);
        }
        assert_eq!(waiting.len(), QUESTIONS);
        drop(taken);
        let mut late = Box::pin(commands.ask(Question::Peers));
        let late = late.as_mut().poll(&mut context);
        assert!(matches!(late, Poll::Ready(Err(Closed))));
    }

    #[test]
    fn security_that_nobody_has_taken_is_replaced() {
        let (commands, mut taken) = channel();
        for _ in 0..100 {
            commands.set_security(Security::Unprotected).unwrap();
        }
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(taken.poll_next(&mut context).is_ready());
        assert!(taken.security().is_some());
        assert!(taken.poll_next(&mut context).is_pending());
        commands.set_security(Security::Unprotected).unwrap();
        assert!(taken.poll_next(&mut context).is_ready());
        drop(taken);
        assert_eq!(commands.set_security(Security::Unprotected), Err(Closed));
    }
}
