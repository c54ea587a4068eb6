//! Answers of peers, for the sender of messages.

use std::collections::VecDeque;

use super::{
    config::TransportConfig,
    control::{ControlQueue, Question, SourceDatagram},
    event::{Event, PeerId, Reason},
    handshake::Handshake,
    outbound::{Outbound, TakenAnswer},
    packet::{Body, Echo, Header, Reports, STATELESS_PATH},
    path_manager::PathManager,
    statistics::{TransportStatistics, tally},
    time::Time,
    timers::{TimerKey, Timers},
};

/// The parts of the machine that have to do with a peer's answer.
pub(super) struct Answers<'r> {
    pub(super) now: Time,
    pub(super) config: &'r TransportConfig,
    pub(super) handshake: &'r mut Handshake,
    pub(super) paths: &'r mut PathManager,
    pub(super) outbound: &'r mut Outbound,
    pub(super) control: &'r mut ControlQueue,
    pub(super) timers: &'r mut Timers<TimerKey>,
    pub(super) events: &'r mut VecDeque<Event>,
    pub(super) statistics: &'r mut TransportStatistics,
}

impl Answers<'_> {
    /// Takes an answer of a peer.
    pub(super) fn take(
        mut self,
        peer: PeerId,
        (header, source): (&Header, &SourceDatagram),
        body: &Body<'_>,
    ) {
        let now = self.now;
        // After a restart it answers by another session, which is not noted.
        if let Some(paths) = self.paths.statistics(peer) {
            self.outbound.answered(now, peer, &paths, self.timers);
        }
        let remote = source.four_tuple.remote;
        self.handshake.answered(now, peer, remote);
        if let Some((echo, reports)) = body.acknowledgement() {
            self.acknowledged(peer, echo, reports);
        }
        let taken = self.take_body(peer, header, body);
        self.events.extend(taken.event);
        if taken.refutes_mtu {
            self.paths.refute_mtu(now, peer);
        }
        match body {
            Body::Pong(pong, _) => self.paths.pong(peer, header, pong),
            Body::Busy(busy, _) => self.statistics.busy_received.count(busy.reason),
            Body::Challenge(challenge) => {
                let token = challenge.token;
                let question = Question::Token { token };
                self.control.ask(peer, source.four_tuple, question);
            }
            _ => {}
        }
    }

    fn acknowledged(&mut self, peer: PeerId, echo: &Echo, reports: Reports<'_>) {
        let news = self.paths.acknowledged(self.now, peer, echo, reports);
        tally(&mut self.statistics.datagrams_marked, news.marked.into());
        let rates = self.paths.rates(peer);
        if let Some(loss) = self.outbound.acknowledged(self.now, peer, &news, &rates) {
            self.break_circuit(peer, loss);
        }
    }

    /// Too much is lost for too long: nothing more is sent to a peer.
    fn break_circuit(&mut self, peer: PeerId, loss: f64) {
        self.events.push_back(Event::CircuitBroken { peer, loss });
        let sender = &mut self.outbound.sender;
        for id in sender.all_to(peer) {
            let abandoned = sender.abandon(id, Reason::CircuitBroken, self.statistics);
            self.events.extend(abandoned);
        }
    }

    fn take_body(&mut self, peer: PeerId, header: &Header, body: &Body<'_>) -> TakenAnswer {
        if matches!(body, Body::Challenge(_)) {
            // With keys, who asks for a token has taken what came with its question.
            if self.handshake.is_unprotected() {
                // Who has a session has taken what came with it.
                let is_stateless = header.path == STATELESS_PATH;
                let who = (peer, is_stateless && self.paths.discarded(peer));
                self.outbound
                    .challenged(self.now, who, self.paths, self.timers);
            }
            return TakenAnswer::default();
        }
        let framing = self.handshake.framing(self.now, peer);
        let known = (self.paths.statistics(peer), framing);
        let counted = (&mut *self.timers, &mut *self.statistics);
        self.outbound
            .take_answer(self.now, (peer, body), known, self.config, counted)
    }
}
