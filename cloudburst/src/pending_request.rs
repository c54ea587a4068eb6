//! Requests that wait for their reply: whoever drops one unanswered has its sender told.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU8, Ordering},
};

use cloudburst_proto::{Failure, FailureReason, PeerId};

use super::commands::WeakCommands;

/// A request that waits for its reply. Clones are of the same request: when the last one is dropped
/// and nobody has answered, its sender is told that there is no reply, and why.
#[derive(Clone, Debug)]
pub(super) struct PendingRequest(Arc<Pending>);

#[derive(Debug)]
struct Pending {
    peer: PeerId,
    id: u64,
    commands: WeakCommands,
    is_answered: AtomicBool,
    /// Why there is no reply, if it is dropped now.
    reason: AtomicU8,
}

impl PendingRequest {
    pub(super) fn new(peer: PeerId, id: u64, commands: WeakCommands) -> Self {
        Self(Arc::new(Pending {
            peer,
            id,
            commands,
            is_answered: AtomicBool::new(false),
            reason: AtomicU8::new(FailureReason::NoReply.code()),
        }))
    }

    /// The request's number, as its sender counts.
    pub(super) fn id(&self) -> u64 {
        self.0.id
    }

    /// Sets why there is no reply, if it is dropped from now on.
    pub(super) fn set_reason(&self, reason: FailureReason) {
        self.0.reason.store(reason.code(), Ordering::Relaxed);
    }

    pub(super) fn is_answered(&self) -> bool {
        self.0.is_answered.load(Ordering::Acquire)
    }

    /// It is answered from now on. False if it was already.
    pub(super) fn answer(&self) -> bool {
        !self.0.is_answered.swap(true, Ordering::AcqRel)
    }

    /// Tells the sender that there is no reply, unless it was answered already.
    pub(super) fn fail(&self, failure: &Failure) {
        self.0.fail(failure);
    }
}

impl Pending {
    fn fail(&self, failure: &Failure) {
        if !self.is_answered.swap(true, Ordering::AcqRel) {
            self.commands.fail(self.peer, self.id, failure);
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let reason = match std::thread::panicking() {
            true => FailureReason::Panicked,
            false => FailureReason::from_code(*self.reason.get_mut()),
        };
        self.fail(&reason.into());
    }
}
