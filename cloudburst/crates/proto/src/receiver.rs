//! Receiver: messages that arrive, until they are decoded and their senders are told to stop.

use std::collections::BTreeMap;

use cloudburst_code::{DecoderPool, Shape, wire};
use cloudburst_security::{MessageStatus, MessageWindow};

use super::{
    config::{HostCapacity, MAX_LIFETIME, Quotas, TransportConfig},
    control::Answer,
    envelope::ENVELOPE_BYTES,
    event::{Event, FourTuple, PeerId},
    incoming::{Incoming, Taken, memory_bytes, shape_of},
    packet::{BusyReason, Outcome, ProgressState, Symbol},
    peer_map::PeerMap,
    quota::{OverQuota, QuotaUsage},
    statistics::{TransportStatistics, release, tally, untally},
    time::Time,
};

/// Messages that arrive from all peers: reassembly, quotas and back-pressure.
#[derive(Debug)]
pub(super) struct Receiver {
    peers: PeerMap<PeerInbox>,
    pool: DecoderPool,
    quotas: Quotas,
    max_message_bytes: usize,
    require_validation: bool,
    /// What the host has capacity for (back-pressure).
    host: HostCapacity,
    /// Memory of incomplete messages of peers that have not shown a token.
    unvalidated_bytes: usize,
}

/// What arrives from a peer.
#[derive(Debug)]
struct PeerInbox {
    /// Whether we chose it ourselves: it may be a reply that is waited for.
    is_ours: bool,
    is_validated: bool,
    window: MessageWindow,
    /// By number: what has become too old is at the front.
    incoming: BTreeMap<u64, Incoming>,
    incoming_bytes: usize,
}

/// What becomes of a symbol before it is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prepared {
    /// There is a decoder for it.
    Decoder,
    /// There is, and it is the message's first.
    NewDecoder,
    /// Its sender is answered, and nothing more.
    Answer(Answer),
    /// Its sender has to show a token first.
    NeedsToken,
    Refused,
}

impl Receiver {
    pub(super) fn new(config: &TransportConfig) -> Self {
        Self {
            peers: PeerMap::default(),
            pool: DecoderPool::default(),
            quotas: config.quotas,
            max_message_bytes: config.max_message_bytes.saturating_add(ENVELOPE_BYTES),
            require_validation: config.require_validation,
            host: HostCapacity::UNLIMITED,
            unvalidated_bytes: 0,
        }
    }

    pub(super) fn add_peer(&mut self, id: PeerId, is_ours: bool) {
        let inbox = PeerInbox {
            is_ours,
            is_validated: is_ours,
            window: MessageWindow::default(),
            incoming: BTreeMap::new(),
            incoming_bytes: 0,
        };
        self.peers.insert(id, inbox);
    }

    /// A peer was restarted, and counts its messages again: forgets what is known of those before.
    pub(super) fn restarted(&mut self, id: PeerId, statistics: &mut TransportStatistics) {
        for message in self.incoming_where(id, |_, _| true) {
            self.drop_incoming(id, message, statistics);
        }
        if let Some(inbox) = self.peers.get_mut(id) {
            inbox.window = MessageWindow::default();
        }
    }

    /// A peer has closed: nothing more comes of what is incomplete, and what is late of it rebuilds
    /// nothing.
    pub(super) fn peer_closed(&mut self, id: PeerId, statistics: &mut TransportStatistics) {
        for message in self.incoming_where(id, |_, _| true) {
            self.cancel(id, message, statistics);
        }
    }

    /// Forgets a peer, and what of it is incomplete.
    pub(super) fn remove_peer(&mut self, id: PeerId, statistics: &mut TransportStatistics) {
        for message in self.incoming_where(id, |_, _| true) {
            self.drop_incoming(id, message, statistics);
        }
        self.peers.remove(id);
    }

    /// Sets what the host has capacity for besides events that it has not seen, of these lengths.
    pub(super) fn set_host_capacity(
        &mut self,
        capacity: HostCapacity,
        unseen: impl Iterator<Item = usize>,
    ) {
        self.host = capacity;
        unseen.for_each(|bytes| self.host.use_up(bytes));
    }

    /// A peer has shown a token: none of its messages below `oldest` is under way.
    pub(super) fn validate_peer(&mut self, id: PeerId, oldest: u64) {
        let Some(inbox) = self.peers.get_mut(id) else {
            return;
        };
        inbox.window.raise(oldest);
        if !core::mem::replace(&mut inbox.is_validated, true) {
            release(&mut self.unvalidated_bytes, inbox.incoming_bytes);
        }
    }

    /// Whether anything of a peer is incomplete.
    pub(super) fn is_receiving(&self, id: PeerId) -> bool {
        self.peers.get(id).is_some_and(|it| !it.incoming.is_empty())
    }

