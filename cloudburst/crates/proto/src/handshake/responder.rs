//! Handshakes that others begin: offers are judged, the cheapest first, and accepted.

use core::{net::IpAddr, time::Duration};

use cloudburst_security::{
    Association, Freshness, KeyMismatch, MOST_OFFER_AGE, RETRY_LIFETIME, Security,
};

use super::{Handshake, initiator::CLOCK_ERROR};
use crate::{
    control::{Answer, SourceDatagram},
    event::{FourTuple, PeerId},
    packet::{
        Acceptance, Clear, Credentials, EPHEMERAL_BYTES, Form, Gate, Header, Hello, NOBODY_BEFORE,
        Opener, Pattern, PublicKey, Responder, Sealer, TOKEN_BYTES, TokenMint, hello_bytes,
    },
    statistics::{Refusals, tally},
    time::Time,
};

/// An offer that is authentic, fresh and by somebody who may speak to us.
pub(crate) struct Candidate {
    responder: Responder,
    early: ([u8; EPHEMERAL_BYTES], Opener),
    /// The initiator's index and conversation.
    index: u64,
    pub(crate) conversation: u64,
    pub(crate) key: Option<PublicKey>,
    key_id: u8,
    pub(crate) has_token: bool,
    /// Messages that come with the offer may have been taken here before we were started.
    refuses_early: bool,
}

/// What became of an offer that was not seen before.
pub(crate) enum Judged<'d> {
    /// It is to be accepted, and this is the body that came with it.
    Candidate(Box<Candidate>, &'d [u8]),
    /// It has to be made again, with a token.
    NeedsToken,
    /// Its keys do not fit ours, which was counted.
    Mismatch(KeyMismatch),
    /// It is refused for another reason, which was counted.
    Refused,
}

