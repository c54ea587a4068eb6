//! Upkeep of peers and messages: what is done when its time has come, and nothing else has.

use core::time::Duration;
use std::collections::VecDeque;

use super::{
    config::MAX_LIFETIME,
    control::{ControlQueue, Question},
    event::{Event, GoneReason, PeerId, Reason, SendId},
    handshake::{Handshake, Retried},
    outbound::Outbound,
    path_manager::PathManager,
    receiver::Receiver,
    statistics::TransportStatistics,
    time::Time,
    timers::{TimerKey, Timers},
};

/// How often a peer with incomplete messages is looked after.
const EXPIRY_PAUSE: Duration = Duration::from_secs(1);
/// After this long without a datagram a peer is forgotten: longer than a symbol may
/// be under way and its message be tried for.
const IDLE: Duration = Duration::from_secs(2 * MAX_LIFETIME.as_secs());

/// The parts of the machine that need care.
pub(super) struct Upkeep<'r> {
    pub(super) now: Time,
    pub(super) handshake: &'r mut Handshake,
    pub(super) paths: &'r mut PathManager,
    pub(super) outbound: &'r mut Outbound,
    pub(super) receiver: &'r mut Receiver,
    pub(super) control: &'r mut ControlQueue,
    pub(super) timers: &'r mut Timers<TimerKey>,
    pub(super) events: &'r mut VecDeque<Event>,
    pub(super) statistics: &'r mut TransportStatistics,
    /// The interval of keepalives, to peers that we chose.
    pub(super) keepalive: Option<Duration>,
}