    /// Makes sure that there is a decoder for a symbol. `unseen` events wait for the host.
    pub(super) fn prepare(
        &mut self,
        now: Time,
        id: PeerId,
        symbol: &Symbol<'_>,
        unseen: usize,
        statistics: &mut TransportStatistics,
    ) -> Prepared {
        let Some(inbox) = self.peers.get(id) else {
            return Prepared::Refused;
        };
        let message = symbol.message;
        match inbox.window.get(message) {
            MessageStatus::Open => {}
            MessageStatus::Done => {
                tally(&mut statistics.symbols_wasted, 1);
                return Prepared::Answer(Answer::stop(message, Outcome::Delivered));
            }
            MessageStatus::Stale => {
                tally(&mut statistics.refused.stale, 1);
                return Prepared::Answer(Answer::stop(message, Outcome::Stale));
            }
        }
        if !inbox.is_validated && self.require_validation {
            tally(&mut statistics.refused.not_validated, 1);
            return Prepared::NeedsToken;
        }
        let Ok((header, shape)) = shape_of(symbol.code) else {
            tally(&mut statistics.refused.bad_symbol, 1);
            return Prepared::Refused;
        };
        if shape.message_bytes() > self.max_message_bytes {
            tally(&mut statistics.refused.message_too_large, 1);
            return Prepared::Answer(Answer::stop(message, Outcome::Refused));
        }
        match inbox.incoming.get(&message) {
            Some(known) if !known.is_outdated_by(&header) => return Prepared::Decoder,
            Some(_) => self.drop_incoming(id, message, statistics),
            None => {}
        }
        match self.check_quota(id, memory_bytes(&shape), unseen, statistics) {
            Ok(()) => {}
            Err(OverQuota::Messages) => {
                return Prepared::Answer(Answer::busy(message, BusyReason::Messages));
            }
            Err(OverQuota::Bytes) => {
                return Prepared::Answer(Answer::busy(message, BusyReason::Memory));
            }
            Err(OverQuota::NotValidated) => return Prepared::NeedsToken,
        }
        self.begin(now, (id, message), &header, shape, statistics);
        Prepared::NewDecoder
    }

    fn check_quota(
        &self,
        id: PeerId,
        bytes: usize,
        unseen: usize,
        statistics: &mut TransportStatistics,
    ) -> Result<(), OverQuota> {
        let inbox = self.peers.get(id).ok_or(OverQuota::Messages)?;
        let usage = QuotaUsage {
            messages: statistics.incoming_now as usize,
            peer_messages: inbox.incoming.len(),
            bytes: statistics.incoming_bytes_now as usize,
            peer_bytes: inbox.incoming_bytes,
            unvalidated_bytes: (!inbox.is_validated).then_some(self.unvalidated_bytes),
            unseen,
            host_capacity: (!inbox.is_ours).then_some(self.host.new_messages),
        };
        usage.check_quota(&self.quotas, bytes, &mut statistics.refused)
    }

    fn begin(
        &mut self,
        now: Time,
        (id, message): (PeerId, u64),
        header: &wire::Header,
        shape: Shape,
        statistics: &mut TransportStatistics,
    ) {
        let incoming = Incoming::new(now, header, shape);
        let bytes = incoming.memory_bytes();
        tally(&mut statistics.incoming_now, 1);
        tally(&mut statistics.incoming_bytes_now, bytes as u64);
        let Some(inbox) = self.peers.get_mut(id) else {
            return;
        };
        if !inbox.is_validated {
            self.unvalidated_bytes = self.unvalidated_bytes.saturating_add(bytes);
        }
        inbox.incoming_bytes = inbox.incoming_bytes.saturating_add(bytes);
        inbox.incoming.insert(message, incoming);
        self.open_window(id, message, statistics);
    }

    /// A message is under way: those are stale from now on that are too far behind it.
    fn open_window(&mut self, id: PeerId, message: u64, statistics: &mut TransportStatistics) {
        let Some(inbox) = self.peers.get_mut(id) else {
            return;
        };
        if let Some(floor) = inbox.window.open(message) {
            let stale: Vec<u64> = inbox.incoming.range(..floor).map(|(id, _)| *id).collect();
            for stale in stale {
                tally(&mut statistics.refused.expired, 1);
                self.drop_incoming(id, stale, statistics);
            }
        }
    }

    /// A peer has given a message up: forgets what has arrived of it, and takes nothing more. Returns the
    /// answer, and the host's notice if the message was handed over.
    pub(super) fn cancel(
        &mut self,
        id: PeerId,
        message: u64,
        statistics: &mut TransportStatistics,
    ) -> (Answer, Option<Event>) {
        let window = self.peers.get(id).map(|inbox| &inbox.window);
        match window.map_or(MessageStatus::Stale, |window| window.get(message)) {
            MessageStatus::Done => {
                let cancelled = Event::Cancelled {
                    peer: id,
                    id: message,
                };
                (Answer::stop(message, Outcome::Delivered), Some(cancelled))
            }
            MessageStatus::Stale => (Answer::stop(message, Outcome::Stale), None),
            MessageStatus::Open => {
                self.open_window(id, message, statistics);
                if let Some(inbox) = self.peers.get_mut(id) {
                    inbox.window.finish(message);
                }
                self.drop_incoming(id, message, statistics);
                tally(&mut statistics.messages_cancelled, 1);
                (Answer::stop(message, Outcome::Cancelled), None)
            }
        }
    }