impl Handshake {
    /// Judges an offer that was not accepted before: the cheapest first, and nothing changes but
    /// budgets.
    pub(crate) fn judge<'d>(
        &mut self,
        now: Time,
        (header, four_tuple): (&Header, FourTuple),
        datagram: &'d mut [u8],
        needs_token: bool,
        refused: &mut Refusals,
    ) -> Judged<'d> {
        let Ok(hello) = Hello::parse(header, datagram) else {
            tally(&mut refused.malformed, 1);
            return Judged::Refused;
        };
        let clear = hello.clear;
        let Some((gate, credentials)) = responding(&self.security, &clear) else {
            tally(&mut refused.unknown_key, 1);
            return Judged::Mismatch(KeyMismatch::Kind);
        };
        if !hello.passes(&gate) {
            tally(&mut refused.not_authentic, 1);
            return Judged::Mismatch(KeyMismatch::OtherKey);
        }
        let has_token = hello.has_token();
        if has_token {
            let ip = four_tuple.remote.ip();
            let verified = self
                .tokens
                .verify(now.as_nanos(), ip, clear.index, &clear.token);
            if verified.is_err() {
                tally(&mut refused.bad_token, 1);
                return Judged::NeedsToken;
            }
            if !self.offer_budgets.take_with_token(now, ip) {
                tally(&mut refused.answers_capped, 1);
                return Judged::Refused;
            }
        } else if needs_token || !self.offer_budgets.take_without_token(now) {
            tally(&mut refused.not_validated, 1);
            return Judged::NeedsToken;
        }
        let ephemeral = self.secrets.draw();
        let read = Responder::read(credentials, &clear, ephemeral, hello.offer);
        let (Ok((responder, offer, key)), Some(ephemeral)) = (read, hello.ephemeral().copied())
        else {
            tally(&mut refused.not_authentic, 1);
            return Judged::Refused;
        };
        if let Security::KeyPair(identity) = &self.security
            && !key.is_some_and(|key| identity.allowed.contains(&key))
        {
            tally(&mut refused.not_allowed, 1);
            let mismatch = key.map(KeyMismatch::NotListed);
            return mismatch.map_or(Judged::Refused, Judged::Mismatch);
        }
        match self
            .replays
            .judge(now, &ephemeral, offer.unix_us, has_token)
        {
            Freshness::Fresh => {}
            Freshness::Doubtful => {
                tally(&mut refused.not_validated, 1);
                return Judged::NeedsToken;
            }
            Freshness::Replayed => {
                tally(&mut refused.replayed, 1);
                return Judged::Refused;
            }
        }
        // Who shares our secret and throws our own offer back, or somebody else's conversation.
        let known = self.by_session.get(&offer.conversation);
        let known = known.and_then(|id| self.sessions.get(*id));
        let is_of_another = known.is_some_and(|known| known.is_ours || known.key != key);
        if is_of_another || self.by_own_session.contains_key(&offer.conversation) {
            tally(&mut refused.unexpected, 1);
            return Judged::Refused;
        }
        let most_age = if has_token {
            // It was not made before its token.
            let expiry = Time::from_nanos(TokenMint::expiry_ns(&clear.token));
            now.since(expiry - RETRY_LIFETIME)
        } else {
            MOST_OFFER_AGE
        };
        let refuses_early = self.may_have_taken(now, most_age, offer.oldest_us);
        let early = Opener::sealed(&offer.early_key());
        let candidate = |early| Candidate {
            responder,
            early: (ephemeral, early),
            index: clear.index,
            conversation: offer.conversation,
            key,
            key_id: clear.key_id,
            has_token,
            refuses_early,
        };
        match early.open_behind(hello_bytes(clear.pattern), header, datagram) {
            Ok(body) => Judged::Candidate(Box::new(candidate(early)), body),
            Err(_) => {
                tally(&mut refused.not_authentic, 1);
                Judged::Refused
            }
        }
    }

    /// Whether a message may have been handed over by who ran here before us: it was accepted so long
    /// before an offer of this age at most.
    fn may_have_taken(&self, now: Time, most_age: Duration, oldest_us: u64) -> bool {
        let oldest = Duration::from_micros(oldest_us.saturating_add(oldest_us / CLOCK_ERROR));
        let running = self.uptime(now).saturating_sub(most_age);
        oldest > Duration::ZERO && running < oldest
    }

    /// For how long nobody else can have run here.
    fn uptime(&self, now: Time) -> Duration {
        self.quiet_before.saturating_add(now.since(self.started))
    }

    /// Accepts an offer of a peer. Returns the index of its keys.
    pub(crate) fn accept(&mut self, now: Time, id: PeerId, candidate: Candidate) -> Option<u64> {
        let (index, uptime) = (self.secrets.number(), self.uptime(now));
        let session = self.sessions.get_mut(id)?;
        let acceptance = Acceptance {
            index,
            conversation: session.own,
            uptime_us: u64::try_from(uptime.as_micros()).unwrap_or(NOBODY_BEFORE),
        };
        let (message, keys) = candidate.responder.accept(&acceptance).ok()?;
        let (ephemeral, _) = candidate.early;
        let indices = (index, candidate.index);
        // The initiator may choose what another has chosen: the first keeps it.
        self.by_peer_index.entry(candidate.index).or_insert(id);
        let mut next = Association::accepted(now, indices, &message, &keys, candidate.early);
        next.refuses_early = candidate.refuses_early;
        session.key = candidate.key;
        session.key_id = candidate.key_id;
        let dropped = session.associations.accepted(next);
        self.unbind(dropped);
        self.by_index.insert(index, id);
        self.by_ephemeral.insert(ephemeral, id);
        self.replays.remember(now, ephemeral);
        Some(index)
    }

    /// Answers an offer of somebody for whom there is no capacity, and keeps nothing of it: the answer
    /// is sealed under keys that nobody has any more. It is no longer than what it answers.
    pub(crate) fn turn_away(
        &mut self,
        now: Time,
        candidate: Candidate,
        source: &SourceDatagram,
        answer: Answer,
    ) -> Option<Box<[u8]>> {
        let acceptance = Acceptance {
            index: self.secrets.number(),
            conversation: self.secrets.number(),
            uptime_us: u64::try_from(self.uptime(now).as_micros()).unwrap_or(NOBODY_BEFORE),
        };
        let (message, keys) = candidate.responder.accept(&acceptance).ok()?;
        let sealer = Sealer::sealed(candidate.index, &keys.to_initiator);
        let sealer = sealer.with_prefix(Form::Acceptance, message.to_vec().into());
        let (_, stamp) = self.stateless(now, candidate.index);
        let mut datagram = vec![0; source.bytes];
        let bytes = sealer.write(stamp, &mut datagram, |body| {
            answer.write(&source.asked(now), None, core::iter::empty(), body)
        });
        datagram.truncate(bytes.ok()?);
        Some(datagram.into())
    }

    /// Makes the token that an offer is to be made again with.
    pub(crate) fn mint_retry(&mut self, now: Time, ip: IpAddr, index: u64) -> [u8; TOKEN_BYTES] {
        self.tokens.mint(now.as_nanos(), ip, index, RETRY_LIFETIME)
    }
}

/// By what we read an offer, if it is made for such as us.
fn responding<'k>(security: &'k Security, clear: &Clear) -> Option<(Gate, Credentials<'k>)> {
    match (security, clear.pattern) {
        (Security::KeyPair(identity), Pattern::KeyPair) if clear.key_id == 0 => {
            let own = &identity.secret;
            let gate = Gate::of_public(&own.public());
            Some((gate, Credentials::KeyPair { own, peer: None }))
        }
        (Security::SharedKeys(keys), Pattern::SharedKey) => {
            let secret = keys.get(clear.key_id)?.secret();
            Some((Gate::of_secret(secret), Credentials::SharedKey(secret)))
        }
        _ => None,
    }
}
