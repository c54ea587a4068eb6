//! What others send and ask: the receiver of messages.

use core::time::Duration;

use super::{
    super::{
        event::{Event, PeerId},
        incoming::{Incoming, Taken, memory_bytes, shape_of},
        message_window::MessageStatus,
        packet::{BusyReason, Outcome, ProgressState, Symbol, TokenBody},
        quota::{OverQuota, QuotaUsage},
        time::Time,
    },
    Native,
    control::{Answer, SourceDatagram},
};
use cloudburst_code::{Shape, wire};

/// How often a peer is asked for a token.
const CHALLENGE_PAUSE: Duration = Duration::from_millis(50);
/// When somebody for whom there is no room may try again.
const RETRY_AFTER_MS: u16 = 20;

impl Native {
    /// A peer for the sender of a message's symbol, if it may become one.
    pub(super) fn admit(
        &mut self,
        now: Time,
        source: &SourceDatagram,
        symbol: &Symbol<'_>,
    ) -> Option<PeerId> {
        // Somebody we have asked may send before we have heard its answer.
        if let Some(peer) = self.peers.by_remote(source.four_tuple.remote)
            && self
                .peers
                .get(peer)
                .is_some_and(|peer| peer.session.is_none())
            && self.peers.bind_session(source.asker, peer)
        {
            return Some(peer);
        }
        let crowded = self.peers.unvalidated() >= self.config.quotas.unvalidated_peers;
        if self.config.require_validation || crowded {
            self.statistics.refused.not_validated += 1;
            self.challenge(now, *source);
            return None;
        }
        if self.peers.len() >= self.config.quotas.peers {
            self.statistics.refused.too_many_peers += 1;
            self.busy(*source, symbol.message, BusyReason::Peers);
            return None;
        }
        Some(self.add_peer(now, Some(source.asker)))
    }

    /// A peer for who shows a token, which is for this session alone: others
    /// may pretend to be at the same address.
    pub(super) fn admit_by_token(
        &mut self,
        now: Time,
        source: &SourceDatagram,
        body: &TokenBody,
    ) -> Option<PeerId> {
        let ip = source.four_tuple.remote.ip();
        let tokens = &mut self.tokens;
        tokens
            .verify(now.as_nanos(), ip, source.asker, &body.token)
            .ok()?;
        if self.peers.len() >= self.config.quotas.peers {
            self.statistics.refused.too_many_peers += 1;
            return None;
        }
        Some(self.add_peer(now, Some(source.asker)))
    }

    /// Asks again for a token that was lost: what is to be sent may wait for it.
    pub(super) fn challenge_if_needed(&mut self, now: Time, peer: PeerId, source: SourceDatagram) {
        if self.peers.get(peer).is_some_and(|peer| !peer.is_validated) {
            self.challenge(now, source);
        }
    }

    /// Asks for a token: a peer now and then, a stranger each time. Somebody
    /// else may pretend to be at the stranger's address, and must not use up
    /// what is meant for it.
    fn challenge(&mut self, now: Time, source: SourceDatagram) {
        if let Some(peer) = source.peer.and_then(|peer| self.peers.get_mut(peer)) {
            let is_recent = |at| now.since(at) < CHALLENGE_PAUSE;
            if peer.challenged_at.is_some_and(is_recent) {
                return;
            }
            peer.challenged_at = Some(now);
        }
        self.answer(source, Answer::Challenge);
    }

    fn busy(&mut self, source: SourceDatagram, message: u64, reason: BusyReason) {
        let retry_after_ms = RETRY_AFTER_MS;
        self.answer(
            source,
            Answer::Busy {
                message,
                retry_after_ms,
                reason,
            },
        );
    }

    fn stop(&mut self, source: SourceDatagram, message: u64, outcome: Outcome) {
        let (needed, spread_us) = (0, 0);
        self.answer(
            source,
            Answer::Stop {
                message,
                outcome,
                needed,
                spread_us,
            },
        );
    }

