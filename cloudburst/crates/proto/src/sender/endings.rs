//! Endings of messages: delivered, abandoned, cancelled, or with their peer.

use super::{Outbox, Sender};
use crate::{
    event::{Event, PeerId, Reason, SendId},
    outgoing::Outgoing,
    packet::{Outcome, Stop},
    path_manager::RETURN_WITHIN,
    statistics::{TransportStatistics, release, tally, untally},
    time::Time,
};

impl Sender {
    /// A receiver says stop: the message was delivered, or is abandoned for good.
    pub(crate) fn stopped(
        &mut self,
        now: Time,
        peer: PeerId,
        stop: &Stop,
        statistics: &mut TransportStatistics,
    ) -> Option<Event> {
        let id = SendId::new(peer, stop.message);
        self.cancellations.confirmed(id);
        let reason = match stop.outcome {
            Outcome::Delivered => None,
            Outcome::Stale => Some(Reason::Stale),
            // Nobody has asked for that while it is under way.
            Outcome::Refused | Outcome::Cancelled => Some(Reason::Refused),
        };
        if let Some(reason) = reason {
            return self.abandon(id, reason, statistics);
        }
        if self.messages.get(&id).is_some_and(Outgoing::is_unsent) {
            // It means another message: without keys, accidents get as far as here.
            tally(&mut statistics.refused.unexpected, 1);
            return None;
        }
        let outgoing = self.forget(id, statistics)?;
        let needed = match u32::from(stop.needed) {
            // The stop with the number was lost.
            0 => outgoing.symbols(),
            needed => needed,
        };
        let receipt = outgoing.receipt(now, needed);
        tally(&mut statistics.messages_delivered, 1);
        tally(&mut statistics.stops_received, 1);
        tally(&mut statistics.symbols_delivered, receipt.symbols.into());
        tally(&mut statistics.symbols_sent, u64::from(receipt.sent));
        tally(&mut statistics.symbols_needed, u64::from(needed));
        if let Some(outbox) = self.peers.get_mut(peer) {
            outbox.has_taken_any = true;
        }
        self.reuse(outgoing);
        Some(Event::Delivered { id, receipt })
    }

    /// A peer has closed, and perhaps it may return. What it cannot have handed over, or may hand over
    /// twice, waits for that; returns what does not, which is to be given up.
    pub(crate) fn peer_closed(&mut self, now: Time, id: PeerId, may_return: bool) -> Vec<SendId> {
        let mut ended = self.all_to(id);
        if may_return {
            let messages = &mut self.messages;
            ended.retain(|id| {
                let outgoing = messages.get_mut(id);
                let kept = outgoing.filter(|it| it.sent_whole_since().is_none());
                kept.map(Outgoing::suspend).is_none()
            });
        }
        if let Some(outbox) = self.peers.get_mut(id) {
            let is_waited_for = ended.len() < outbox.messages;
            outbox.close(now);
            outbox.has_pending = is_waited_for;
            // Who says it twice has no more time.
            let closed_at = outbox.closed_at.unwrap_or(now);
            outbox.closed_at = is_waited_for.then_some(closed_at);
        }
        self.cancellations.clear(id);
        ended
    }

    /// When messages to a peer that has closed are given up, if it is not back before.
    pub(crate) fn returns_by(&self, id: PeerId) -> Option<Time> {
        Some(self.peers.get(id)?.closed_at? + RETURN_WITHIN)
    }

    /// A peer that has closed is not back in time: returns what has waited for it, and not what it was
    /// sent since.
    pub(crate) fn not_returned(&mut self, id: PeerId) -> Vec<SendId> {
        let outbox = self.peers.get_mut(id);
        let Some(closed_at) = outbox.and_then(|outbox| outbox.closed_at.take()) else {
            return Vec::new();
        };
        let mut ended = self.all_to(id);
        let messages = &self.messages;
        let is_older = |it: &Outgoing| it.accepted_at() <= closed_at;
        ended.retain(|id| messages.get(id).is_some_and(is_older));
        ended
    }

    /// Whether a peer that says that it closes has said so before.
    pub(crate) fn is_closed_already(&self, id: PeerId) -> bool {
        let outbox = self.peers.get(id);
        outbox.is_some_and(Outbox::is_closed_already)
    }

