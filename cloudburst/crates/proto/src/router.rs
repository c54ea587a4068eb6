//! Event router: hands what comes in to the parts of the machine, and what they make of it on.
//!
//! Each part owns its state and knows none of the others: [`Handshake`] sessions, keys and
//! addresses, [`PathManager`] the paths, [`Outbound`] messages to be sent and whose turn it is,
//! [`Receiver`] messages that arrive, [`ControlQueue`] datagrams without symbols. What one needs
//! of another is passed from here.

use core::time::Duration;
use std::collections::VecDeque;

use super::{
    config::{MAX_LIFETIME, TransportConfig},
    control::{Answer, ControlQueue, Question, SourceDatagram},
    event::*,
    handshake::{Admission, Handshake},
    intake::{self, Opened},
    outbound::Outbound,
    packet::{Body, BusyReason, Header, Opener, PacketKind, Symbol, TokenBody},
    path_manager::PathManager,
    peer_map::PeerMap,
    receiver::{Prepared, Receiver},
    sender::Stopped,
    statistics::TransportStatistics,
    time::Time,
    timers::{Alarm, TimerKey, Timers},
    transmit::Writer,
};

/// How often a peer with incomplete messages is looked after.
const EXPIRY_PAUSE: Duration = Duration::from_secs(1);
/// After this long without a word a peer is forgotten: longer than a symbol may
/// be under way and its message be tried for.
const IDLE: Duration = Duration::from_secs(2 * MAX_LIFETIME.as_secs());
/// Paths by which a receiver is asked at once: either may be dead without our knowing it yet.
const QUERY_PATHS: usize = 2;
/// Paths by which somebody is pinged of whom nothing is heard.
const INITIAL_PROBES: usize = 2;

/// Routes events among the parts of the machine.
#[derive(Debug)]
pub(super) struct Router {
    pub(super) config: TransportConfig,
    pub(super) handshake: Handshake,
    pub(super) paths: PathManager,
    pub(super) outbound: Outbound,
    pub(super) receiver: Receiver,
    pub(super) control: ControlQueue,
    pub(super) events: VecDeque<Event>,
    pub(super) statistics: TransportStatistics,
    timers: Timers<TimerKey>,
    /// When each peer has to be looked after.
    alarms: PeerMap<Alarm>,
}

impl Router {
    /// `config` is a valid one.
    pub(super) fn new(config: TransportConfig, seed: [u8; 32], now: Time) -> Self {
        let (handshake, hash_seed) = Handshake::new(&config, seed, now);
        Self {
            handshake,
            paths: PathManager::new(&config, now, hash_seed),
            outbound: Outbound::new(&config, now, hash_seed),
            receiver: Receiver::new(&config, hash_seed),
            control: ControlQueue::default(),
            events: VecDeque::new(),
            statistics: TransportStatistics::default(),
            timers: Timers::new(),
            alarms: PeerMap::default(),
            config,
        }
    }

