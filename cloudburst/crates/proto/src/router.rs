//! Event router: hands what comes in to the parts of the machine, and what they make of it on.
//!
//! Each part owns its state and knows none of the others: [`Handshake`] sessions, keys and
//! addresses, [`PathManager`] the paths, [`Outbound`] messages to be sent and whose turn it is,
//! [`Receiver`] messages that arrive, [`ControlQueue`] datagrams without symbols. What one needs
//! of another is passed from here.

use core::time::Duration;
use std::collections::VecDeque;

use cloudburst_security::Randomness;

use super::{
    config::{MAX_LIFETIME, TransportConfig},
    control::{Answer, ControlQueue, Question, SourceDatagram},
    event::*,
    feedback::Feedback,
    handshake::{Admission, Candidate, Handshake},
    intake::{self, Arrival, Intake, Opened},
    outbound::{Outbound, TakenAnswer},
    packet::{Body, BusyReason, Form, HEADER_BYTES, Header, PacketKind, PublicKey, Symbol},
    path_manager::{PathManager, Suspects},
    peer_map::PeerMap,
    receiver::{Prepared, Receiver},
    statistics::TransportStatistics,
    time::Time,
    timers::{Alarm, TimerKey, Timers},
    transmit::Writer,
};

/// How often a peer with incomplete messages is looked after.
const EXPIRY_PAUSE: Duration = Duration::from_secs(1);
/// After this long without a datagram a peer is forgotten: longer than a symbol may
/// be under way and its message be tried for.
const IDLE: Duration = Duration::from_secs(2 * MAX_LIFETIME.as_secs());

/// Paths events among the parts of the machine.
#[derive(Debug)]
pub(super) struct Router {
    pub(super) config: TransportConfig,
    pub(super) handshake: Handshake,
    pub(super) paths: PathManager,
    pub(super) outbound: Outbound,
    pub(super) receiver: Receiver,
    pub(super) control: ControlQueue,
    feedback: Feedback,
    pub(super) events: VecDeque<Event>,
    pub(super) statistics: TransportStatistics,
    timers: Timers<TimerKey>,
    /// When each peer has to be looked after.
    alarms: PeerMap<Alarm>,
}

impl Router {
    /// `config` is a valid one.
    pub(super) fn new(config: TransportConfig, random: &Randomness, now: Time) -> Self {
        let (handshake, hash_seed) = Handshake::new(&config, random, now);
        Self {
            handshake,
            paths: PathManager::new(&config, now, hash_seed),
            outbound: Outbound::new(&config, now, hash_seed),
            receiver: Receiver::new(&config),
            control: ControlQueue::default(),
            feedback: Feedback::default(),
            events: VecDeque::new(),
            statistics: TransportStatistics::default(),
            timers: Timers::new(),
            alarms: PeerMap::default(),
            config,
        }
    }

    /// A new peer; ours, if its session is not known.
    pub(super) fn add_peer(
        &mut self,
        now: Time,
        session: Option<u64>,
        key: Option<PublicKey>,
    ) -> PeerId {
        let is_ours = session.is_none();
        let (id, first_message) = self.handshake.add_peer(now, session, key);
        self.paths.add_peer(now, id, is_ours);
        self.outbound.add_peer(now, id, first_message);
        self.receiver.add_peer(id, is_ours);
        self.feedback.add_peer(id);
        self.alarms.insert(id, Alarm::default());
        self.look_after(now, id);
        id
    }

    pub(super) fn remove_peer(&mut self, id: PeerId) {
        if self.handshake.contains(id) {
            self.receiver.remove_peer(id, &mut self.statistics);
            self.outbound.remove_peer(id);
            self.paths.remove_peer(id);
            self.handshake.remove_peer(id);
            self.feedback.remove_peer(id);
            self.alarms.remove(id);
            self.events.push_back(Event::PeerGone { peer: id });
        }
    }

    /// Takes a message to be sent.
    pub(super) fn send(
        &mut self,
        now: Time,
        message: (PeerId, MessageKind, &[u8]),
    ) -> Result<SendId, SendRefused> {
        let peer = message.0;
        let paths = self.paths.statistics(peer);
        self.handshake.prepare(now, peer);
        let known = (paths, self.handshake.framing(now, peer));
        let counted = (&mut self.timers, &mut self.statistics);
        let accepted = self
            .outbound
            .send(now, message, known, &self.config, counted)?;
        if accepted.awaits_first_contact {
            // Dead paths are pinged besides, while a message waits.
            for path in self.paths.choose_two(now, peer).into_iter().flatten() {
                let probe = Question::ping(now.as_nanos(), 0);
                self.control.ask(peer, path, probe);
            }
        }
        self.look_after(now, peer);
        Ok(accepted.id)
    }