    /// Takes a symbol for which there is a decoder. Returns the message that it completes, if the
    /// host has capacity for it, and the answer to its sender.
    pub(super) fn decode(
        &mut self,
        now: Time,
        from: (PeerId, FourTuple),
        symbol: &Symbol<'_>,
        statistics: &mut TransportStatistics,
    ) -> Option<(Option<Event>, Answer)> {
        let (id, message) = (from.0, symbol.message);
        let inbox = self.peers.get_mut(id)?;
        let incoming = inbox.incoming.get_mut(&message)?;
        if incoming.is_complete() {
            tally(&mut statistics.symbols_wasted, 1);
            return self.hand_over(from, message, statistics);
        }
        match incoming.take(now, symbol.code, &mut self.pool) {
            Taken::More => {}
            Taken::Redundant => tally(&mut statistics.symbols_wasted, 1),
            Taken::Bad => {
                tally(&mut statistics.refused.bad_symbol, 1);
                if incoming.is_outvoted() {
                    self.drop_incoming(id, message, statistics);
                }
            }
            Taken::Complete => return self.hand_over(from, message, statistics),
        }
        None
    }

    /// Hands over a message that is complete, or has its sender wait until the host has capacity
    /// for it: it is not done before.
    fn hand_over(
        &mut self,
        (id, four_tuple): (PeerId, FourTuple),
        message: u64,
        statistics: &mut TransportStatistics,
    ) -> Option<(Option<Event>, Answer)> {
        let inbox = self.peers.get_mut(id)?;
        let incoming = inbox.incoming.get_mut(&message)?;
        let Some(Ok((kind, bytes))) = incoming.open() else {
            tally(&mut statistics.refused.corrupt_message, 1);
            incoming.restart();
            return None;
        };
        if kind.needs_capacity() {
            if !self.host.takes(bytes.len()) {
                tally(&mut statistics.refused.not_accepting, 1);
                return Some((None, Answer::busy(message, BusyReason::Messages)));
            }
            self.host.use_up(bytes.len());
        }
        let answer = Answer::Stop {
            message,
            outcome: Outcome::Delivered,
            needed: incoming.taken(),
            spread_us: incoming.spread_us(),
        };
        let received = Event::Received {
            peer: id,
            four_tuple,
            id: message,
            kind,
            message: bytes.to_vec(),
        };
        inbox.window.finish(message);
        tally(&mut statistics.messages_received, 1);
        self.drop_incoming(id, message, statistics);
        Some((Some(received), answer))
    }

    /// Answers what has arrived of a message.
    pub(super) fn progress(&self, id: Option<PeerId>, message: u64) -> Answer {
        let inbox = id.and_then(|id| self.peers.get(id));
        let status = inbox.map_or(MessageStatus::Open, |inbox| inbox.window.get(message));
        match status {
            MessageStatus::Done => Answer::stop(message, Outcome::Delivered),
            MessageStatus::Stale => Answer::stop(message, Outcome::Stale),
            MessageStatus::Open => {
                let incoming = inbox.and_then(|inbox| inbox.incoming.get(&message));
                if incoming.is_some_and(Incoming::is_complete) {
                    return Answer::busy(message, BusyReason::Messages);
                }
                let state =
                    incoming.map_or(ProgressState::Unknown, |incoming| ProgressState::UnderWay {
                        missing: incoming.missing(),
                    });
                Answer::Progress { message, state }
            }
        }
    }

    /// Forgets messages of which nothing has come for too long.
    pub(super) fn expire(&mut self, now: Time, id: PeerId, statistics: &mut TransportStatistics) {
        let is_old = |_, incoming: &Incoming| now.since(incoming.last_at) >= MAX_LIFETIME;
        for message in self.incoming_where(id, is_old) {
            tally(&mut statistics.refused.expired, 1);
            self.drop_incoming(id, message, statistics);
        }
    }

    /// Numbers of incomplete messages, in their order.
    fn incoming_where(&self, id: PeerId, holds: impl Fn(u64, &Incoming) -> bool) -> Vec<u64> {
        let Some(inbox) = self.peers.get(id) else {
            return Vec::new();
        };
        let incoming = inbox.incoming.iter();
        incoming
            .filter(|(message, incoming)| holds(**message, incoming))
            .map(|(message, _)| *message)
            .collect()
    }

    /// Forgets what has arrived of a message.
    fn drop_incoming(&mut self, id: PeerId, message: u64, statistics: &mut TransportStatistics) {
        let Some(inbox) = self.peers.get_mut(id) else {
            return;
        };
        if let Some(incoming) = inbox.incoming.remove(&message) {
            let bytes = incoming.memory_bytes();
            release(&mut inbox.incoming_bytes, bytes);
            if !inbox.is_validated {
                release(&mut self.unvalidated_bytes, bytes);
            }
            untally(&mut statistics.incoming_now, 1);
            untally(&mut statistics.incoming_bytes_now, bytes as u64);
            incoming.recycle(&mut self.pool);
        }
    }
}

#[cfg(test)]
mod tests;
