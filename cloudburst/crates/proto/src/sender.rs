//! Sender: messages on their way out, loss detection and retransmission.
//!
//! A message is sent until its receiver says stop. Nothing is retransmitted as it was: what seems
//! lost is made up for by further symbols, after a timeout or when the receiver reports progress.

mod burst;
mod outbox;

use core::time::Duration;
use std::collections::HashMap;

use cloudburst_code::{Schedule, wire};
use foldhash::fast::FixedState;

pub(super) use self::burst::{Burst, Symbols};
use self::outbox::Outbox;
use cloudburst_congestion::RoundTripEstimator;
use cloudburst_security::MAX_SPAN;

use super::{
    buffer_pool::BufferPool,
    cancellations::Cancellations,
    config::TransportConfig,
    event::{Event, MessageKind, PeerId, Reason, SendId, SendRefused},
    keepalive::Keepalive,
    outgoing::{Outgoing, Step, symbol_bytes},
    packet::{Framing, Outcome, ProgressState, Stop, symbol_datagram_bytes},
    path_manager::{ChosenPath, PathStatistics, RETURN_WITHIN},
    paths::Spread,
    peer_map::PeerMap,
    scheduler::Backlog,
    send_options::SendOptions,
    statistics::TransportStatistics,
    time::Time,
    timers::{TimerKey, Timers},
};

/// Into how many trains a message is segmented at least where losses are uneven.
const SPREAD_PARTS: u32 = 4;

/// Messages under way to all peers: loss detection and retransmission.
#[derive(Debug)]
pub(super) struct Sender {
    messages: HashMap<SendId, Outgoing, FixedState>,
    buffers: BufferPool,
    peers: PeerMap<Outbox>,
    pub(super) cancellations: Cancellations,
}

/// A message that was taken to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Accepted {
    pub(super) id: SendId,
    /// Nothing else is under way to the peer.
    pub(super) is_first: bool,
    /// Nobody may be there, and it is the first to find that out: little is sent before something
    /// is heard.
    pub(super) awaits_first_contact: bool,
}

/// What a receiver's progress report comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progressed {
    /// There may be symbols to send.
    Continue,
    /// Datagrams seem too long for the paths; the message was segmented again for shorter ones.
    Shorter,
    /// They are too long, and the message cannot be segmented for shorter ones.
    TooLong,
    Unknown,
}

impl Progressed {
    /// Whether datagrams seem too long for the paths.
    pub(super) fn is_too_long(self) -> bool {
        matches!(self, Self::Shorter | Self::TooLong)
    }
}

impl Sender {
    pub(super) fn new(hash_seed: u64) -> Self {
        Self {
            messages: HashMap::with_hasher(FixedState::with_seed(hash_seed)),
            buffers: BufferPool::default(),
            peers: PeerMap::default(),
            cancellations: Cancellations::default(),
        }
    }

    pub(super) fn add_peer(&mut self, now: Time, id: PeerId, first_message: u64) {
        let outbox = Outbox::new(now, first_message);
        self.peers.insert(id, outbox);
        self.cancellations.add_peer(id);
    }

    pub(super) fn remove_peer(&mut self, id: PeerId) {
        self.peers.remove(id);
        self.cancellations.remove_peer(id);
    }

    /// Takes a message, of which it keeps a copy.
    pub(super) fn accept(
        &mut self,
        now: Time,
        (peer, (kind, options), message): (PeerId, (MessageKind, SendOptions), &[u8]),
        (paths, framing): (Option<PathStatistics>, Framing),
        config: &TransportConfig,
        statistics: &mut TransportStatistics,
    ) -> Result<Accepted, SendRefused> {
        let (given, most) = (message.len(), config.max_message_bytes);
        let too_large = SendRefused::TooLarge { given, most };
        if given > most {
            return Err(too_large);
        }
        let held = statistics.outgoing_bytes_now as usize;
        let full = SendRefused::Full {
            messages: self.messages.len(),
            bytes: held,
        };
        if !config.quotas.hold(self.messages.len(), held, given) {
            return Err(full);
        }
        let oldest = self.update_oldest(peer);
        let outbox = self.peers.get_mut(peer).ok_or(SendRefused::NoPeer)?;
        let paths = paths.ok_or(SendRefused::NoPeer)?;
        if outbox.next - oldest >= MAX_SPAN {
            return Err(full);
        }
        let id = SendId::new(peer, outbox.next);
        let datagram_bytes = paths.datagram_bytes.unwrap_or(config.datagrams.initial);
        let symbol_bytes = symbol_bytes(datagram_bytes, framing);
        let memory = self.buffers.take();
        let mut outgoing = Outgoing::new(now, id, (kind, message), memory, symbol_bytes, config)
            .map_err(|_| too_large)?;
        outgoing.is_idempotent = options.idempotent;
        outbox.next += 1;
        outbox.messages += 1;
        outbox.sent_at = Some(now);
        outbox.is_closed = false;
        let awaits_first_contact = outbox.is_unresponsive(now);
        if kind == MessageKind::Request {
            outbox.keepalive.requested(now);
        }
        let is_asking = outbox.has_pending;
        outbox.has_pending |= awaits_first_contact;
        if awaits_first_contact {
            outgoing.open();
        } else {
            outgoing.begin(&paths.loss, paths.ack_timeout());
        }
        let is_first = outbox.messages == 1;
        statistics.messages_accepted += 1;
        statistics.outgoing_now += 1;
        statistics.outgoing_bytes_now += outgoing.bytes() as u64;
        self.messages.insert(id, outgoing);
        Ok(Accepted {
            id,
            is_first,
            awaits_first_contact: awaits_first_contact && !is_asking,
        })
    }