    /// A new peer; ours, if its session is not known.
    pub(super) fn add_peer(&mut self, now: Time, session: Option<u64>) -> PeerId {
        let is_ours = session.is_none();
        let (id, first_message) = self.handshake.add_peer(now, session);
        self.paths.add_peer(now, id, is_ours);
        self.outbound.add_peer(now, id, first_message);
        self.receiver.add_peer(id, is_ours);
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
        let known = (self.paths.statistics(peer), self.handshake.is_sealing(peer));
        let counted = (&mut self.timers, &mut self.statistics);
        let accepted = self
            .outbound
            .send(now, message, known, &self.config, counted)?;
        if accepted.awaits_first_contact {
            // Dead paths are pinged besides, while a message waits.
            for _ in 0..INITIAL_PROBES {
                if let Some(path) = self.paths.choose_for_probe(now, peer) {
                    let probe = Question::ping(now.as_nanos(), 0);
                    self.control.ask(peer, path, probe);
                }
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

    fn answer(&mut self, source: SourceDatagram, answer: Answer) {
        let refused = &mut self.statistics.refused;
        self.control.answer(source, answer, refused);
    }

    fn challenge(&mut self, now: Time, source: SourceDatagram) {
        if self.handshake.is_challenge_due(now, source.peer) {
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
        let (handshake, statistics) = (&mut self.handshake, &mut self.statistics);
        let opened = intake::open(now, from, datagram, handshake, &self.paths, statistics);
        match opened {
            Some(opened) if opened.header.kind.is_answer() => self.take_answer(now, opened),
            Some(opened) => self.take_question(now, opened),
            None => {}
        }
    }

    /// Notes a datagram of a peer that is authentic.
    fn note(
        &mut self,
        now: Time,
        id: PeerId,
        header: &Header,
        from: FourTuple,
        opener: Option<Opener>,
    ) {
        self.handshake.heard(now, id, opener);
        self.paths.arrived(now, id, header, from);
        self.outbound.heard(now, id);
        if let Some(paths) = self.paths.statistics(id) {
            self.outbound.answered(now, id, &paths, &mut self.timers);
        }
    }

    /// Takes what others answer, for the sender of messages.
    fn take_answer(&mut self, now: Time, opened: Opened<'_>) {
        let Opened {
            header,
            source,
            opener,
            body,
        } = opened;
        let Some((own, peer)) = self.handshake.answered_session(body) else {
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
            self.note(now, noted, &header, source.four_tuple, opener);
        }
        let Some(paths) = self.paths.statistics(peer) else {
            return;
        };
        // After a restart it answers by another session, which is not noted.
        self.outbound.answered(now, peer, &paths, &mut self.timers);
        if self.handshake.is_ours(peer) {
            // Only who receives what we send there can name our session to us.
            let ip = source.four_tuple.remote.ip();
            self.handshake.validate_address(now, ip);
        }
        if let Some((echo, reports)) = body.acknowledgement() {
            let counts = self.paths.acknowledged(now, peer, echo, reports);
            let rates = self.paths.rates(peer);
            self.outbound.acknowledged(now, peer, counts, &rates);
        }
        self.take_answer_of(now, peer, &header, source.four_tuple, &body);
    }

    fn take_answer_of(
        &mut self,
        now: Time,
        peer: PeerId,
        header: &Header,
        from: FourTuple,
        body: &Body<'_>,
    ) {
        let Some(paths) = self.paths.statistics(peer) else {
            return;
        };
        let (timers, statistics) = (&mut self.timers, &mut self.statistics);
        match body {
            Body::Stop(stop, _) => {
                let sender = &mut self.outbound.sender;
                match sender.stopped(now, peer, stop, statistics) {
                    Stopped::Ended(event) => self.events.push_back(event),
                    Stopped::Unexpected => statistics.refused.unexpected += 1,
                    Stopped::Unknown => {}
                }
            }
            Body::Progress(progress, _) => {
                let known = (&paths, self.handshake.is_sealing(peer));
                let (config, counted) = (&self.config, (timers, statistics));
                let progress = (peer, progress);
                let progressed = self
                    .outbound
                    .progressed(now, progress, known, config, counted);
                let (is_too_long, abandoned) = progressed;
                self.events.extend(abandoned);
                if is_too_long {
                    self.paths.refute_mtu(now, peer);
                }
            }
            Body::Busy(busy, _) => self.outbound.busy(now, peer, busy, timers),
            Body::Pong(pong, _) => self.paths.pong(peer, header, pong),
            Body::Challenge(challenge) => {
                let token = challenge.token;
                self.control.ask(peer, from, Question::Token { token });
                self.outbound.challenged(now, peer, &paths, timers);
            }
            _ => statistics.refused.unexpected += 1,
        }
    }

    /// Takes what others send and ask, for the receiver of messages.
    fn take_question(&mut self, now: Time, opened: Opened<'_>) {
        let Opened {
            header,
            mut source,
            opener,
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
            self.note(now, peer, &header, source.four_tuple, opener);
            // Asks again for a token that was lost: what is to be sent may wait for it.
            if header.kind != PacketKind::Token && self.handshake.is_unvalidated(peer) {
                self.challenge(now, source);
            }
        }
        match body {
            Body::Symbol(symbol) => self.take_symbol(now, source, &symbol),
            Body::Query(query) => {
                let answer = self.receiver.progress(source.peer, query.message);
                self.answer(source, answer);
            }
            Body::Ping(ping) => self.answer(source, Answer::Pong { nonce: ping.nonce }),
            Body::Token(token) => self.take_token(now, source, &token),
            _ => self.statistics.refused.unexpected += 1,
        }
    }

    /// A peer for a stranger, if it may become one.
    fn admit(&mut self, now: Time, source: SourceDatagram, body: &Body<'_>) -> Option<PeerId> {
        let admission = self.handshake.admit(now, &self.config, &source, body);
        match admission {
            Admission::Known(peer) => return Some(peer),
            Admission::Welcome => return Some(self.add_peer(now, Some(source.asker))),
            Admission::NeedsToken => {
                self.statistics.refused.not_validated += 1;
                self.challenge(now, source);
            }
            Admission::Full => {
                self.statistics.refused.too_many_peers += 1;
                if let Body::Symbol(symbol) = body {
                    self.answer(source, Answer::busy(symbol.message, BusyReason::Peers));
                }
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
            Prepared::Answer(answer) => return self.answer(source, answer),
            Prepared::NeedsToken => return self.challenge(now, source),
            Prepared::Refused => return,
        }
        let statistics = &mut self.statistics;
        if let Some((received, stop)) = self.receiver.decode(now, peer, symbol, statistics) {
            self.events.push_back(received);
            self.answer(source, stop);
        }
    }

    fn take_token(&mut self, now: Time, source: SourceDatagram, token: &TokenBody) {
        if !self.handshake.is_token_good(now, &source, token) {
            self.statistics.refused.bad_token += 1;
            return;
        }
        let ip = source.four_tuple.remote.ip();
        self.handshake.validate_address(now, ip);
        if let Some(peer) = source.peer {
            self.handshake.validate_peer(peer);
            self.receiver.validate_peer(peer, token.oldest);
        }
    }

    /// The network says that nobody is there (ICMP), or the socket cannot send.
    pub(super) fn handle_unreachable(&mut self, now: Time, four_tuple: FourTuple) {
        let Some(peer) = self.handshake.by_remote(four_tuple.remote) else {
            return;
        };
        if self.paths.unreachable(peer, four_tuple) {
            self.outbound.sender.unreachable(peer);
            for id in self.outbound.sender.under_way(peer) {
                self.abandon(id, Reason::Unreachable);
            }
        }
        self.look_after(now, peer);
    }

    /// Does what is due.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        while let Some(due) = self.timers.pop(now) {
            match due {
                TimerKey::Message(id) => self.attend_message(now, id),
                TimerKey::Peer(id) => self.attend_peer(now, id),
            }
        }
    }

    fn attend_message(&mut self, now: Time, id: SendId) {
        let Some(paths) = self.paths.statistics(id.peer) else {
            return;
        };
        let counted = (&mut self.timers, &mut self.statistics);
        let (asks, abandoned) = self.outbound.attend(now, id, &paths, counted);
        self.events.extend(abandoned);
        for _ in 0..QUERY_PATHS {
            let path = asks.then(|| self.paths.choose_for_probe(now, id.peer));
            if let Some(path) = path.flatten() {
                let message = id.message;
                self.control.ask(id.peer, path, Question::Query { message });
            }
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
        alarm.set(due, TimerKey::Peer(id), &mut self.timers);
    }

    fn attend_peer(&mut self, now: Time, id: PeerId) {
        let key = TimerKey::Peer(id);
        let alarm = self.alarms.get_mut(id);
        if !alarm.is_some_and(|alarm| alarm.is_due(now, key, &mut self.timers)) {
            return;
        }
        self.receiver.expire(now, id, &mut self.statistics);
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
        let pings = self.paths.probe(now, id, &mut self.statistics.paths_died);
        let replaced = self.paths.replace_failed(now, id, &mut self.events);
        self.statistics.paths_replaced += replaced;
        if replaced > 0 {
            for remote in self.paths.remotes(id) {
                self.handshake.bind_remote(remote, id);
            }
        }
        let is_quiet = self.outbound.scheduler.is_idle(id);
        let detector = is_quiet.then(|| self.paths.detect_shared_bottlenecks(now, id));
        let detector = detector.into_iter().flatten();
        for ping in pings.into_iter().flatten().chain(detector) {
            let question = Question::ping(ping.nonce, ping.datagram_bytes);
            self.control.ask(id, ping.four_tuple, question);
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
