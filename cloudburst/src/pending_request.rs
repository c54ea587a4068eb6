//! Requests that wait for their reply: whoever drops one unanswered has its sender told, and a
//! sender that gives up is heard.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicU8, Ordering},
};

use cloudburst_proto::{Failure, FailureReason, PeerId};
use tokio::sync::Notify;

use super::{commands::WeakCommands, error::ReplyError};

/// A request that waits for its reply. Clones are of the same request: when the last one is dropped
/// and nobody has answered, its sender is told that there is no reply, and why.
#[derive(Clone, Debug)]
pub(super) struct PendingRequest(Arc<Pending>);

/// A request by which it can be cancelled, and which does not keep it.
#[derive(Clone, Debug)]
pub(super) struct WeakRequest(Weak<Pending>);

#[derive(Debug)]
struct Pending {
    peer: PeerId,
    id: u64,
    commands: WeakCommands,
    state: AtomicU8,
    /// Why there is no reply, if it is dropped now.
    reason: AtomicU8,
    cancelled: Notify,
}

/// States of a request: the first to leave the first one decides.
const WAITING: u8 = 0;
const ANSWERED: u8 = 1;
const CANCELLED: u8 = 2;

impl PendingRequest {
    pub(super) fn new(peer: PeerId, id: u64, commands: WeakCommands) -> Self {
        Self(Arc::new(Pending {
            peer,
            id,
            commands,
            state: AtomicU8::new(WAITING),
            reason: AtomicU8::new(FailureReason::NoReply.code()),
            cancelled: Notify::new(),
        }))
    }

    /// The request's number, as its sender counts.
    pub(super) fn id(&self) -> u64 {
        self.0.id
    }

    pub(super) fn downgrade(&self) -> WeakRequest {
        WeakRequest(Arc::downgrade(&self.0))
    }

    /// Sets why there is no reply, if it is dropped from now on.
    pub(super) fn set_reason(&self, reason: FailureReason) {
        self.0.reason.store(reason.code(), Ordering::Relaxed);
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.0.state.load(Ordering::Acquire) == CANCELLED
    }

    /// Resolves when the sender has given the request up.
    pub(super) async fn cancelled(&self) {
        loop {
            // Whoever is notified between the look and the wait is notified.
            let notified = self.0.cancelled.notified();
            if self.is_cancelled() {
                return;
            }
            notified.await;
        }
    }

    /// It is answered from now on, unless it was already, or its sender has given it up.
    pub(super) fn answer(&self) -> Result<(), ReplyError> {
        self.0.leave(ANSWERED).map_err(|state| match state {
            CANCELLED => ReplyError::Cancelled,
            _ => ReplyError::Answered,
        })
    }

    /// Tells the sender that there is no reply, unless it needs none.
    pub(super) fn fail(&self, failure: &Failure) -> Result<(), ReplyError> {
        self.answer()?;
        self.0.tell(failure);
        Ok(())
    }
}

impl WeakRequest {
    /// Its sender has given it up: who works on it learns of that.
    pub(super) fn cancel(&self) {
        if let Some(pending) = self.0.upgrade()
            && pending.leave(CANCELLED).is_ok()
        {
            pending.cancelled.notify_waiters();
        }
    }
}

impl Pending {
    /// Leaves the first state. Fails with the state that it is in, if that is another.
    fn leave(&self, to: u8) -> Result<(), u8> {
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        let left = self.state.compare_exchange(WAITING, to, success, failure);
        left.map(drop)
    }

    fn tell(&self, failure: &Failure) {
        self.commands.fail(self.peer, self.id, failure);
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.leave(ANSWERED).is_ok() {
            let reason = match std::thread::panicking() {
                true => FailureReason::Panicked,
                false => FailureReason::from_code(*self.reason.get_mut()),
            };
            self.tell(&reason.into());
        }
    }
}
