//! Handshakes that others begin: offers are judged, the cheapest first, and accepted.

use core::{net::IpAddr, time::Duration};

use cloudburst_security::{
    Association, Freshness, KeyMismatch, MOST_OFFER_AGE, RETRY_LIFETIME, Security,
};

use super::{
    Handshake,
    initiator::CLOCK_ERROR,
    offers::{Reading, Unread},
};
use crate::{
    control::{Answer, SourceDatagram},
    event::{FourTuple, PeerId},
    packet::{
        Acceptance, Clear, Credentials, Form, Gate, Header, Hello, NOBODY_BEFORE, Offer, Opener,
        Pattern, PublicKey, Responder, Sealer, TOKEN_BYTES, TokenMint, hello_bytes,
    },
    statistics::{Refusals, TransportStatistics, tally},
    time::Time,
};

/// An offer that is authentic, fresh and by somebody who may speak to us.
pub(crate) struct Candidate {
    pub(super) unread: Unread,
    pub(super) reading: Reading,
    /// Who can accept it, if it was read just now.
    pub(super) responder: Option<Responder>,
    early: Opener,
    /// What the initiator calls its side.
    pub(crate) conversation: u64,
    pub(crate) key: Option<PublicKey>,
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
    /// budgets and what is remembered of offers.
    pub(crate) fn judge<'d>(
        &mut self,
        now: Time,
        (header, four_tuple): (&Header, FourTuple),
        datagram: &'d mut [u8],
        needs_token: bool,
        statistics: &mut TransportStatistics,
    ) -> Judged<'d> {
        let ip = four_tuple.remote.ip();
        let unread = match self.look_at(now, (header, ip), datagram, needs_token, statistics) {
            Ok(unread) => unread,
            Err(judged) => return judged,
        };
        let (reading, responder) = match self.read(now, &unread, statistics) {
            Ok(read) => read,
            Err(judged) => return judged,
        };
        let refused = &mut statistics.refused;
        if let Err(judged) = self.judge_reading(now, &unread, &reading, refused) {
            return judged;
        }
        let early = Opener::sealed(&reading.offer.early_key());
        let Ok(body) = early.open_behind(hello_bytes(unread.clear.pattern), header, datagram)
        else {
            tally(&mut refused.not_authentic, 1);
            return Judged::Refused;
        };
        let refuses_early = self.refuses_early_of(now, &unread.clear, &reading.offer);
        let candidate = Candidate {
            conversation: reading.offer.conversation,
            key: reading.key,
            has_token: unread.clear.has_token(),
            refuses_early,
            unread,
            reading,
            responder,
            early,
        };
        Judged::Candidate(Box::new(candidate), body)
    }

    /// Looks at what can be told of an offer without reading it.
    fn look_at(
        &mut self,
        now: Time,
        (header, ip): (&Header, IpAddr),
        datagram: &[u8],
        needs_token: bool,
        statistics: &mut TransportStatistics,
    ) -> Result<Unread, Judged<'static>> {
        let refused = &mut statistics.refused;
        let Some((hello, ephemeral)) = Hello::parse(header, datagram)
            .ok()
            .and_then(|hello| Some((hello, *hello.ephemeral()?)))
        else {
            tally(&mut refused.malformed, 1);
            return Err(Judged::Refused);
        };
        let clear = &hello.clear;
        let Some((gate, _)) = responding(&self.security, clear) else {
            tally(&mut refused.unknown_key, 1);
            return Err(Judged::Mismatch(KeyMismatch::Kind));
        };
        if !hello.passes(&gate) {
            tally(&mut refused.not_authentic, 1);
            return Err(Judged::Mismatch(KeyMismatch::OtherKey));
        }
        if clear.has_token() {
            let verified = self
                .tokens
                .verify(now.as_nanos(), ip, clear.index, &clear.token);
            if verified.is_err() {
                tally(&mut refused.bad_token, 1);
                return Err(Judged::NeedsToken);
            }
        } else if needs_token {
            tally(&mut refused.not_validated, 1);
            return Err(Judged::NeedsToken);
        }
        if self.replays.knows(now, &ephemeral) {
            tally(&mut refused.replayed, 1);
            return Err(Judged::Refused);
        }
        Ok(self.offers.unread(ip, &hello, ephemeral))
    }

    /// Judges what an offer says.
    fn judge_reading(
        &mut self,
        now: Time,
        unread: &Unread,
        reading: &Reading,
        refused: &mut Refusals,
    ) -> Result<(), Judged<'static>> {
        let (offer, key) = (&reading.offer, reading.key);
        if let Security::KeyPair(identity) = &self.security
            && !key.is_some_and(|key| identity.allowed.contains(&key))
        {
            tally(&mut refused.not_allowed, 1);
            let mismatch = key.map(KeyMismatch::NotListed);
            return Err(mismatch.map_or(Judged::Refused, Judged::Mismatch));
        }
        let has_token = unread.clear.has_token();
        match self
            .replays
            .judge(now, &unread.ephemeral, offer.unix_us, has_token)
        {
            Freshness::Fresh => {}
            Freshness::Doubtful => {
                tally(&mut refused.not_validated, 1);
                return Err(Judged::NeedsToken);
            }
            Freshness::Replayed => {
                tally(&mut refused.replayed, 1);
                return Err(Judged::Refused);
            }
        }
        // Who shares our secret and throws our own offer back, or somebody else's conversation.
        let known = self.by_session.get(&offer.conversation);
        let known = known.and_then(|id| self.sessions.get(*id));
        let is_of_another = known.is_some_and(|known| known.is_ours || known.key != key);
        if is_of_another || self.by_own_session.contains_key(&offer.conversation) {
            tally(&mut refused.unexpected, 1);
            return Err(Judged::Refused);
        }
        Ok(())
    }

    /// Whether messages that come with an offer may have been taken by who ran here before us.
    fn refuses_early_of(&self, now: Time, clear: &Clear, offer: &Offer) -> bool {
        let most_age = if clear.has_token() {
            // It was not made before its token.
            let expiry = Time::from_nanos(TokenMint::expiry_ns(&clear.token));
            now.since(expiry - RETRY_LIFETIME)
        } else {
            MOST_OFFER_AGE
        };
        self.may_have_taken(now, most_age, offer.oldest_us)
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

    /// Accepts an offer of a peer, by who has read it. Returns the index of its keys.
    pub(crate) fn accept(
        &mut self,
        now: Time,
        id: PeerId,
        candidate: Candidate,
        responder: Responder,
    ) -> Option<u64> {
        let (index, uptime) = (self.secrets.number(), self.uptime(now));
        let session = self.sessions.get_mut(id)?;
        let acceptance = Acceptance {
            index,
            conversation: session.own,
            uptime_us: u64::try_from(uptime.as_micros()).unwrap_or(NOBODY_BEFORE),
        };
        let (message, keys) = responder.accept(&acceptance).ok()?;
        let (ephemeral, clear) = (candidate.unread.ephemeral, &candidate.unread.clear);
        let indices = (index, clear.index);
        // The initiator may choose what another has chosen: the first keeps it.
        self.by_peer_index.entry(clear.index).or_insert(id);
        let early = (ephemeral, candidate.early);
        let mut next = Association::accepted(now, indices, &message, &keys, early);
        next.refuses_early = candidate.refuses_early;
        session.key = candidate.key;
        session.key_id = clear.key_id;
        let dropped = session.associations.accepted(next);
        self.unbind(dropped);
        self.by_index.insert(index, id);
        self.by_ephemeral.insert(ephemeral, id);
        self.replays.remember(now, ephemeral);
        self.offers.accepted(&candidate.unread);
        Some(index)
    }

    /// Answers an offer of somebody for whom there is no capacity, and keeps nothing of it but for its
    /// repeats: the answers to these are sealed under the same keys, by which nothing else goes. None is
    /// longer than what it answers.
    pub(crate) fn turn_away(
        &mut self,
        now: Time,
        mut candidate: Candidate,
        (source, answer): (&SourceDatagram, Answer),
        statistics: &mut TransportStatistics,
    ) -> Option<Box<[u8]>> {
        if self.offers.sealer(now, &candidate.unread).is_none() {
            let responder = self.responder(now, &mut candidate, statistics)?;
            let sealer = self.turned_away(now, &candidate, responder)?;
            self.offers.turned_away(now, &candidate, sealer);
        }
        // Counted over all datagrams of this kind, so that no nonce comes twice.
        let (_, stamp) = self.stateless(now, candidate.unread.clear.index);
        let sealer = self.offers.sealer(now, &candidate.unread)?;
        let mut datagram = vec![0; source.bytes];
        let bytes = sealer.write(stamp, &mut datagram, |body| {
            answer.write(&source.asked(now), None, core::iter::empty(), body)
        });
        datagram.truncate(bytes.ok()?);
        Some(datagram.into())
    }

    /// Makes keys for nothing but the answer that there is no capacity.
    fn turned_away(
        &mut self,
        now: Time,
        candidate: &Candidate,
        responder: Responder,
    ) -> Option<Sealer> {
        let acceptance = Acceptance {
            index: self.secrets.number(),
            conversation: self.secrets.number(),
            uptime_us: u64::try_from(self.uptime(now).as_micros()).unwrap_or(NOBODY_BEFORE),
        };
        let (message, keys) = responder.accept(&acceptance).ok()?;
        let sealer = Sealer::sealed(candidate.unread.clear.index, &keys.to_initiator);
        Some(sealer.with_prefix(Form::Acceptance, message.to_vec().into()))
    }

    /// Makes the token that an offer is to be made again with.
    pub(crate) fn mint_retry(&mut self, now: Time, ip: IpAddr, index: u64) -> [u8; TOKEN_BYTES] {
        self.tokens.mint(now.as_nanos(), ip, index, RETRY_LIFETIME)
    }
}

/// By what we read an offer, if it is made for such as us.
pub(super) fn responding<'k>(
    security: &'k Security,
    clear: &Clear,
) -> Option<(Gate, Credentials<'k>)> {
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