    /// Sets a message's alarm for when it has to be looked at, and returns how much of it is to
    /// be sent, and whether it is new among those to be sent.
    pub(super) fn ready(
        &mut self,
        now: Time,
        id: SendId,
        round_trip: &RoundTripEstimator,
        timers: &mut Timers<TimerKey>,
    ) -> Option<(u32, bool)> {
        let outgoing = self.messages.get_mut(&id)?;
        let remaining = outgoing.remaining();
        let is_new = remaining > 0 && !outgoing.is_queued;
        outgoing.is_queued |= is_new;
        outgoing.set_alarm(now, round_trip, timers);
        Some((remaining, is_new))
    }

    /// What is to be done for a message whose time has come.
    pub(super) fn attend(
        &mut self,
        now: Time,
        id: SendId,
        timers: &mut Timers<TimerKey>,
    ) -> Option<Step> {
        let outgoing = self.messages.get_mut(&id)?;
        let is_due = outgoing.alarm.is_due(now, TimerKey::Message(id), timers);
        is_due.then(|| outgoing.attend(now))
    }

    /// Symbols of a message that are to be sent in datagrams of `longest` bytes at most, for
    /// which it is segmented again if they have become shorter.
    pub(super) fn burst(
        &mut self,
        id: SendId,
        (longest, framing): (usize, Framing),
        paths: &PathStatistics,
        config: &TransportConfig,
    ) -> Option<Result<Burst, Reason>> {
        let outgoing = self.messages.get_mut(&id)?;
        let mut datagram_bytes = symbol_datagram_bytes(outgoing.symbol_bytes(), framing);
        if datagram_bytes > longest {
            let path_statistics = (&paths.loss, paths.ack_timeout());
            let shorter = symbol_bytes(longest, framing);
            if outgoing
                .resegment(shorter, path_statistics, &config.budget)
                .is_err()
            {
                return Some(Err(Reason::Refused));
            }
            datagram_bytes = symbol_datagram_bytes(outgoing.symbol_bytes(), framing);
        }
        let parts = outgoing.spread.as_ref().map(|_| SPREAD_PARTS);
        Some(Ok(Burst {
            datagram_bytes,
            remaining: outgoing.remaining(),
            most: parts.map_or(u32::MAX, |parts| outgoing.symbols().div_ceil(parts)),
        }))
    }

    /// Where a message's symbols went, if losses are uneven.
    pub(super) fn spread(&self, id: SendId) -> Option<&Spread> {
        self.messages.get(&id)?.spread.as_ref()
    }

