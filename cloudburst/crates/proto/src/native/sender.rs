//! What others answer: the sender of messages.

use core::time::Duration;

use super::{
    super::{
        event::{Event, PeerId, Reason, SendId},
        outgoing::{Outgoing, symbol_bytes},
        packet::{
            Body, Busy, Challenge, Echo, Header, Opener, Outcome, Pong, Progress, ProgressState,
            Reports, STATELESS_PATH, Stop,
        },
        time::Time,
    },
    Native,
    control::{Question, SourceDatagram},
};

/// Answers to datagrams that were sent longer ago are not about us.
const MAX_ROUND_TRIP: Duration = Duration::from_secs(60);

impl Native {
    pub(super) fn take_answer(
        &mut self,
        now: Time,
        header: &Header,
        source: SourceDatagram,
        opener: Option<Opener>,
        body: &[u8],
    ) {
        // It begins with the session that it answers, which only the peer knows.
        let own = body.first_chunk().map(|own| u64::from_be_bytes(*own));
        let peer = own.and_then(|own| Some((own, self.peers.by_own_session(own)?)));
        let Some((own, peer)) = peer else {
            self.statistics.refused.unexpected += 1;
            return;
        };
        let Ok(body) = Body::parse(header.kind, body, own) else {
            self.statistics.refused.malformed += 1;
            return;
        };
        let noted = source
            .peer
            .or_else(|| self.recognise(header, peer).then_some(peer));
        if let Some(noted) = noted {
            self.note(now, noted, header, source.four_tuple, opener);
        }
        // After a restart it answers by another session, which is not noted.
        if self
            .peers
            .get_mut(peer)
            .is_some_and(|peer| peer.answered(now))
        {
            self.resume(now, peer);
        }
        if self.peers.get(peer).is_some_and(|peer| peer.is_ours) {
            // Only who receives what we send there can name our session to us.
            self.addresses.validate(now, source.four_tuple.remote.ip());
        }
        match body {
            Body::Stop(stop, reports) => {
                self.learn(now, peer, &stop.echo, reports);
                self.take_stop(now, peer, &stop);
            }
            Body::Progress(have, reports) => {
                self.learn(now, peer, &have.echo, reports);
                self.handle_progress(now, peer, &have);
            }
            Body::Busy(busy, reports) => {
                self.learn(now, peer, &busy.echo, reports);
                self.take_busy(now, peer, &busy);
            }
            Body::Pong(pong, reports) => {
                self.learn(now, peer, &pong.echo, reports);
                self.take_pong(header, peer, &pong);
            }
            Body::Challenge(challenge) => self.take_challenge(now, peer, source, &challenge),
            _ => self.statistics.refused.unexpected += 1,
        }
    }

    /// Whether an answer is from the session that a peer's datagrams come by: from
    /// now on, if none was known. A peer keeps the one that it has, even if
    /// another answers for it. It may have been restarted, and then begins anew
    /// as another peer; or each end has begun by itself and got to know the other
    /// twice, and what is done of the one session is not done of the other.
    fn recognise(&mut self, header: &Header, peer: PeerId) -> bool {
        // Nobody has the session without state.
        let is_first = header.path != STATELESS_PATH
            && self
                .peers
                .get(peer)
                .is_some_and(|peer| peer.session.is_none());
        is_first && self.peers.bind_session(header.session, peer)
    }

    /// What an answer tells of the paths.
    fn learn(&mut self, now: Time, peer: PeerId, echo: &Echo, reports: Reports<'_>) {
        let id = peer;
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        let elapsed = now.as_wire_micros().wrapping_sub(echo.sent_us);
        if let Some(micros) = elapsed.checked_sub(echo.hold_us) {
            let sample = Duration::from_micros(micros.into());
            if sample < MAX_ROUND_TRIP {
                peer.round_trip.sample(sample);
                if let Some(path) = peer.paths.by_id(echo.path) {
                    path.round_trip(sample);
                }
            }
        }
        let (mut all_sent, mut all_received) = (0, 0);
        let mut is_counted = false;
        for report in reports {
            is_counted |= report.path == echo.path;
            if let Some((sent, received)) = peer.paths.hear(now, &report) {
                all_sent += sent;
                all_received += received;
            }
        }
        // Or a way that delivers pings alone so far would stay dead, and get no symbol that makes
        // us known.
        if !is_counted && let Some(path) = peer.paths.by_id(echo.path) {
            path.echoed(now);
        }
        peer.delivery.add(all_sent, all_received);
        peer.paths.account(all_sent, all_received);
        peer.adapt(now, self.config.bytes_per_s());
        self.requeue_earlier(id);
    }