    pub(super) fn abandon(&mut self, id: SendId, reason: Reason) {
        let sender = &mut self.outbound.sender;
        let abandoned = sender.abandon(id, reason, &mut self.statistics);
        self.events.extend(abandoned);
    }

    /// Too much is lost for too long: nothing more is sent to a peer.
    fn break_circuit(&mut self, peer: PeerId, loss: f64) {
        self.events.push_back(Event::CircuitBroken { peer, loss });
        for id in self.outbound.sender.all_to(peer) {
            self.abandon(id, Reason::CircuitBroken);
        }
    }

    fn answer(&mut self, source: SourceDatagram, answer: Answer) {
        let refused = &mut self.statistics.refused;
        self.control.answer(source, answer, refused);
    }

    fn challenge(&mut self, now: Time, source: SourceDatagram) {
        let remote = source.four_tuple.remote;
        if self.handshake.is_challenge_due(now, source.peer, remote) {
            self.answer(source, Answer::Challenge);
        }
    }

    /// Takes one datagram, which is decrypted in place.
    pub(super) fn handle_datagram(
        &mut self,
        now: Time,
        from: (FourTuple, Ecn),
        datagram: &mut [u8],
    ) {
        let intake = Intake {
            now,
            needs_token: self.handshake.needs_token_first(&self.config),
            handshake: &mut self.handshake,
            paths: &mut self.paths,
            receiver: &mut self.receiver,
            statistics: &mut self.statistics,
        };
        match intake.open(from, datagram) {
            Some(Arrival::Opened(opened)) => {
                let accepted = opened.source.peer;
                let accepted = accepted.filter(|_| opened.header.form == Form::Acceptance);
                self.take(now, opened);
                if let Some(peer) = accepted {
                    self.look_after(now, peer);
                }
            }
            Some(Arrival::Candidate(candidate, opened)) => {
                self.take_candidate(now, *candidate, opened);
            }
            Some(Arrival::NeedsToken(source)) => self.answer(source, Answer::Challenge),
            Some(Arrival::Retried(peer)) => {
                if let Some(paths) = self.paths.statistics(peer) {
                    let timers = &mut self.timers;
                    self.outbound.challenged(now, peer, &paths, timers);
                    self.rekey(now, peer, paths.ack_timeout());
                }
            }
            None => {}
        }
    }

    fn take(&mut self, now: Time, opened: Opened<'_>) {
        if opened.header.kind.is_answer() {
            self.take_answer(now, opened);
        } else {
            self.take_question(now, opened);
        }
    }

    /// Takes the first datagram of who begins a handshake: a new peer, or one that is known and
    /// renews its keys.
    fn take_candidate(&mut self, now: Time, candidate: Candidate, mut opened: Opened<'_>) {
        if !intake::begins(opened.header.kind) {
            self.statistics.refused.unexpected += 1;
            return;
        }
        let (conversation, has_token) = (candidate.conversation, candidate.has_token);
        let known = self.handshake.by_session(conversation);
        if known.is_none() && self.handshake.len() >= self.config.quotas.peers {
            self.statistics.refused.too_many_peers += 1;
            return;
        }
        let peer = known.unwrap_or_else(|| self.add_peer(now, Some(conversation), candidate.key));
        let Some(keys) = self.handshake.accept(now, peer, candidate) else {
            return;
        };
        let source = &mut opened.source;
        (source.peer, source.asker, source.keys) = (Some(peer), conversation, keys);
        if has_token {
            let remote = source.four_tuple.remote;
            self.handshake.validate_path(now, peer, remote);
            self.receiver.validate_peer(peer, 0);
        }
        self.take_question(now, opened);
        self.look_after(now, peer);
    }

    /// Notes a datagram of a peer that is authentic.
    fn note(&mut self, now: Time, id: PeerId, header: &Header, source: &SourceDatagram) {
        let from = source.four_tuple;
        self.handshake.heard(now, id, from.remote, source.bytes);
        self.paths.arrived(now, id, header, from);
        self.outbound.heard(now, id);
        if let Some(paths) = self.paths.statistics(id) {
            self.outbound.answered(now, id, &paths, &mut self.timers);
            self.rekey(now, id, paths.ack_timeout());
        }
    }