impl Upkeep<'_> {
    /// When something may be due for a peer next.
    pub(super) fn next_due(&self, id: PeerId) -> Time {
        let now = self.now;
        let mut due = Time::NEVER;
        if self.outbound.sender.is_in_use(now, id) {
            due = self.paths.next_care(now, id);
        }
        due = due.min(self.next_keepalive(id).unwrap_or(Time::NEVER));
        due = due.min(self.outbound.sender.returns_by(id).unwrap_or(Time::NEVER));
        if self.receiver.is_receiving(id) {
            due = due.min(now + EXPIRY_PAUSE);
        }
        if let Some(since) = self.handshake.silent_since(id) {
            due = due.min((since + IDLE).max(now + EXPIRY_PAUSE));
        }
        if let Some(worn_at) = self.handshake.worn_at(id) {
            due = due.min(worn_at.max(now + EXPIRY_PAUSE));
        }
        due
    }

    /// Does what is due for a message: more of it is sent, its receiver is asked, or it is abandoned.
    pub(super) fn attend_message(&mut self, id: SendId) {
        let Some(paths) = self.paths.statistics(id.peer) else {
            return;
        };
        self.rekey(id.peer, paths.ack_timeout());
        let counted = (&mut *self.timers, &mut *self.statistics);
        let (asks, abandoned) = self.outbound.attend(self.now, id, &paths, counted);
        self.events.extend(abandoned);
        if asks {
            let message = id.message;
            self.ask_twice(id.peer, Question::Query { message });
        }
    }

    /// Does what is due for a peer. Returns whether it is to be forgotten.
    pub(super) fn attend(&mut self, id: PeerId) -> bool {
        let now = self.now;
        self.receiver.expire(now, id, self.statistics);
        self.handshake.expire(now, id);
        let silent_since = self.handshake.silent_since(id);
        let is_silent = silent_since.is_some_and(|since| now.since(since) >= IDLE);
        if is_silent && self.outbound.sender.is_idle(id) {
            return true;
        }
        let sender = &mut self.outbound.sender;
        if sender.returns_by(id).is_some_and(|by| by <= now) {
            let ended = sender.not_returned(id);
            self.give_up(ended);
        }
        if self.outbound.sender.is_in_use(now, id) {
            self.care_for_paths(id);
        }
        if self.next_keepalive(id).is_some_and(|due| due <= now) {
            self.ask_twice(id, Question::ping(now.as_nanos(), 0));
            let keepalive = self.outbound.sender.keepalive(id);
            keepalive.into_iter().for_each(|it| it.pinged(now));
        }
        false
    }

    /// Says whose keys were not ours since the last time.
    pub(super) fn report_key_mismatches(&mut self) {
        let report = self.handshake.mismatches.report(self.now);
        self.events.extend(report.map(Event::KeysRefused));
    }

    fn next_keepalive(&self, id: PeerId) -> Option<Time> {
        let interval = self.keepalive.filter(|_| self.handshake.is_ours(id));
        self.outbound.sender.next_keepalive(id, interval)
    }

    /// Probes a peer's paths, replaces those that have failed, and finds out which share a
    /// bottleneck while nothing waits to be sent.
    fn care_for_paths(&mut self, id: PeerId) {
        let now = self.now;
        let is_quiet = self.outbound.scheduler.is_idle(id);
        let died = self.statistics.paths_died;
        let counted = (&mut *self.events, &mut *self.statistics);
        let bytes_per_s = self.outbound.scheduler.bytes_per_s(id);
        self.paths.budget_probes(now, id, bytes_per_s);
        let (pings, is_any_replaced) = self.paths.care(now, id, is_quiet, counted);
        if is_any_replaced || self.statistics.paths_died > died {
            self.outbound.count_in_flight(now, id, self.paths);
        }
        for ping in pings {
            let question = Question::ping(ping.nonce, ping.datagram_bytes);
            self.control.ask(id, ping.four_tuple, question);
        }
        if let Some(paths) = self.paths.statistics(id) {
            self.rekey(id, paths.ack_timeout());
        }
        if is_any_replaced {
            self.handshake.bind_remotes(self.paths.remotes(id), id);
        }
        if self.paths.take_unreachable(id) {
            self.outbound.sender.unreachable(id);
            for message in self.outbound.sender.under_way(id) {
                let sender = &mut self.outbound.sender;
                let abandoned = sender.abandon(message, Reason::Unreachable, self.statistics);
                self.events.extend(abandoned);
            }
        }
    }

    /// A peer wants its offer again, with a token, and with what went with the one before.
    pub(super) fn retried(&mut self, retried: Retried) {
        let (now, id) = (self.now, retried.peer);
        let Some(paths) = self.paths.statistics(id) else {
            return;
        };
        if retried.brought_messages {
            let is_believed = self.paths.discarded(id);
            let who = (id, is_believed);
            self.outbound.challenged(now, who, self.paths, self.timers);
        }
        self.rekey(id, paths.ack_timeout());
    }

    /// Sends an offer beside the messages, where keys are due to be replaced.
    pub(super) fn rekey(&mut self, id: PeerId, ack_timeout: Duration) {
        let sender = &self.outbound.sender;
        if self
            .handshake
            .is_rekeying(self.now, id, ack_timeout, sender)
        {
            let nonce = self.now.as_nanos();
            self.ask_twice(id, Question::Offer { nonce });
        }
    }

    /// Asks the receivers of messages that were given up to forget them, and says goodbye to the peers
    /// whose turn it is.
    pub(super) fn ask_unanswered(&mut self) {
        while let Some(peer) = self.outbound.goodbyes.pop(self.now) {
            self.ask_twice(peer, Question::Goodbye);
        }
        while let Some(peer) = self.outbound.sender.cancellations.next_peer() {
            let statistics = self.paths.statistics(peer);
            let ack_timeout = statistics.map_or(EXPIRY_PAUSE, |paths| paths.ack_timeout());
            let window = self.outbound.scheduler.window_datagrams(peer);
            let cancellations = &mut self.outbound.sender.cancellations;
            if let Some(id) = cancellations.next(self.now, (ack_timeout, window), self.timers) {
                let message = id.message;
                self.ask_twice(peer, Question::Cancel { message });
            }
        }
    }

    /// A peer's messages that were given up have to be asked about again, perhaps.
    pub(super) fn attend_cancellations(&mut self, id: PeerId) {
        let cancellations = &mut self.outbound.sender.cancellations;
        cancellations.attend(self.now, id, self.timers);
    }

    /// A peer closes: what is under way from it has ended, and what is under way to it, but for what
    /// one that we chose ourselves may be back for: a server that is started again. Returns whether
    /// it is to be forgotten, or else has said so.
    pub(super) fn peer_closed(&mut self, id: PeerId) -> bool {
        let (now, is_ours) = (self.now, self.handshake.is_ours(id));
        let is_protected = !self.handshake.is_unprotected();
        let sender = &mut self.outbound.sender;
        if is_protected && !is_ours {
            let ended = sender.all_to(id);
            self.give_up(ended);
            return true;
        }
        let was_closed = sender.is_closed_already(id);
        let ended = sender.peer_closed(now, id, is_protected);
        self.give_up(ended);
        // What is late of a peer without keys would come as from somebody new, and be taken twice.
        self.receiver.peer_closed(id, self.statistics);
        if !was_closed {
            let (peer, reason) = (id, GoneReason::Closed);
            self.events.push_back(Event::PeerGone { peer, reason });
        }
        false
    }

    /// Gives messages up to a peer that has closed.
    fn give_up(&mut self, messages: Vec<SendId>) {
        for message in messages {
            let sender = &mut self.outbound.sender;
            let abandoned = sender.abandon(message, Reason::PeerClosed, self.statistics);
            self.events.extend(abandoned);
        }
    }

    /// Says goodbye to all peers that hear it, each in its turn.
    pub(super) fn say_goodbye(&mut self) {
        let peers = self.handshake.peers_in_touch(self.now);
        self.outbound.goodbyes.extend(peers);
    }

    /// Asks by two paths at once, as either may be dead.
    pub(super) fn ask_twice(&mut self, id: PeerId, question: Question) {
        for path in self.paths.choose_two(self.now, id).into_iter().flatten() {
            self.control.ask(id, path, question);
        }
    }
}
