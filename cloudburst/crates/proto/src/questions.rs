//! Questions and symbols of peers, for the receiver of messages.

use std::collections::VecDeque;

use super::{
    control::{Answer, ControlQueue, SourceDatagram},
    event::{Event, PeerId},
    feedback::Feedback,
    handshake::{Candidate, Handshake},
    intake::Opened,
    packet::{Body, BusyReason, Form, Header, PacketKind, Symbol, TokenBody},
    receiver::{Prepared, Receiver},
    statistics::{TransportStatistics, tally},
    time::Time,
    timers::{TimerKey, Timers},
};

/// The parts of the machine that have to do with what is sent to us.
pub(super) struct Questions<'r> {
    pub(super) now: Time,
    pub(super) handshake: &'r mut Handshake,
    pub(super) receiver: &'r mut Receiver,
    pub(super) feedback: &'r mut Feedback,
    pub(super) control: &'r mut ControlQueue,
    pub(super) timers: &'r mut Timers<TimerKey>,
    pub(super) events: &'r mut VecDeque<Event>,
    pub(super) statistics: &'r mut TransportStatistics,
}

impl Questions<'_> {
    /// Takes what somebody sends or asks, who is known if that is allowed. Returns whether a message
    /// begins with it, which has to be looked after from now on.
    pub(super) fn take(mut self, source: SourceDatagram, header: &Header, body: &Body<'_>) -> bool {
        let mut begins = false;
        match body {
            Body::Symbol(symbol) if self.refuses_early(&source, header) => {
                self.acknowledge(source, symbol.message);
            }
            Body::Symbol(symbol) => begins = self.symbol(source, symbol),
            Body::Query(query) => self.acknowledge(source, query.message),
            Body::Cancel(cancel) => self.cancel(source, cancel.message),
            Body::Ping(ping) => self.answer(source, Answer::Pong { nonce: ping.nonce }),
            Body::Token(token) => self.token(&source, token),
            _ => tally(&mut self.statistics.refused.unexpected, 1),
        }
        // Asks again for a token that was lost: what is to be sent may wait for it. What was taken is
        // acknowledged before, or it would be sent again.
        let ip = source.four_tuple.remote.ip();
        if let Some(peer) = source.peer
            && header.kind != PacketKind::Token
            && self.handshake.needs_token_of(self.now, peer, ip)
        {
            self.challenge(source);
        }
        begins
    }

    /// Tells somebody for whom there is no capacity that its message has to wait.
    pub(super) fn turn_away(self, candidate: Candidate, opened: &Opened<'_>) {
        let message = match &opened.body {
            Body::Symbol(symbol) => symbol.message,
            Body::Query(query) => query.message,
            _ => return,
        };
        let (source, busy) = (&opened.source, Answer::busy(message, BusyReason::Peers));
        if let Some(datagram) = self.handshake.turn_away(self.now, candidate, source, busy) {
            self.control.answer_sealed(source.four_tuple, datagram);
        }
    }

    /// A peer's time has come to be told what has arrived of it.
    pub(super) fn attend_feedback(mut self, peer: PeerId) {
        if let Some((source, message)) = self.feedback.attend(self.now, peer, self.timers) {
            self.acknowledge(source, message);
        }
    }

    /// Asks for a token where something came from, but not too often.
    pub(super) fn challenge(&mut self, source: SourceDatagram) {
        let remote = source.four_tuple.remote;
        if self
            .handshake
            .is_challenge_due(self.now, source.peer, remote)
        {
            self.answer(source, Answer::Challenge);
        }
    }

    /// Answers, unless too many answers wait.
    pub(super) fn answer(&mut self, source: SourceDatagram, answer: Answer) {
        let refused = &mut self.statistics.refused;
        self.control.answer(source, answer, refused);
    }

    /// Whether what came with an offer may have been handed over before we were started.
    fn refuses_early(&self, source: &SourceDatagram, header: &Header) -> bool {
        let peer = source.peer.filter(|_| header.form == Form::Offer);
        peer.is_some_and(|peer| self.handshake.refuses_early(peer, source.keys))
    }

    /// Whether a message begins with a symbol.
    fn symbol(&mut self, source: SourceDatagram, symbol: &Symbol<'_>) -> bool {
        tally(&mut self.statistics.symbols_received, 1);
        let Some(peer) = source.peer else {
            return false;
        };
        let unseen = self.events.len();
        let prepared = self
            .receiver
            .prepare(self.now, peer, symbol, unseen, self.statistics);
        match prepared {
            Prepared::Decoder | Prepared::NewDecoder => self.decode((peer, source), symbol),
            Prepared::Answer(answer) => self.answer_message(source, symbol.message, answer),
            Prepared::NeedsToken => self.challenge(source),
            Prepared::Refused => {}
        }
        prepared == Prepared::NewDecoder
    }

    fn decode(&mut self, (peer, source): (PeerId, SourceDatagram), symbol: &Symbol<'_>) {
        let (now, message) = (self.now, symbol.message);
        let from = (peer, source.four_tuple);
        if let Some((received, answer)) = self.receiver.decode(now, from, symbol, self.statistics) {
            self.events.extend(received);
            return self.answer_message(source, message, answer);
        }
        let newest = (source, message);
        let first = self.feedback.take(now, peer, newest, self.timers);
        if let Some((source, message)) = first {
            self.acknowledge(source, message);
        }
    }

    /// A message was given up by its sender.
    fn cancel(&mut self, source: SourceDatagram, message: u64) {
        let Some(peer) = source.peer else {
            tally(&mut self.statistics.refused.unexpected, 1);
            return;
        };
        let (answer, cancelled) = self.receiver.cancel(peer, message, self.statistics);
        self.events.extend(cancelled);
        self.answer_message(source, message, answer);
    }

    fn token(&mut self, source: &SourceDatagram, token: &TokenBody) {
        let refused = &mut self.statistics.refused;
        let validated = self.handshake.take_token(self.now, source, token, refused);
        if let Some(peer) = validated {
            self.receiver.validate_peer(peer, token.oldest);
        }
    }

    /// Says how much of a message has arrived, and by which paths.
    fn acknowledge(&mut self, source: SourceDatagram, message: u64) {
        let answer = self.receiver.progress(source.peer, message);
        self.answer(source, answer);
    }

    /// Says what becomes of a message, and acknowledges with that what came of it before.
    fn answer_message(&mut self, source: SourceDatagram, message: u64, answer: Answer) {
        if let Some(peer) = source.peer {
            self.feedback.answered(peer, message, self.timers);
        }
        self.answer(source, answer);
    }
}