    /// Sends an offer beside the messages, where keys are due to be replaced.
    fn rekey(&mut self, now: Time, id: PeerId, ack_timeout: Duration) {
        if self.handshake.is_rekeying(now, id, ack_timeout) {
            for path in self.paths.choose_two(now, id).into_iter().flatten() {
                let nonce = now.as_nanos();
                self.control.ask(id, path, Question::Offer { nonce });
            }
        }
    }

    /// Takes what others answer, for the sender of messages.
    fn take_answer(&mut self, now: Time, opened: Opened<'_>) {
        let Opened {
            header,
            source,
            body,
        } = opened;
        let answered = self.handshake.answered_session(body);
        // With keys, an answer counts from the peer alone whose keys it came by.
        let answered = answered
            .filter(|(_, peer)| self.handshake.is_unprotected() || source.peer == Some(*peer));
        let Some((own, peer)) = answered else {
            self.statistics.refused.unexpected += 1;
            return;
        };
        let Ok(body) = Body::parse(header.kind, body, own) else {
            self.statistics.refused.malformed += 1;
            return;
        };
        let noted = source.peer;
        let noted = noted.or_else(|| self.handshake.recognise(&header, peer).then_some(peer));
        if let Some(noted) = noted {
            self.note(now, noted, &header, &source);
        }
        // After a restart it answers by another session, which is not noted.
        if let Some(paths) = self.paths.statistics(peer) {
            self.outbound.answered(now, peer, &paths, &mut self.timers);
        }
        let remote = source.four_tuple.remote;
        self.handshake.answered(now, peer, remote);
        if let Some((echo, reports)) = body.acknowledgement() {
            let news = self.paths.acknowledged(now, peer, echo, reports);
            let rates = self.paths.rates(peer);
            if let Some(loss) = self.outbound.acknowledged(now, peer, &news, &rates) {
                self.break_circuit(peer, loss);
            }
        }
        let framing = self.handshake.framing(now, peer);
        let known = (self.paths.statistics(peer), framing);
        let counted = (&mut self.timers, &mut self.statistics);
        let answer = (peer, &body);
        // With keys, who asks for a token has taken what came with its question.
        let is_taken = matches!(body, Body::Challenge(_)) && !self.handshake.is_unprotected();
        let taken = if is_taken {
            TakenAnswer::default()
        } else {
            self.outbound
                .take_answer(now, answer, known, &self.config, counted)
        };
        self.events.extend(taken.event);
        if taken.refutes_mtu {
            self.paths.refute_mtu(now, peer);
        }
        match body {
            Body::Pong(pong, _) => self.paths.pong(peer, &header, &pong),
            Body::Challenge(challenge) => {
                let token = challenge.token;
                let question = Question::Token { token };
                self.control.ask(peer, source.four_tuple, question);
            }
            _ => {}
        }
    }

    /// Takes what others send and ask, for the receiver of messages.
    fn take_question(&mut self, now: Time, opened: Opened<'_>) {
        let Opened {
            header,
            mut source,
            body,
        } = opened;
        let Ok(body) = Body::parse(header.kind, body, 0) else {
            self.statistics.refused.malformed += 1;
            return;
        };
        if source.peer.is_none() {
            source.peer = self.admit(now, source, &body);
        }
        if let Some(peer) = source.peer {
            self.note(now, peer, &header, &source);
        }
        match body {
            Body::Symbol(symbol) => self.take_symbol(now, source, &symbol),
            Body::Query(query) => {
                let answer = self.receiver.progress(source.peer, query.message);
                self.answer(source, answer);
            }
            Body::Ping(ping) => self.answer(source, Answer::Pong { nonce: ping.nonce }),
            Body::Token(token) => {
                let refused = &mut self.statistics.refused;
                let validated = self.handshake.take_token(now, &source, &token, refused);
                if let Some(peer) = validated {
                    self.receiver.validate_peer(peer, token.oldest);
                }
            }
            _ => self.statistics.refused.unexpected += 1,
        }
        // Asks again for a token that was lost: what is to be sent may wait for it. What was taken is
        // acknowledged before, or it would be sent again.
        let ip = source.four_tuple.remote.ip();
        if let Some(peer) = source.peer
            && header.kind != PacketKind::Token
            && self.handshake.needs_token_of(now, peer, ip)
        {
            self.challenge(now, source);
        }
    }