    fn take_stop(&mut self, now: Time, peer: PeerId, stop: &Stop) {
        let id = SendId {
            peer,
            message: stop.message,
        };
        let reason = match stop.outcome {
            Outcome::Delivered => None,
            Outcome::Stale => Some(Reason::Stale),
            Outcome::Refused => Some(Reason::Refused),
        };
        if let Some(reason) = reason {
            return self.abandon(id, reason);
        }
        if self.outgoing.get(&id).is_some_and(Outgoing::is_unsent) {
            // It means another message: without keys, accidents get as far as here.
            self.statistics.refused.unexpected += 1;
            return;
        }
        let Some(outgoing) = self.forget(id) else {
            return;
        };
        let needed = match u32::from(stop.needed) {
            // The stop with the number was lost.
            0 => outgoing.symbols(),
            needed => needed,
        };
        let receipt = outgoing.receipt(now, needed);
        self.statistics.messages_delivered += 1;
        self.statistics.stops_received += 1;
        self.statistics.symbols_delivered += u64::from(receipt.symbols);
        self.statistics.symbols_sent += u64::from(receipt.sent);
        self.statistics.symbols_needed += u64::from(needed);
        if let Some(known) = self.peers.get_mut(peer) {
            known.is_taken_in = true;
        }
        self.events.push_back(Event::Delivered { id, receipt });
        self.reuse(outgoing);
    }

    fn handle_progress(&mut self, now: Time, peer: PeerId, have: &Progress) {
        let id = SendId {
            peer,
            message: have.message,
        };
        let Some(known) = self.peers.get_mut(peer) else {
            return;
        };
        let Some(outgoing) = self.outgoing.get_mut(&id) else {
            return;
        };
        let (loss, ack_timeout) = (known.paths.loss(), known.ack_timeout());
        match have.state {
            ProgressState::UnderWay { missing } => {
                outgoing.missing(now, ack_timeout, missing, &loss)
            }
            ProgressState::Unknown => {
                // Questions get through, and none of so many symbols: they may
                // be too long for the way.
                let initial =
                    symbol_bytes(self.config.datagrams.initial, known.sealer.is_sealing());
                let datagrams = &self.config.datagrams;
                if outgoing.is_unheard_of() && outgoing.symbol_bytes() > initial {
                    for path in known.paths.iter_mut() {
                        path.mtu_refuted(now, datagrams.most, datagrams);
                    }
                    if outgoing
                        .resegment(initial, (&loss, ack_timeout), &self.config.budget)
                        .is_err()
                    {
                        return self.abandon(id, Reason::Unreachable);
                    }
                } else {
                    outgoing.missing(now, ack_timeout, outgoing.symbols(), &loss);
                }
            }
        }
        self.enqueue(now, id);
    }

    fn take_busy(&mut self, now: Time, peer: PeerId, busy: &Busy) {
        let id = SendId {
            peer,
            message: busy.message,
        };
        if let Some(outgoing) = self.outgoing.get_mut(&id) {
            let pause = Duration::from_millis(busy.retry_after_ms.max(1).into());
            let due = outgoing.hold(now, pause);
            outgoing
                .alarm
                .set(due, super::TimerKey::Message(id), &mut self.timers);
        }
    }

    fn take_pong(&mut self, header: &Header, peer: PeerId, pong: &Pong) {
        let Some(peer) = self.peers.get_mut(peer) else {
            return;
        };
        let id = pong.echo.path;
        let index = peer.paths.iter().position(|path| path.id == id);
        if let Some(index) = index {
            let path = peer.paths.get_mut(index);
            path.mtu_confirmed(pong.datagram_bytes.into());
            // Reports tell of the newest datagrams, and the peer reads several before it answers.
            let arrived_us = header.sent_us.wrapping_sub(pong.echo.hold_us);
            let delay = peer.paths.delay(arrived_us.wrapping_sub(pong.echo.sent_us));
            peer.shared_bottleneck.take(pong.nonce, index, delay);
        }
    }

    /// Shows the token, and sends again what was perhaps not taken.
    fn take_challenge(
        &mut self,
        now: Time,
        peer: PeerId,
        source: SourceDatagram,
        challenge: &Challenge,
    ) {
        let token = challenge.token;
        self.ask(peer, source.four_tuple, Question::Token { token });
        let link = self.config.bytes_per_s();
        let Some(known) = self.peers.get_mut(peer) else {
            return;
        };
        if known.is_taken_in {
            return;
        }
        known.acquit_paths(now, link);
        let (loss, ack_timeout) = (known.paths.loss(), known.ack_timeout());
        let unheard = known.oldest_message..known.next_message;
        for message in unheard {
            let id = SendId { peer, message };
            if let Some(outgoing) = self.outgoing.get_mut(&id)
                && outgoing.is_unheard_of()
            {
                outgoing.again(now, ack_timeout, &loss);
                self.enqueue(now, id);
            }
        }
    }
}