    pub(super) fn take_symbol(&mut self, now: Time, source: SourceDatagram, symbol: Symbol<'_>) {
        self.statistics.symbols_received += 1;
        let Some(peer_id) = source.peer else {
            return;
        };
        let Some(peer) = self.peers.get_mut(peer_id) else {
            return;
        };
        let message = symbol.message;
        match peer.window.get(message) {
            MessageStatus::Open => {}
            MessageStatus::Done => {
                self.statistics.symbols_wasted += 1;
                return self.stop(source, message, Outcome::Delivered);
            }
            MessageStatus::Stale => {
                self.statistics.refused.stale += 1;
                return self.stop(source, message, Outcome::Stale);
            }
        }
        if !peer.is_validated && self.config.require_validation {
            self.statistics.refused.not_validated += 1;
            return self.challenge(now, source);
        }
        let Ok((header, shape)) = shape_of(symbol.code) else {
            self.statistics.refused.bad_symbol += 1;
            return;
        };
        if self.ensure_decoder(now, source, message, &header, shape) {
            self.decode(now, source, message, symbol.code);
        }
    }

    /// Makes sure that there is a decoder for the symbol.
    fn ensure_decoder(
        &mut self,
        now: Time,
        source: SourceDatagram,
        message: u64,
        header: &wire::Header,
        shape: Shape,
    ) -> bool {
        let most = self.config.max_message_bytes + super::super::envelope::ENVELOPE_BYTES;
        if shape.message_bytes() > most {
            self.statistics.refused.message_too_large += 1;
            self.stop(source, message, Outcome::Refused);
            return false;
        }
        let Some(peer_id) = source.peer else {
            return false;
        };
        let Some(peer) = self.peers.get_mut(peer_id) else {
            return false;
        };
        match peer.incoming.get(&message) {
            Some(known) if !known.is_outdated_by(header) => return true,
            Some(_) => self.drop_incoming(peer_id, message),
            None => {}
        }
        if let Err(reason) = self.check_quota(peer_id, memory_bytes(&shape)) {
            let reason = match reason {
                OverQuota::Messages => BusyReason::Messages,
                OverQuota::Bytes => BusyReason::Memory,
                OverQuota::NotValidated => {
                    self.challenge(now, source);
                    return false;
                }
            };
            self.busy(source, message, reason);
            return false;
        }
        let incoming = Incoming::new(now, header, shape, &mut self.pool);
        let bytes = incoming.memory_bytes();
        self.statistics.incoming_now += 1;
        self.statistics.incoming_bytes_now += bytes as u64;
        if let Some(peer) = self.peers.get_mut(peer_id) {
            if !peer.is_validated {
                self.unvalidated_bytes += bytes;
            }
            peer.incoming_bytes += bytes;
            peer.incoming.insert(message, incoming);
            if let Some(floor) = peer.window.open(message) {
                self.drop_below(peer_id, floor);
            }
        }
        self.look_after(now, peer_id);
        true
    }

    fn check_quota(&mut self, peer: PeerId, bytes: usize) -> Result<(), OverQuota> {
        let Some(peer) = self.peers.get(peer) else {
            return Err(OverQuota::Messages);
        };
        let held = QuotaUsage {
            messages: self.statistics.incoming_now as usize,
            peer_messages: peer.incoming.len(),
            bytes: self.statistics.incoming_bytes_now as usize,
            peer_bytes: peer.incoming_bytes,
            unvalidated_bytes: (!peer.is_validated).then_some(self.unvalidated_bytes),
            unseen: self.events.len(),
            host_capacity: (!peer.is_ours).then_some(self.host_capacity),
        };
        held.check_quota(&self.config.quotas, bytes, &mut self.statistics.refused)
    }