    /// A peer for a stranger, if it may become one.
    fn admit(&mut self, now: Time, source: SourceDatagram, body: &Body<'_>) -> Option<PeerId> {
        let refused = &mut self.statistics.refused;
        match self
            .handshake
            .admit(now, &self.config, &source, body, refused)
        {
            Admission::Known(peer) => return Some(peer),
            Admission::Welcome => return Some(self.add_peer(now, Some(source.asker), None)),
            Admission::NeedsToken => self.challenge(now, source),
            Admission::Busy(message) => {
                self.answer(source, Answer::busy(message, BusyReason::Peers));
            }
            Admission::Nobody => {}
        }
        None
    }

    fn take_symbol(&mut self, now: Time, source: SourceDatagram, symbol: &Symbol<'_>) {
        self.statistics.symbols_received += 1;
        let Some(peer) = source.peer else {
            return;
        };
        let (unseen, statistics) = (self.events.len(), &mut self.statistics);
        match self.receiver.prepare(now, peer, symbol, unseen, statistics) {
            Prepared::Decoder => {}
            Prepared::NewDecoder => self.look_after(now, peer),
            Prepared::Answer(answer) => {
                self.feedback.answered(peer, symbol.message);
                return self.answer(source, answer);
            }
            Prepared::NeedsToken => return self.challenge(now, source),
            Prepared::Refused => return,
        }
        let statistics = &mut self.statistics;
        if let Some((received, answer)) = self.receiver.decode(now, peer, symbol, statistics) {
            self.events.extend(received);
            self.feedback.answered(peer, symbol.message);
            return self.answer(source, answer);
        }
        let symbol = (source, symbol.message);
        let due = self.feedback.take(now, peer, symbol, &mut self.timers);
        self.acknowledge(due);
    }

    /// Says how much of a message has arrived, and by which paths.
    fn acknowledge(&mut self, due: Option<(SourceDatagram, u64)>) {
        if let Some((source, message)) = due {
            let answer = self.receiver.progress(source.peer, message);
            self.answer(source, answer);
        }
    }

    /// Has paths probed of which it is said that nobody is there.
    pub(super) fn suspect(&mut self, now: Time, id: PeerId, path: FourTuple, suspects: Suspects) {
        self.paths.suspect(now, id, path, suspects);
        self.look_after(now, id);
    }

    /// Takes a notice of the network, if it quotes what was sent by that path.
    pub(super) fn take_notice(
        &mut self,
        now: Time,
        four_tuple: FourTuple,
        kind: IcmpKind,
        quoted: &[u8],
    ) {
        if quoted.len() < HEADER_BYTES && kind == IcmpKind::Unreachable {
            // Some quote no more than the header of UDP (RFC 792).
            if let Some(peer) = self.handshake.by_remote(four_tuple.remote) {
                self.suspect(now, peer, four_tuple, Suspects::Path);
            }
            return;
        }
        let header = Header::parse(quoted).ok();
        let sent = header
            .and_then(|header| Some((self.handshake.sent_to(&header, four_tuple.remote)?, header)));
        let sent = sent.filter(|(peer, header)| self.paths.has_sent(*peer, four_tuple, header));
        let Some((peer, _)) = sent else {
            self.statistics.refused.unexpected += 1;
            return;
        };
        match kind {
            IcmpKind::Unreachable => self.suspect(now, peer, four_tuple, Suspects::Address),
            IcmpKind::TooBig { longest } => {
                let bytes = longest.saturating_add(1);
                self.paths.too_big(now, peer, four_tuple, bytes);
            }
        }
    }

