//! What others answer: the sender of messages.

use core::time::Duration;

use super::{
    super::{
        event::{Event, PeerId, Reason, SendId},
        outgoing::symbol_bytes,
        packet::{
            Body, Busy, Challenge, Echo, Have, Header, Opener, Outcome, Pong, Reports, State, Stop,
            symbol_datagram_bytes,
        },
        time::Time,
    },
    Endpoint,
    control::{Question, Trigger},
};

/// Answers to datagrams that were sent longer ago are not about us.
const MAX_ROUND_TRIP: Duration = Duration::from_secs(60);

impl Endpoint {
    pub(super) fn take_answer(
        &mut self,
        now: Time,
        header: &Header,
        trigger: Trigger,
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
        // A peer that was restarted, or that we had not heard of before.
        if trigger.peer.is_none() && !self.bind(header.session, peer) {
            self.statistics.refused.replayed += 1;
            return;
        }
        let noted = trigger.peer.unwrap_or(peer);
        self.note(now, noted, header, trigger.route, opener);
        match body {
            Body::Stop(stop, reports) => {
                self.learn(now, peer, &stop.echo, reports);
                self.take_stop(now, peer, &stop);
            }
            Body::Have(have, reports) => {
                self.learn(now, peer, &have.echo, reports);
                self.take_have(now, peer, &have);
            }
            Body::Busy(busy, reports) => {
                self.learn(now, peer, &busy.echo, reports);
                self.take_busy(now, peer, &busy);
            }
            Body::Pong(pong, reports) => {
                self.learn(now, peer, &pong.echo, reports);
                self.take_pong(peer, &pong);
            }
            Body::Challenge(challenge) => self.take_challenge(now, peer, trigger, &challenge),
            _ => self.statistics.refused.unexpected += 1,
        }
    }

    /// A peer's datagrams come by this session from now on, if they are no replays.
    pub(super) fn bind(&mut self, session: u64, peer: PeerId) -> bool {
        let Some(known) = self.peers.get(peer) else {
            return false;
        };
        if known.session.is_some() {
            // What was under way from it before it was restarted never comes.
            let mut incoming: Vec<u64> = known.incoming.keys().copied().collect();
            incoming.sort_unstable();
            for message in incoming {
                self.drop_incoming(peer, message);
            }
        }
        self.peers.bind_session(session, peer)
    }

    /// What an answer tells of the paths.
    fn learn(&mut self, now: Time, peer: PeerId, echo: &Echo, reports: Reports<'_>) {
        let Some(peer) = self.peers.get_mut(peer) else {
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
        for report in reports {
            let path = peer.paths.by_id(report.path);
            if path.is_some_and(|path| path.hear(now, report.received, report.highest)) {
                peer.paths.delayed(now, report.path, report.delay_us);
            }
        }
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
            return self.give_up(id, reason);
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
            if outgoing.is_one_burst() && stop.needed >= 4 {
                let is_sealing = known.sealer.is_sealing();
                let datagram_bytes = symbol_datagram_bytes(outgoing.symbol_bytes(), is_sealing);
                let bytes = usize::from(stop.needed - 1) * datagram_bytes;
                let spread = Duration::from_micros(stop.spread_us.into());
                known.measured(now, bytes, spread, self.config.bytes_per_s());
            }
        }
        self.events.push_back(Event::Delivered { id, receipt });
        self.reuse(outgoing);
    }

    fn take_have(&mut self, now: Time, peer: PeerId, have: &Have) {
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
        let loss = known.paths.loss();
        match have.state {
            State::UnderWay { missing } => outgoing.missing(missing, loss),
            State::Unknown => {
                // Questions get through, and none of so many symbols: they may
                // be too long for the way.
                let initial =
                    symbol_bytes(self.config.datagrams.initial, known.sealer.is_sealing());
                let datagrams = &self.config.datagrams;
                if outgoing.is_unheard_of() && outgoing.symbol_bytes() > initial {
                    for path in known.paths.iter_mut() {
                        path.length_refuted(now, datagrams.most, datagrams);
                    }
                    if outgoing.cut_anew(initial, loss).is_err() {
                        return self.give_up(id, Reason::Unreachable);
                    }
                } else {
                    outgoing.again(loss);
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
                .set(due, super::Due::Message(id), &mut self.timers);
        }
    }

    fn take_pong(&mut self, peer: PeerId, pong: &Pong) {
        if let Some(peer) = self.peers.get_mut(peer)
            && let Some(path) = peer.paths.by_id(pong.echo.path)
        {
            path.length_proven(pong.datagram_bytes.into());
        }
    }

    /// Shows the token, and sends again what was perhaps not taken.
    fn take_challenge(&mut self, now: Time, peer: PeerId, trigger: Trigger, challenge: &Challenge) {
        let token = challenge.token;
        self.ask(peer, trigger.route, Question::Token { token });
        let Some(known) = self.peers.get_mut(peer) else {
            return;
        };
        if known.is_taken_in {
            return;
        }
        let loss = known.paths.loss();
        let unheard = known.oldest_message..known.next_message;
        for message in unheard {
            let id = SendId { peer, message };
            if let Some(outgoing) = self.outgoing.get_mut(&id)
                && outgoing.is_unheard_of()
            {
                outgoing.again(loss);
                self.enqueue(now, id);
            }
        }
    }
}
