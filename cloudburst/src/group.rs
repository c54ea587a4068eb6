//! One message to several peers.

use std::{fmt, sync::atomic::Ordering};

use bytes::Bytes;
use tokio::sync::mpsc;

use super::{
    Closed, Endpoint, SendError,
    commands::{Commands, Send},
    options::CallOptions,
    outgoing::Done,
};
use cloudburst_proto::{MessageKind, PeerId, Receipt, SendOptions, SharedMessage};

/// Says what has become of a message to a group at one of its peers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GroupOutcome {
    /// The peer that it is about.
    pub peer: PeerId,
    /// How the message has ended for this peer.
    pub result: Result<Receipt, SendError>,
}

impl Endpoint {
    /// Sends one message to several peers, and waits until each has it or it was abandoned there.
    ///
    /// What is the same for all is done once: the message is copied and kept once, takes the bytes of one of
    /// [`Quotas::outgoing_bytes`](super::Quotas::outgoing_bytes), and the first 32
    /// symbols beyond its own are computed once. Each peer is sent as much as it needs and says stop for itself; one that is slow or
    /// not there keeps no other waiting. A peer that is given twice gets the message twice.
    ///
    /// Returns an outcome for each peer, in the order in which they were given. Dropping the future cancels
    /// the message where it has not ended.
    ///
    /// ```no_run
    /// # async fn example(
    /// #     endpoint: cloudburst::Endpoint, replicas: Vec<cloudburst::PeerId>,
    /// # ) -> Result<(), cloudburst::SendError> {
    /// let outcomes = endpoint.send_group(replicas, "x = 5").await?;
    /// let have_it = outcomes.iter().filter(|it| it.result.is_ok()).count();
    /// println!("{have_it} of {} have it", outcomes.len());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// A [`SendError`] when it was taken for no peer: it is too long, or the endpoint is closed.
    pub async fn send_group(
        &self,
        peers: impl IntoIterator<Item = PeerId>,
        message: impl Into<Bytes>,
    ) -> Result<Vec<GroupOutcome>, SendError> {
        let options = self.shared.send_options;
        self.send_group_with(peers, message, options).await
    }

    /// Sends one message to several peers with options, as [`send_group`](Self::send_group) does. They
    /// hold for each peer; a deadline runs from the call on.
    ///
    /// # Errors
    ///
    /// A [`SendError`] when it was taken for no peer: it is too long, there was no capacity until the
    /// deadline, or the endpoint is closed.
    pub async fn send_group_with(
        &self,
        peers: impl IntoIterator<Item = PeerId>,
        message: impl Into<Bytes>,
        options: SendOptions,
    ) -> Result<Vec<GroupOutcome>, SendError> {
        let sending = self.enqueue_group_with(peers, message, options);
        Ok(sending.await?.all().await)
    }

    /// Waits for capacity and starts to send one message to several peers; what is returned gives each
    /// outcome when it is there, as a majority may be enough.
    ///
    /// # Errors
    ///
    /// A [`SendError`] when it is taken for no peer: it is too long, or the endpoint is closed.
    pub async fn enqueue_group(
        &self,
        peers: impl IntoIterator<Item = PeerId>,
        message: impl Into<Bytes>,
    ) -> Result<GroupSending, SendError> {
        let options = self.shared.send_options;
        self.enqueue_group_with(peers, message, options).await
    }

    /// Waits for capacity and starts to send one message to several peers with options, as
    /// [`enqueue_group`](Self::enqueue_group) does. A deadline runs meanwhile.
    ///
    /// # Errors
    ///
    /// A [`SendError`] when it is taken for no peer: it is too long, there was no capacity until the
    /// deadline, or the endpoint is closed.
    pub async fn enqueue_group_with(
        &self,
        peers: impl IntoIterator<Item = PeerId>,
        message: impl Into<Bytes>,
        options: SendOptions,
    ) -> Result<GroupSending, SendError> {
        let options = CallOptions::begin(options);
        let message = self.check(message.into())?;
        let peers: Vec<PeerId> = peers.into_iter().collect();
        let permits = self.shared.room.wait_for_group(peers.len(), message.len());
        let permits = self.until_deadline(options, permits).await?;
        let content = SharedMessage::new(&message);
        let ids = peers.len() as u64;
        let first_id = self.shared.next_ticket.fetch_add(ids, Ordering::Relaxed);
        let (done, outcomes) = mpsc::unbounded_channel();
        let commands = &self.shared.commands;
        for (index, (&peer, permit)) in peers.iter().zip(permits).enumerate() {
            commands.send(Send {
                local_id: first_id + index as u64,
                peer,
                kind: MessageKind::Message,
                options,
                message: message.clone(),
                shared: Some(content.clone()),
                permit,
                done: Done::Member(done.clone(), index),
                reply: None,
                gone: None,
            });
        }
        Ok(GroupSending {
            pending: peers.len(),
            members: peers.into_iter().map(Member::new).collect(),
            first_id,
            outcomes,
            commands: commands.clone(),
        })
    }
}