    /// Does what is due.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        while let Some(due) = self.timers.pop(now) {
            match due {
                TimerKey::Message(id) => self.attend_message(now, id),
                TimerKey::Peer(id) => self.attend_peer(now, id),
                TimerKey::Feedback(id) => {
                    let due = self.feedback.attend(now, id, &mut self.timers);
                    self.acknowledge(due);
                }
            }
        }
    }

    fn attend_message(&mut self, now: Time, id: SendId) {
        let Some(paths) = self.paths.statistics(id.peer) else {
            return;
        };
        self.rekey(now, id.peer, paths.ack_timeout());
        let counted = (&mut self.timers, &mut self.statistics);
        let (asks, abandoned) = self.outbound.attend(now, id, &paths, counted);
        self.events.extend(abandoned);
        let chosen = asks.then(|| self.paths.choose_two(now, id.peer));
        for path in chosen.into_iter().flatten().flatten() {
            let message = id.message;
            self.control.ask(id.peer, path, Question::Query { message });
        }
    }

    /// Sets a peer's alarm for what may be due next.
    pub(super) fn look_after(&mut self, now: Time, id: PeerId) {
        let Some(alarm) = self.alarms.get_mut(id) else {
            return;
        };
        let mut due = Time::NEVER;
        if self.outbound.sender.is_in_use(now, id) {
            due = self.paths.next_care(now, id);
        }
        if self.receiver.is_receiving(id) {
            due = due.min(now + EXPIRY_PAUSE);
        }
        if let Some(since) = self.handshake.silent_since(id) {
            due = due.min((since + IDLE).max(now + EXPIRY_PAUSE));
        }
        if let Some(worn_at) = self.handshake.worn_at(id) {
            due = due.min(worn_at.max(now + EXPIRY_PAUSE));
        }
        alarm.set(due, TimerKey::Peer(id), &mut self.timers);
    }

    /// Paths of a peer have died, or are others: what was in flight there is so no longer.
    pub(super) fn count_in_flight(&mut self, now: Time, id: PeerId) {
        let in_flight = self.paths.in_flight(id);
        let rates = self.paths.rates(id);
        let scheduler = &mut self.outbound.scheduler;
        scheduler.set_in_flight(now, id, in_flight, &rates);
    }

    fn attend_peer(&mut self, now: Time, id: PeerId) {
        let key = TimerKey::Peer(id);
        let alarm = self.alarms.get_mut(id);
        if !alarm.is_some_and(|alarm| alarm.is_due(now, key, &mut self.timers)) {
            return;
        }
        self.receiver.expire(now, id, &mut self.statistics);
        self.handshake.expire(now, id);
        let silent_since = self.handshake.silent_since(id);
        let is_silent = silent_since.is_some_and(|since| now.since(since) >= IDLE);
        if is_silent && self.outbound.sender.is_idle(id) {
            return self.remove_peer(id);
        }
        if self.outbound.sender.is_in_use(now, id) {
            self.care_for_paths(now, id);
        }
        self.look_after(now, id);
    }

    /// Probes a peer's paths, replaces those that have failed, and finds out which share a
    /// bottleneck while nothing waits to be sent.
    fn care_for_paths(&mut self, now: Time, id: PeerId) {
        let is_quiet = self.outbound.scheduler.is_idle(id);
        let died = self.statistics.paths_died;
        let counted = (&mut self.events, &mut self.statistics);
        let (pings, is_any_replaced) = self.paths.care(now, id, is_quiet, counted);
        if is_any_replaced || self.statistics.paths_died > died {
            self.count_in_flight(now, id);
        }
        for ping in pings {
            let question = Question::ping(ping.nonce, ping.datagram_bytes);
            self.control.ask(id, ping.four_tuple, question);
        }
        if let Some(paths) = self.paths.statistics(id) {
            self.rekey(now, id, paths.ack_timeout());
        }
        if is_any_replaced {
            self.handshake.bind_remotes(self.paths.remotes(id), id);
        }
        if self.paths.take_unreachable(id) {
            self.outbound.sender.unreachable(id);
            for message in self.outbound.sender.under_way(id) {
                self.abandon(message, Reason::Unreachable);
            }
        }
    }

    /// Writes the next datagrams: answers and questions first, then symbols.
    pub(super) fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit> {
        let mut writer = Writer {
            now,
            config: &self.config,
            handshake: &mut self.handshake,
            paths: &mut self.paths,
            outbound: &mut self.outbound,
            timers: &mut self.timers,
            statistics: &mut self.statistics,
        };
        while let Some(control) = self.control.pop() {
            if let Some(transmit) = writer.control(control, out) {
                return Some(transmit);
            }
        }
        writer.next_symbols(out, &mut self.events)
    }

    /// When [`Self::handle_timeout`] or [`Self::poll_transmit`] has something to do.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        if !self.control.is_empty() {
            return Some(Time::ZERO);
        }
        let sending = self.outbound.scheduler.next_deadline();
        self.timers.next().into_iter().chain(sending).min()
    }
}
