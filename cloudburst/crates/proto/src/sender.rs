//! Sender: messages on their way out, loss detection and retransmission.
//!
//! A message is sent until its receiver says stop. Nothing is retransmitted as it was: what seems
//! lost is made up for by further symbols, after a timeout or when the receiver reports progress.

mod burst;
mod content;
mod endings;
mod memory;
mod outbox;

use core::time::Duration;
use std::collections::HashMap;

use cloudburst_code::{Schedule, wire};
use foldhash::fast::FixedState;

pub(super) use self::{
    burst::{Burst, Symbols},
    content::Content,
};
use self::{memory::Memory, outbox::Outbox};
use cloudburst_congestion::{Keepalive, RoundTripEstimator};
use cloudburst_security::MAX_SPAN;

use super::{
    buffer_pool::BufferPool,
    cancellations::Cancellations,
    config::TransportConfig,
    event::{PeerId, Reason, SendId, SendRefused},
    outgoing::{Outgoing, Step, symbol_bytes},
    packet::{Framing, ProgressState, symbol_datagram_bytes},
    path_manager::{ChosenPath, PathStatistics},
    paths::Spread,
    peer_map::PeerMap,
    scheduler::{Backlog, Rank},
    send_options::SendOptions,
    statistics::{TransportStatistics, tally},
    time::Time,
    timers::{TimerKey, Timers},
};

/// Into how many trains a message is segmented at least where losses are uneven.
const SPREAD_PARTS: u32 = 4;

/// Messages under way to all peers: loss detection and retransmission.
#[derive(Debug)]
pub(super) struct Sender {
    messages: HashMap<SendId, Outgoing, FixedState>,
    memory: Memory,
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
            memory: Memory::new(hash_seed),
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

    /// Takes a message, of which it keeps a copy, unless other peers are sent it, too.
    pub(super) fn accept(
        &mut self,
        now: Time,
        (peer, options, content): (PeerId, SendOptions, Content<'_>),
        (paths, framing): (Option<PathStatistics>, Framing),
        config: &TransportConfig,
        statistics: &mut TransportStatistics,
    ) -> Result<Accepted, SendRefused> {
        let (given, most) = (content.bytes(), config.max_message_bytes);
        let too_large = SendRefused::TooLarge { given, most };
        if given > most {
            return Err(too_large);
        }
        let held = statistics.outgoing_bytes_now as usize;
        let full = SendRefused::Full {
            messages: self.messages.len(),
            bytes: held,
        };
        let more = self.memory.needed(content);
        if !config.quotas.hold(self.messages.len(), held, more) {
            return Err(full);
        }
        let oldest = self.update_oldest(peer);
        let outbox = self.peers.get_mut(peer).ok_or(SendRefused::NoPeer)?;
        let paths = paths.ok_or(SendRefused::NoPeer)?;
        if outbox.next.saturating_sub(oldest) >= MAX_SPAN {
            return Err(full);
        }
        let id = SendId::new(peer, outbox.next);
        let datagram_bytes = paths.datagram_bytes.unwrap_or(config.datagrams.initial);
        let symbol_bytes = symbol_bytes(datagram_bytes, framing);
        let outgoing = match content {
            Content::Own(kind, message) => {
                let memory = self.buffers.take();
                Outgoing::new(now, id, (kind, message), memory, symbol_bytes, config)
            }
            Content::Shared(message) => {
                Outgoing::shared(now, id, message.clone(), symbol_bytes, config)
            }
        };
        let mut outgoing = outgoing.map_err(|_| too_large)?;
        outgoing.set_options(options);
        outbox.next = outbox.next.saturating_add(1);
        outbox.messages = outbox.messages.saturating_add(1);
        outbox.sent_at = Some(now);
        outbox.is_closed = false;
        let awaits_first_contact = outbox.is_unresponsive(now);
        if content.is_request() {
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
        tally(&mut statistics.messages_accepted, 1);
        tally(&mut statistics.outgoing_now, 1);
        let bytes = self.memory.hold(&outgoing) as u64;
        tally(&mut statistics.outgoing_bytes_now, bytes);
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
    ) -> Option<(Rank, bool)> {
        let outgoing = self.messages.get_mut(&id)?;
        let rank = outgoing.rank();
        let is_new = rank.remaining > 0 && !outgoing.is_queued;
        outgoing.is_queued |= is_new;
        outgoing.set_alarm(now, round_trip, timers);
        Some((rank, is_new))
    }

    /// What is to be done for a message whose time has come.
    pub(super) fn attend(
        &mut self,
        now: Time,
        id: SendId,
        timers: &mut Timers<TimerKey>,
    ) -> Option<Step> {
        let outgoing = self.messages.get_mut(&id)?;
        let silent_since = self.peers.get(id.peer).and_then(Outbox::silent_since);
        let is_due = outgoing.alarm.is_due(now, TimerKey::Message(id), timers);
        is_due.then(|| outgoing.attend(now, silent_since))
    }

    /// Symbols of a message that are to be sent in datagrams of `longest` bytes at most, for
    /// which it is segmented again if they have become shorter.
    pub(super) fn burst(
        &mut self,
        (now, id): (Time, SendId),
        (longest, framing): (usize, Framing),
        paths: &PathStatistics,
        config: &TransportConfig,
    ) -> Option<Result<Burst, Reason>> {
        let outgoing = self.messages.get_mut(&id)?;
        if outgoing.is_past_deadline(now) {
            return Some(Err(Reason::TimedOut));
        }
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
            sent: outgoing.sent_in_all(),
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
            shared: outgoing.shared_message(),
            code_bytes: wire::HEADER_BYTES.saturating_add(outgoing.symbol_bytes()),
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
            let silent_since = self.peers.get(id.peer).and_then(Outbox::silent_since);
            outgoing.note_sent(now, (count, path.id, path.group), silent_since);
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

    /// A peer was restarted: sends a message again of which it may have had something before.
    pub(super) fn begin_again(&mut self, now: Time, id: SendId, paths: &PathStatistics) -> bool {
        let outgoing = self.messages.get_mut(&id);
        let Some(outgoing) = outgoing.filter(|outgoing| !outgoing.is_unsent()) else {
            return false;
        };
        outgoing.resume(&paths.loss, paths.ack_timeout());
        outgoing.again(now, paths.ack_timeout(), &paths.loss);
        true
    }

    /// Whether a peer has taken a message of ours.
    pub(super) fn has_taken_any(&self, id: PeerId) -> bool {
        self.peers
            .get(id)
            .is_some_and(|outbox| outbox.has_taken_any)
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

    /// The network says that a peer is not there.
    pub(super) fn unreachable(&mut self, id: PeerId) {
        if let Some(outbox) = self.peers.get_mut(id) {
            outbox.is_abandoned = true;
        }
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
    fn rank(&self, id: SendId) -> Option<Rank> {
        self.messages.get(&id).map(Outgoing::rank)
    }

    fn dequeued(&mut self, id: SendId) {
        if let Some(outgoing) = self.messages.get_mut(&id) {
            outgoing.is_queued = false;
        }
    }
}

#[cfg(test)]
mod tests;