    /// Whether a peer has closed, and was sent nothing since.
    pub(crate) fn is_closed(&self, id: PeerId) -> bool {
        self.peers.get(id).is_some_and(|outbox| outbox.is_closed)
    }

    /// Tells whether a peer seems to be gone: nothing was heard of it while a message to it had time.
    pub(crate) fn is_abandoned(&self, id: PeerId) -> bool {
        let outbox = self.peers.get(id);
        outbox.is_some_and(|outbox| outbox.is_abandoned)
    }

    /// When the oldest message to a peer was accepted that it may have all of, and is not to have
    /// twice.
    pub(crate) fn oldest_sent(&self, peer: PeerId) -> Option<Time> {
        let messages = self.under_way(peer).filter_map(|id| self.messages.get(&id));
        messages.filter_map(Outgoing::sent_whole_since).min()
    }

    /// A receiver has not been running before `started`: gives up messages that another may have
    /// handed over there, so that none is handed over twice.
    pub(crate) fn restarted(
        &mut self,
        peer: PeerId,
        started: Time,
        statistics: &mut TransportStatistics,
    ) -> impl Iterator<Item = Event> {
        if let Some(outbox) = self.peers.get_mut(peer) {
            (outbox.closed_at, outbox.is_closed) = (None, false);
        }
        let mut doubtful = self.all_to(peer);
        let messages = &self.messages;
        let is_doubtful = |it: &Outgoing| it.sent_whole_since().is_some_and(|at| at < started);
        doubtful.retain(|id| messages.get(id).is_some_and(is_doubtful));
        doubtful
            .into_iter()
            .filter_map(|id| self.abandon(id, Reason::Unknown, statistics))
    }

    /// Gives a message up that is under way, or has been delivered: a request is cancelled until its
    /// reply is there.
    pub(crate) fn cancel(
        &mut self,
        id: SendId,
        statistics: &mut TransportStatistics,
    ) -> Option<Event> {
        let abandoned = self.abandon(id, Reason::Cancelled, statistics);
        let was_sent = |outbox: &Outbox| id.message < outbox.next;
        if abandoned.is_none() && self.peers.get(id.peer).is_some_and(was_sent) {
            self.cancellations.add(id);
        }
        abandoned
    }

    /// Gives a message up, unless it has ended already.
    pub(crate) fn abandon(
        &mut self,
        id: SendId,
        reason: Reason,
        statistics: &mut TransportStatistics,
    ) -> Option<Event> {
        let outgoing = self.forget(id, statistics)?;
        let says_something = matches!(
            reason,
            Reason::TimedOut | Reason::BudgetSpent | Reason::Unreachable
        );
        if says_something
            && !outgoing.is_unsent()
            && let Some(outbox) = self.peers.get_mut(id.peer)
        {
            outbox.failed(outgoing.accepted_at());
        }
        // A receiver that may have something of it keeps that for a minute.
        let is_kept = matches!(
            reason,
            Reason::Cancelled | Reason::TimedOut | Reason::BudgetSpent
        );
        if is_kept && !outgoing.is_unsent() {
            self.cancellations.add(id);
        }
        let failure = outgoing.failure(reason);
        tally(&mut statistics.messages_undelivered, 1);
        self.reuse(outgoing);
        Some(Event::Undelivered { id, failure })
    }

    /// Takes a message out of all lists but the scheduler's, which notices by itself.
    fn forget(&mut self, id: SendId, statistics: &mut TransportStatistics) -> Option<Outgoing> {
        let outgoing = self.messages.remove(&id)?;
        if let Some(outbox) = self.peers.get_mut(id.peer) {
            release(&mut outbox.messages, 1);
        }
        untally(&mut statistics.outgoing_now, 1);
        let bytes = self.memory.free(&outgoing) as u64;
        untally(&mut statistics.outgoing_bytes_now, bytes);
        Some(outgoing)
    }

    /// Keeps the memory of a message that has ended, for the next.
    fn reuse(&mut self, outgoing: Outgoing) {
        if let Some(memory) = outgoing.into_memory() {
            self.buffers.give(memory);
        }
    }
}
