//! Handshakes that we begin: offers are made, made again, and their acceptances taken.

use core::{net::SocketAddr, time::Duration};

use cloudburst_security::{Missed, PendingOffer, Security};

use super::Handshake;
use crate::{
    event::PeerId,
    packet::{
        Body, Clear, Credentials, Gate, HEADER_BYTES, Header, Initiator, Offer, Opener, Pattern,
        PublicKey, SECRET_BYTES, TOKEN_BYTES, write_hello,
    },
    sender::Sender,
    statistics::{Refusals, tally},
    time::Time,
};

/// Clocks of hosts differ by less than this part (oscillators: 0.01 %, and while NTP slews them
/// 0.05 % more).
pub(super) const CLOCK_ERROR: u64 = 1_000;

/// A peer of ours that has begun another conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Restarted {
    /// There was a conversation before.
    pub(crate) was_known: bool,
    /// It was not running before, by our clock.
    pub(crate) started: Time,
    /// It lacks the keys that it was sent messages by.
    pub(crate) has_discarded: bool,
}

/// An offer that a peer of ours wants again, with a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retried {
    pub(crate) peer: PeerId,
    /// Messages went with the offer, and were discarded with it; or else they go on by other keys.
    pub(crate) brought_messages: bool,
}

impl Handshake {
    /// Makes sure that there is something to seal with, if we may begin a handshake with the peer.
    pub(crate) fn prepare(&mut self, now: Time, id: PeerId, sender: &Sender) {
        if self.is_unprotected() {
            return;
        }
        let Some(session) = self.sessions.get_mut(id).filter(|it| it.is_ours) else {
            return;
        };
        if session.associations.needs_offer(now) {
            self.make_offer(now, id, None, sender);
        }
    }

    /// Whether an offer is to be sent beside messages, to replace keys.
    pub(crate) fn is_rekeying(
        &mut self,
        now: Time,
        id: PeerId,
        ack_timeout: Duration,
        sender: &Sender,
    ) -> bool {
        let Some(session) = self.sessions.get_mut(id).filter(|it| it.is_ours) else {
            return false;
        };
        let associations = &session.associations;
        if !associations.is_rekey_due(now, ack_timeout) {
            return false;
        }
        if !associations.has_fresh_offer(now) {
            self.make_offer(now, id, None, sender);
        }
        let session = self.sessions.get_mut(id);
        session.is_some_and(|it| it.associations.take_turn(now, ack_timeout))
    }

    /// Makes an offer to a peer of ours, which takes the place of the one before. A token comes with
    /// the index that it was made for.
    fn make_offer(
        &mut self,
        now: Time,
        id: PeerId,
        retry: Option<(u64, [u8; TOKEN_BYTES])>,
        sender: &Sender,
    ) {
        let unix_us = self.replays.unix_us(now);
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        if let Some(before) = session.associations.pending.take() {
            self.by_index.remove(&before.index);
        }
        let (index, token) = match retry {
            Some((index, token)) => (index, Some(token)),
            None => (self.secrets.number(), None),
        };
        let peer_key = session.key.as_ref();
        let Some((pattern, key_id, credentials)) = initiating(&self.security, peer_key) else {
            return;
        };
        let clear = Clear {
            pattern,
            key_id,
            index,
            token: token.unwrap_or([0; TOKEN_BYTES]),
        };
        let offer = Offer {
            early_secret: self.secrets.draw(),
            unix_us,
            conversation: session.own,
            oldest_us: age_us(now, sender.oldest_sent(id)),
        };
        let mut message = [0; Pattern::KeyPair.offer_bytes()];
        let message = &mut message[..pattern.offer_bytes()];
        let ephemeral = self.secrets.draw();
        let made = Initiator::offer(credentials, &clear, &offer, ephemeral, message);
        let Ok(initiator) = made else {
            return;
        };
        if let Some(ephemeral) = message.first_chunk() {
            // Thrown back at us, it is no offer of somebody else.
            self.replays.remember(now, *ephemeral);
        }
        let hello = match credentials {
            Credentials::KeyPair {
                peer: Some(peer), ..
            } => write_hello(&clear, &Gate::of_public(peer), message),
            Credentials::SharedKey(secret) => {
                write_hello(&clear, &Gate::of_secret(secret), message)
            }
            Credentials::KeyPair { peer: None, .. } => return,
        };
        let known_by = (index, token.is_some());
        let pending = PendingOffer::new(now, known_by, initiator, &offer, hello);
        session.associations.pending = Some(Box::new(pending));
        session.key_id = key_id;
        self.by_index.insert(index, id);
    }

