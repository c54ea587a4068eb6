//! Requests that were handed over and have no answer yet, so that their senders can cancel them.

use std::collections::HashMap;

use cloudburst_proto::PeerId;

use super::{
    commands::WeakCommands,
    pending_request::{PendingRequest, WeakRequest},
};

/// Requests of peers without an answer yet: an entry for each that is in the inbox, or in a handler.
#[derive(Debug)]
pub(super) struct UnansweredRequests {
    commands: WeakCommands,
    requests: HashMap<(PeerId, u64), WeakRequest>,
}

impl UnansweredRequests {
    pub(super) fn new(commands: WeakCommands) -> Self {
        Self {
            commands,
            requests: HashMap::new(),
        }
    }

    /// A request arrives.
    pub(super) fn insert(&mut self, peer: PeerId, id: u64) -> PendingRequest {
        let request = PendingRequest::new(peer, id, self.commands.clone());
        self.requests.insert((peer, id), request.downgrade());
        request
    }

    /// It is answered, one way or another.
    pub(super) fn remove(&mut self, peer: PeerId, id: u64) {
        self.requests.remove(&(peer, id));
    }

    /// Its sender has given it up.
    pub(super) fn cancel(&mut self, peer: PeerId, id: u64) {
        if let Some(request) = self.requests.remove(&(peer, id)) {
            request.cancel();
        }
    }

    /// A peer is gone: nobody waits for its replies.
    pub(super) fn peer_gone(&mut self, gone: PeerId) {
        let requests = self.requests.extract_if(|(peer, _), _| *peer == gone);
        requests.for_each(|(_, request)| request.cancel());
    }
}