    /// The next `count` symbols of a message.
    pub(super) fn symbols(
        &self,
        id: SendId,
        count: u32,
        schedule: Schedule,
    ) -> Option<Symbols<'_>> {
        let outgoing = self.messages.get(&id)?;
        // It was checked when the message was segmented.
        let encoder = outgoing.encoder(schedule).ok()?;
        Some(Symbols {
            encoder,
            code_bytes: wire::HEADER_BYTES + outgoing.symbol_bytes(),
            message: id.message,
            sequences: outgoing.next(count),
        })
    }

    /// Symbols were sent by a path, the last of which should be there at a time.
    pub(super) fn sent(
        &mut self,
        now: Time,
        id: SendId,
        (count, path, expected): (u32, &ChosenPath, Time),
        round_trip: &RoundTripEstimator,
        timers: &mut Timers<TimerKey>,
    ) {
        if let Some(outgoing) = self.messages.get_mut(&id) {
            outgoing.note_sent(now, count, path.id, path.group);
            outgoing.expected = outgoing.expected.max(expected);
            if outgoing.remaining() == 0 {
                outgoing.set_alarm(now, round_trip, timers);
            }
        }
        if let Some(outbox) = self.peers.get_mut(id.peer) {
            outbox.sent_at = Some(now);
        }
        self.asked(now, id.peer, count);
    }

    /// When a peer is to be pinged that nothing is sent to.
    pub(super) fn next_keepalive(&self, id: PeerId, interval: Option<Duration>) -> Option<Time> {
        self.peers.get(id)?.next_keepalive(interval)
    }

    /// What keeps a peer's paths alive.
    pub(super) fn keepalive(&mut self, id: PeerId) -> Option<&mut Keepalive> {
        Some(&mut self.peers.get_mut(id)?.keepalive)
    }

    /// So many datagrams that ask for an answer are sent to a peer.
    pub(super) fn asked(&mut self, now: Time, id: PeerId, datagrams: u32) {
        if let Some(outbox) = self.peers.get_mut(id) {
            outbox.asked(now, datagrams);
        }
    }

    /// Something was heard of a peer. Whether messages have waited for that.
    pub(super) fn answered(&mut self, now: Time, id: PeerId) -> bool {
        let outbox = self.peers.get_mut(id);
        outbox.is_some_and(|outbox| outbox.answered(now))
    }

    /// Somebody is there: asks for the rest of a message's first burst, if that has waited.
    pub(super) fn resume(&mut self, id: SendId, paths: &PathStatistics) -> bool {
        let outgoing = self.messages.get_mut(&id);
        outgoing.is_some_and(|outgoing| outgoing.resume(&paths.loss, paths.ack_timeout()))
    }

    /// A peer has asked for a token: sends a message again that was perhaps not taken.
    pub(super) fn repeat(&mut self, now: Time, id: SendId, paths: &PathStatistics) -> bool {
        let outgoing = self.messages.get_mut(&id);
        let Some(outgoing) = outgoing.filter(|outgoing| outgoing.is_unheard_of()) else {
            return false;
        };
        outgoing.again(now, paths.ack_timeout(), &paths.loss);
        true
    }

    /// Whether a peer has taken a message of ours.
    pub(super) fn has_taken_any(&self, id: PeerId) -> bool {
        self.peers
            .get(id)
            .is_some_and(|outbox| outbox.has_taken_any)
    }

    /// A receiver says stop: the message was delivered, or is abandoned for good.
    pub(super) fn stopped(
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
            statistics.refused.unexpected += 1;
            return None;
        }
        let outgoing = self.forget(id, statistics)?;
        let needed = match u32::from(stop.needed) {
            // The stop with the number was lost.
            0 => outgoing.symbols(),
            needed => needed,
        };
        let receipt = outgoing.receipt(now, needed);
        statistics.messages_delivered += 1;
        statistics.stops_received += 1;
        statistics.symbols_delivered += u64::from(receipt.symbols);
        statistics.symbols_sent += u64::from(receipt.sent);
        statistics.symbols_needed += u64::from(needed);
        if let Some(outbox) = self.peers.get_mut(peer) {
            outbox.has_taken_any = true;
        }
        self.buffers.give(outgoing.into_memory());
        Some(Event::Delivered { id, receipt })
    }

    /// A receiver reports what it has of a message, in answer to a datagram that was sent then.
    pub(super) fn progressed(
        &mut self,
        now: Time,
        id: SendId,
        (state, sent_us): (ProgressState, u32),
        (paths, framing): (&PathStatistics, Framing),
        config: &TransportConfig,
    ) -> Progressed {
        let Some(outgoing) = self.messages.get_mut(&id) else {
            return Progressed::Unknown;
        };
        let (loss, ack_timeout) = (paths.loss, paths.ack_timeout());
        let missing = match state {
            ProgressState::UnderWay { missing }
                if outgoing.is_in_flight(now, sent_us, &paths.round_trip) =>
            {
                outgoing.note_missing(missing);
                return Progressed::Continue;
            }
            ProgressState::UnderWay { missing } => missing,
            ProgressState::Unknown => {
                // Questions get through, and none of so many symbols: they may
                // be too long for the path.
                let initial = symbol_bytes(config.datagrams.initial, framing);
                if outgoing.is_unheard_of() && outgoing.symbol_bytes() > initial {
                    let path_statistics = (&loss, ack_timeout);
                    let shorter = outgoing.resegment(initial, path_statistics, &config.budget);
                    return match shorter {
                        Ok(()) => Progressed::Shorter,
                        Err(_) => Progressed::TooLong,
                    };
                }
                outgoing.symbols()
            }
        };
        outgoing.missing(now, ack_timeout, missing, &loss);
        Progressed::Continue
    }

    /// A receiver has no capacity for a message for so long (back-pressure).
    pub(super) fn busy(
        &mut self,
        now: Time,
        id: SendId,
        pause: Duration,
        timers: &mut Timers<TimerKey>,
    ) {
        if let Some(outgoing) = self.messages.get_mut(&id) {
            let due = outgoing.hold(now, pause);
            outgoing.alarm.set(due, TimerKey::Message(id), timers);
        }
    }

    /// A peer has closed, and perhaps it may return. What it cannot have handed over, or may hand over
    /// twice, waits for that; returns what does not, which is to be given up.
    pub(super) fn peer_closed(&mut self, now: Time, id: PeerId, may_return: bool) -> Vec<SendId> {
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
    pub(super) fn returns_by(&self, id: PeerId) -> Option<Time> {
        Some(self.peers.get(id)?.closed_at? + RETURN_WITHIN)
    }

    /// A peer that has closed is not back in time: returns what has waited for it, and not what it was
    /// sent since.
    pub(super) fn not_returned(&mut self, id: PeerId) -> Vec<SendId> {
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

    /// Whether a peer has closed, and was sent nothing since.
    pub(super) fn is_closed(&self, id: PeerId) -> bool {
        self.peers.get(id).is_some_and(|outbox| outbox.is_closed)
    }

    /// The network says that a peer is not there.
    pub(super) fn unreachable(&mut self, id: PeerId) {
        if let Some(outbox) = self.peers.get_mut(id) {
            outbox.is_abandoned = true;
        }
    }

    /// When the oldest message to a peer was accepted that it may have all of, and is not to have
    /// twice.
    pub(super) fn oldest_sent(&self, peer: PeerId) -> Option<Time> {
        let messages = self.under_way(peer).filter_map(|id| self.messages.get(&id));
        messages.filter_map(Outgoing::sent_whole_since).min()
    }

    /// A receiver has not been running before `started`: gives up messages that another may have
    /// handed over there, so that none is handed over twice.
    pub(super) fn restarted(
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
    pub(super) fn cancel(
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
    pub(super) fn abandon(
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
        statistics.messages_undelivered += 1;
        self.buffers.give(outgoing.into_memory());
        Some(Event::Undelivered { id, failure })
    }

    /// Takes a message out of all lists but the scheduler's, which notices by itself.
    fn forget(&mut self, id: SendId, statistics: &mut TransportStatistics) -> Option<Outgoing> {
        let outgoing = self.messages.remove(&id)?;
        if let Some(outbox) = self.peers.get_mut(id.peer) {
            outbox.messages -= 1;
        }
        statistics.outgoing_now -= 1;
        statistics.outgoing_bytes_now -= outgoing.bytes() as u64;
        Some(outgoing)
    }

    pub(super) fn contains(&self, id: SendId) -> bool {
        self.messages.contains_key(&id)
    }

    /// All messages under way to a peer, in their order.
    pub(super) fn all_to(&self, peer: PeerId) -> Vec<SendId> {
        let messages = self.messages.keys().filter(|id| id.peer == peer);
        let mut messages: Vec<SendId> = messages.copied().collect();
        messages.sort_unstable();
        messages
    }

    /// Ids of a peer's messages that may be under way, in their order.
    pub(super) fn under_way(&self, peer: PeerId) -> impl Iterator<Item = SendId> + use<> {
        let outbox = self.peers.get(peer);
        let messages = outbox.map_or(0..0, |outbox| outbox.oldest..outbox.next);
        messages.map(move |message| SendId::new(peer, message))
    }

    /// The oldest of a peer's messages that is still under way, or else the next.
    pub(super) fn update_oldest(&mut self, peer: PeerId) -> u64 {
        let Some(outbox) = self.peers.get_mut(peer) else {
            return 0;
        };
        let mut messages = outbox.oldest..outbox.next;
        let is_under_way = |&message: &u64| self.messages.contains_key(&SendId::new(peer, message));
        outbox.oldest = messages.find(is_under_way).unwrap_or(outbox.next);
        outbox.oldest
    }

    /// Whether nothing is under way to a peer.
    pub(super) fn is_idle(&self, peer: PeerId) -> bool {
        self.peers
            .get(peer)
            .is_none_or(|outbox| outbox.messages == 0)
    }

    /// Whether it is of interest how a peer's paths are.
    pub(super) fn is_in_use(&self, now: Time, peer: PeerId) -> bool {
        let outbox = self.peers.get(peer);
        outbox.is_some_and(|outbox| outbox.is_in_use(now))
    }
}

impl Backlog for Sender {
    fn remaining(&self, id: SendId) -> Option<u32> {
        self.messages.get(&id).map(Outgoing::remaining)
    }

    fn dequeued(&mut self, id: SendId) {
        if let Some(outgoing) = self.messages.get_mut(&id) {
            outgoing.is_queued = false;
        }
    }
}

#[cfg(test)]
mod tests;