    /// Makes an offer with the token of a retry: our last one again, or, if the peer has no keys of
    /// the index that we seal for, another. Returns whose it is, if it is about us.
    pub(crate) fn retried(
        &mut self,
        now: Time,
        (header, remote): (&Header, SocketAddr),
        datagram: &mut [u8],
        sender: &Sender,
        refused: &mut Refusals,
    ) -> Option<Retried> {
        let opened = Opener::plain().open(header, datagram);
        let Ok(Ok(Body::Challenge(challenge))) =
            opened.map(|body| Body::parse(header.kind, body, header.session))
        else {
            tally(&mut refused.malformed, 1);
            return None;
        };
        let index = header.session;
        let Some((peer, missed)) = self.missed_by(now, index, remote) else {
            tally(&mut refused.unexpected, 1);
            return None;
        };
        let mut brought_messages = false;
        if missed != Missed::Offer {
            self.make_offer(now, peer, Some((index, challenge.token)), sender);
            // Who may have forgotten us is sent messages with the offer, and nobody else is.
            let session = self.sessions.get(peer);
            brought_messages = session.is_some_and(|it| it.associations.is_in_doubt);
        }
        Some(Retried {
            peer,
            brought_messages,
        })
    }

    /// The peer of ours that says to have no keys of this index, and what it is to be sent for that.
    fn missed_by(&mut self, now: Time, index: u64, remote: SocketAddr) -> Option<(PeerId, Missed)> {
        let id = self.by_index(index).or_else(|| self.by_remote(remote))?;
        let session = self.sessions.get_mut(id).filter(|it| it.is_ours)?;
        Some((id, session.associations.missed(now, index)?))
    }

    /// Takes the acceptance of our offer, if it is one. If the peer has begun another conversation,
    /// it was perhaps restarted: returns the time before which it was not running, at the latest.
    /// Nothing of a conversation before counts any more.
    pub(crate) fn take_acceptance(
        &mut self,
        now: Time,
        id: PeerId,
        header: &Header,
        datagram: &mut [u8],
    ) -> Option<Restarted> {
        let session = self.sessions.get_mut(id)?;
        let has_discarded = !session.associations.is_in_doubt;
        let pending = session.associations.pending.as_ref()?;
        if pending.index != header.session {
            return None;
        }
        let message = *datagram.get(HEADER_BYTES..)?.first_chunk()?;
        let (acceptance, dropped) = session.associations.accept(now, &message)?;
        let before = session.session.replace(acceptance.conversation);
        self.unbind(dropped);
        if before == Some(acceptance.conversation) {
            return None;
        }
        if before.is_some() {
            let session = self.sessions.get_mut(id)?;
            let forgotten = session.associations.forget_previous();
            self.unbind(forgotten);
        }
        // Its clock may be faster than ours.
        let uptime_us = acceptance.uptime_us;
        let uptime_us = uptime_us.saturating_sub(uptime_us / CLOCK_ERROR);
        Some(Restarted {
            was_known: before.is_some(),
            started: now - Duration::from_micros(uptime_us),
            has_discarded,
        })
    }
}

/// How long ago something was, at least 1 µs; 0 for nothing.
fn age_us(now: Time, at: Option<Time>) -> u64 {
    let age = at.map(|at| now.since(at).as_micros().max(1));
    age.map_or(0, |age| u64::try_from(age).unwrap_or(u64::MAX))
}

/// How we begin a handshake with a peer of this key.
fn initiating<'k>(
    security: &'k Security,
    peer: Option<&'k PublicKey>,
) -> Option<(Pattern, u8, Credentials<'k>)> {
    match security {
        Security::KeyPair(identity) => {
            let own = &identity.secret;
            let peer = Some(peer?);
            Some((Pattern::KeyPair, 0, Credentials::KeyPair { own, peer }))
        }
        Security::SharedKeys(keys) => {
            let key = keys.first()?;
            let secret: &[u8; SECRET_BYTES] = key.secret();
            let credentials = Credentials::SharedKey(secret);
            Some((Pattern::SharedKey, key.id().get(), credentials))
        }
        _ => None,
    }
}