    fn decode(&mut self, now: Time, source: SourceDatagram, message: u64, code: &[u8]) {
        let Some(peer_id) = source.peer else {
            return;
        };
        let Some(peer) = self.peers.get_mut(peer_id) else {
            return;
        };
        let Some(incoming) = peer.incoming.get_mut(&message) else {
            return;
        };
        match incoming.take(now, code) {
            Taken::More => {}
            Taken::Redundant => self.statistics.symbols_wasted += 1,
            Taken::Bad => {
                self.statistics.refused.bad_symbol += 1;
                if incoming.is_outvoted() {
                    self.drop_incoming(peer_id, message);
                }
            }
            Taken::Complete => match incoming.open() {
                Some(Ok((kind, bytes))) => {
                    let answer = Answer::Stop {
                        message,
                        outcome: Outcome::Delivered,
                        needed: incoming.taken(),
                        spread_us: incoming.spread_us(now),
                    };
                    self.events.push_back(Event::Received {
                        peer: peer_id,
                        id: message,
                        kind,
                        message: bytes.to_vec(),
                    });
                    peer.window.finish(message);
                    self.statistics.messages_received += 1;
                    self.drop_incoming(peer_id, message);
                    self.answer(source, answer);
                }
                _ => {
                    self.statistics.refused.corrupt_message += 1;
                    incoming.restart();
                }
            },
        }
    }

    /// Forgets what has arrived of a message.
    pub(super) fn drop_incoming(&mut self, peer: PeerId, message: u64) {
        let Some(peer) = self.peers.get_mut(peer) else {
            return;
        };
        if let Some(incoming) = peer.incoming.remove(&message) {
            let bytes = incoming.memory_bytes();
            peer.incoming_bytes -= bytes;
            if !peer.is_validated {
                self.unvalidated_bytes -= bytes;
            }
            self.statistics.incoming_now -= 1;
            self.statistics.incoming_bytes_now -= bytes as u64;
            self.pool.give(incoming);
        }
    }

    /// Forgets messages that are stale now.
    fn drop_below(&mut self, peer: PeerId, floor: u64) {
        let Some(known) = self.peers.get(peer) else {
            return;
        };
        let mut stale: Vec<_> = known
            .incoming
            .keys()
            .copied()
            .filter(|&message| message < floor)
            .collect();
        stale.sort_unstable();
        for message in stale {
            self.statistics.refused.expired += 1;
            self.drop_incoming(peer, message);
        }
    }

    pub(super) fn handle_query(&mut self, source: SourceDatagram, message: u64) {
        let peer = source.peer.and_then(|peer| self.peers.get(peer));
        let known = peer.map_or(MessageStatus::Open, |peer| peer.window.get(message));
        let outcome = match known {
            MessageStatus::Done => Outcome::Delivered,
            MessageStatus::Stale => Outcome::Stale,
            MessageStatus::Open => {
                let incoming = peer.and_then(|peer| peer.incoming.get(&message));
                let state =
                    incoming.map_or(ProgressState::Unknown, |incoming| ProgressState::UnderWay {
                        missing: incoming.missing(),
                    });
                return self.answer(source, Answer::Progress { message, state });
            }
        };
        self.stop(source, message, outcome);
    }

    pub(super) fn take_ping(&mut self, source: SourceDatagram, nonce: u64) {
        self.answer(source, Answer::Pong { nonce });
    }

    pub(super) fn take_token(&mut self, now: Time, source: SourceDatagram, body: &TokenBody) {
        let ip = source.four_tuple.remote.ip();
        let verdict = self
            .tokens
            .verify(now.as_nanos(), ip, source.asker, &body.token);
        if verdict.is_err() {
            self.statistics.refused.bad_token += 1;
            return;
        }
        self.addresses.validate(now, ip);
        let Some(peer_id) = source.peer else {
            return;
        };
        if let Some(peer) = self.peers.get_mut(peer_id) {
            peer.window.raise(body.oldest);
            self.validate(peer_id);
        }
    }

    fn validate(&mut self, peer: PeerId) {
        if let Some(known) = self.peers.get(peer)
            && !known.is_validated
        {
            self.unvalidated_bytes -= known.incoming_bytes;
            self.peers.validate(peer);
        }
    }
}
