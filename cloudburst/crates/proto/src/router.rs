//! Event router: hands what comes in to the parts of the machine, and what they make of it on.
//!
//! Each part owns its state and knows none of the others: [`Handshake`] sessions, keys and
//! addresses, [`PathManager`] the paths, [`Outbound`] messages to be sent and whose turn it is,
//! [`Receiver`] messages that arrive, [`ControlQueue`] datagrams without symbols. What one needs
//! of another is passed from here.

use std::collections::VecDeque;

use cloudburst_security::Randomness;

use super::{
    answers::Answers,
    config::TransportConfig,
    control::{Answer, ControlQueue, Question, SourceDatagram},
    event::*,
    feedback::Feedback,
    handshake::{Admission, Candidate, Handshake},
    intake::{Arrival, Intake, Opened},
    outbound::Outbound,
    packet::{Body, BusyReason, Form, HEADER_BYTES, Header, PublicKey},
    path_manager::{PathManager, Suspects},
    peer_map::PeerMap,
    questions::Questions,
    receiver::Receiver,
    send_options::SendOptions,
    sender::Content,
    statistics::{TransportStatistics, tally},
    time::Time,
    timers::{Alarm, TimerKey, Timers},
    transmit::Writer,
    upkeep::Upkeep,
};

/// Routes events among the parts of the machine.
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
            paths: PathManager::new(&config, now),
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

    pub(super) fn remove_peer(&mut self, id: PeerId, reason: GoneReason) {
        if self.handshake.contains(id) {
            let is_known = self.outbound.sender.is_closed(id);
            self.receiver.remove_peer(id, &mut self.statistics);
            self.outbound.remove_peer(id);
            self.paths.remove_peer(id);
            self.handshake.remove_peer(id);
            self.feedback.remove_peer(id);
            self.alarms.remove(id);
            let gone = Event::PeerGone { peer: id, reason };
            self.events.extend((!is_known).then_some(gone));
        }
    }

    /// Takes a message to be sent.
    pub(super) fn send(
        &mut self,
        now: Time,
        message: (PeerId, SendOptions, Content<'_>),
    ) -> Result<SendId, SendRefused> {
        let peer = message.0;
        let paths = self.paths.statistics(peer);
        self.handshake.prepare(now, peer, &self.outbound.sender);
        let known = (paths, self.handshake.framing(now, peer));
        let counted = (&mut self.timers, &mut self.statistics);
        let (outbound, config) = (&mut self.outbound, &self.config);
        let accepted = outbound.send(now, message, known, config, counted)?;
        if accepted.awaits_first_contact {
            // Dead paths are pinged besides, while a message waits.
            let probe = Question::ping(now.as_nanos(), 0);
            self.upkeep(now).ask_twice(peer, probe);
        }
        self.paths.try_again(now, peer);
        self.look_after(now, peer);
        Ok(accepted.id)
    }

    pub(super) fn abandon(&mut self, id: SendId, reason: Reason) {
        let (sender, statistics) = (&mut self.outbound.sender, &mut self.statistics);
        self.events.extend(sender.abandon(id, reason, statistics));
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
            outbound: &mut self.outbound,
            events: &mut self.events,
            statistics: &mut self.statistics,
            timers: &mut self.timers,
        };
        match intake.open(from, datagram) {
            Some(Arrival::Answer(peer, opened)) => self.take_answer(now, peer, &opened),
            Some(Arrival::Question(opened)) => self.take_question(now, opened),
            Some(Arrival::Candidate(who, opened)) => self.take_candidate(now, *who, opened),
            Some(Arrival::NeedsToken(source)) => {
                self.questions(now).answer(source, Answer::Challenge);
            }
            Some(Arrival::Retried(retried)) => self.upkeep(now).retried(retried),
            None => {}
        }
    }

    /// Takes the first datagram of who begins a handshake: a new peer, or one that is known and
    /// renews its keys.
    fn take_candidate(&mut self, now: Time, candidate: Candidate, mut opened: Opened<'_>) {
        let (conversation, has_token) = (candidate.conversation, candidate.has_token);
        let known = self.handshake.by_session(conversation);
        if known.is_none() && self.handshake.len() >= self.config.quotas.peers {
            tally(&mut self.statistics.refused.too_many_peers, 1);
            opened.source.asker = conversation;
            return self.questions(now).turn_away(candidate, &opened);
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
        self.paths.arrived(now, id, header, (from, source.ecn));
        self.outbound.heard(now, id);
        if let Some(paths) = self.paths.statistics(id) {
            if self.outbound.answered(now, id, &paths, &mut self.timers) {
                self.look_after(now, id);
            }
            self.upkeep(now).rekey(id, paths.ack_timeout());
        }
    }

    /// Takes what a peer answers, for the sender of messages.
    fn take_answer(&mut self, now: Time, peer: PeerId, opened: &Opened<'_>) {
        let (header, source) = (&opened.header, &opened.source);
        let noted = source.peer;
        let noted = noted.or_else(|| self.handshake.recognise(header, peer).then_some(peer));
        if let Some(noted) = noted {
            self.note(now, noted, header, source);
        }
        let answers = Answers {
            now,
            config: &self.config,
            handshake: &mut self.handshake,
            paths: &mut self.paths,
            outbound: &mut self.outbound,
            control: &mut self.control,
            timers: &mut self.timers,
            events: &mut self.events,
            statistics: &mut self.statistics,
        };
        answers.take(peer, (header, source), &opened.body);
        if header.form == Form::Acceptance {
            self.look_after(now, peer);
        }
    }

    /// Takes what others send and ask, for the receiver of messages.
    fn take_question(&mut self, now: Time, opened: Opened<'_>) {
        let Opened {
            header,
            mut source,
            body,
        } = opened;
        if source.peer.is_none() {
            source.peer = self.admit(now, source, &body);
        }
        if let Some(peer) = source.peer {
            self.note(now, peer, &header, &source);
        }
        if let (Body::Goodbye(_), Some(peer)) = (&body, source.peer) {
            if self.upkeep(now).peer_closed(peer) {
                self.remove_peer(peer, GoneReason::Closed);
            }
            return;
        }
        let begins = self.questions(now).take(source, &header, &body);
        if let Some(peer) = source.peer
            && (begins || header.form == Form::Acceptance)
        {
            self.look_after(now, peer);
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
            Admission::NeedsToken => self.questions(now).challenge(source),
            Admission::Busy(message) => {
                let busy = Answer::busy(message, BusyReason::Peers);
                self.questions(now).answer(source, busy);
            }
            Admission::Nobody => {}
        }
        None
    }

    /// Has a path probed of which it is said that nobody is there.
    pub(super) fn suspect(&mut self, now: Time, path: FourTuple) {
        if let Some(peer) = self.handshake.by_remote(path.remote) {
            self.paths.suspect(now, peer, path, Suspects::Path);
            self.look_after(now, peer);
        }
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
            return self.suspect(now, four_tuple);
        }
        let header = Header::parse(quoted).ok();
        let sent = header
            .and_then(|header| Some((self.handshake.sent_to(&header, four_tuple.remote)?, header)));
        let sent = sent.filter(|(peer, header)| {
            let path = (*peer, four_tuple);
            self.paths.take_notice(now, path, kind, header)
        });
        match sent {
            Some((peer, _)) => self.look_after(now, peer),
            None => tally(&mut self.statistics.refused.unexpected, 1),
        }
    }

    /// Does what is due.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        while let Some(due) = self.timers.pop(now) {
            match due {
                TimerKey::Message(id) => self.upkeep(now).attend_message(id),
                TimerKey::Peer(id) => self.attend_peer(now, id),
                TimerKey::Feedback(id) => self.questions(now).attend_feedback(id),
                TimerKey::Cancellations(id) => self.upkeep(now).attend_cancellations(id),
                TimerKey::KeyMismatches => self.upkeep(now).report_key_mismatches(),
            }
        }
    }

    /// Sets a peer's alarm for what may be due next.
    pub(super) fn look_after(&mut self, now: Time, id: PeerId) {
        let due = self.upkeep(now).next_due(id);
        if let Some(alarm) = self.alarms.get_mut(id) {
            alarm.set(due, TimerKey::Peer(id), &mut self.timers);
        }
    }

    fn attend_peer(&mut self, now: Time, id: PeerId) {
        let key = TimerKey::Peer(id);
        let alarm = self.alarms.get_mut(id);
        if !alarm.is_some_and(|alarm| alarm.is_due(now, key, &mut self.timers)) {
            return;
        }
        if self.upkeep(now).attend(id) {
            self.remove_peer(id, GoneReason::Silent);
        } else {
            self.look_after(now, id);
        }
    }

    /// Writes the next datagrams: answers and questions first, then symbols.
    pub(super) fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit> {
        self.upkeep(now).ask_unanswered();
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
        if !self.control.is_empty() || self.outbound.sender.cancellations.is_any_ready() {
            return Some(Time::ZERO);
        }
        let sending = self.outbound.next_deadline();
        self.timers.next().into_iter().chain(sending).min()
    }

    fn questions(&mut self, now: Time) -> Questions<'_> {
        Questions {
            now,
            handshake: &mut self.handshake,
            receiver: &mut self.receiver,
            feedback: &mut self.feedback,
            control: &mut self.control,
            timers: &mut self.timers,
            events: &mut self.events,
            statistics: &mut self.statistics,
        }
    }

    pub(super) fn upkeep(&mut self, now: Time) -> Upkeep<'_> {
        Upkeep {
            now,
            handshake: &mut self.handshake,
            paths: &mut self.paths,
            outbound: &mut self.outbound,
            receiver: &mut self.receiver,
            control: &mut self.control,
            timers: &mut self.timers,
            events: &mut self.events,
            statistics: &mut self.statistics,
            keepalive: self.config.keepalive,
        }
    }
}