/// A message under way to several peers.
///
/// Dropping it cancels the message for those that do not have it: they may have it or get it all the
/// same. [`detach`](Self::detach) lets it go its way.
#[must_use = "dropping it cancels the message; await its outcomes, or call detach"]
pub struct GroupSending {
    members: Vec<Member>,
    /// Members that have no outcome yet.
    pending: usize,
    /// The local id of the first member; the others' follow.
    first_id: u64,
    outcomes: mpsc::UnboundedReceiver<(usize, Result<Receipt, SendError>)>,
    commands: Commands,
}

#[derive(Debug)]
struct Member {
    peer: PeerId,
    is_pending: bool,
}

impl Member {
    const fn new(peer: PeerId) -> Self {
        Self {
            peer,
            is_pending: true,
        }
    }
}

impl GroupSending {
    /// Returns the next outcome, in the order in which peers say stop or the message is abandoned for them;
    /// nothing once there are no more. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<GroupOutcome> {
        let (index, result) = self.next_by_index().await?;
        let peer = self.members[index].peer;
        Some(GroupOutcome { peer, result })
    }

    /// Waits for all outcomes, and returns those that [`next`](Self::next) has not returned, in the
    /// order in which the peers were given.
    pub async fn all(mut self) -> Vec<GroupOutcome> {
        let mut results = Vec::new();
        results.resize_with(self.members.len(), || None);
        while let Some((index, result)) = self.next_by_index().await {
            results[index] = Some(result);
        }
        let outcomes = self.members.iter().zip(results);
        let outcomes = outcomes.filter_map(|(member, result)| {
            let peer = member.peer;
            result.map(|result| GroupOutcome { peer, result })
        });
        outcomes.collect()
    }

    /// Returns the peers that have no outcome yet.
    pub fn pending(&self) -> impl Iterator<Item = PeerId> {
        let pending = self.members.iter().filter(|member| member.is_pending);
        pending.map(|member| member.peer)
    }

    /// Cancels the message for one peer, which then has no outcome any more. Returns false if it had one
    /// already, or is not among the peers.
    pub fn cancel(&mut self, peer: PeerId) -> bool {
        self.cancel_where(|member| member.peer == peer)
    }

    /// Lets the message be sent as long as its budget allows; nobody asks what became of it.
    pub fn detach(mut self) {
        self.pending = 0;
    }

    async fn next_by_index(&mut self) -> Option<(usize, Result<Receipt, SendError>)> {
        while self.pending > 0 {
            let ended = match self.outcomes.recv().await {
                Some(ended) => ended,
                // The driver is gone.
                None => {
                    let index = self.members.iter().position(|member| member.is_pending)?;
                    (index, Err(SendError::Closed(Closed)))
                }
            };
            // An outcome may have been under way when it was cancelled.
            if std::mem::take(&mut self.members[ended.0].is_pending) {
                self.pending -= 1;
                return Some(ended);
            }
        }
        None
    }

    fn cancel_where(&mut self, is_meant: impl Fn(&Member) -> bool) -> bool {
        let mut any = false;
        for (index, member) in self.members.iter_mut().enumerate() {
            if member.is_pending && is_meant(member) {
                member.is_pending = false;
                self.pending -= 1;
                self.commands.cancel(self.first_id + index as u64);
                any = true;
            }
        }
        any
    }
}

impl Drop for GroupSending {
    fn drop(&mut self) {
        if self.pending > 0 {
            self.cancel_where(|_| true);
        }
    }
}

impl fmt::Debug for GroupSending {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("GroupSending")
            .field("members", &self.members)
            .finish_non_exhaustive()
    }
}
