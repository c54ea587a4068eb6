//! First contact: sessions, keys, address validation and stateless retry tokens.
//!
//! The caller that sends a message's symbol becomes a peer at once, so that no round trip is lost; until
//! it has shown a token it is sent at most three times what it sent (RFC 9000 §8.1), and shares a
//! small quota with others of whom as little is known. With keys, its first flight brings an offer,
//! and it is a peer if that is authentic (`sealed`); without, anybody is.

mod initiator;
mod responder;
mod sealed;
mod validation;

use core::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};
use std::collections::HashMap;

use chacha20::ChaCha20Rng;
use cloudburst_security::{
    Addresses, Associations, KeyMismatches, OfferBudgets, Purpose, Randomness, Remotes,
    ReplayStore, Secrets, Security,
};
use foldhash::fast::FixedState;
use rand_core::Rng;

pub(super) use self::{
    initiator::{Restarted, Retried},
    responder::{Candidate, Judged},
    sealed::OpenedSealed,
};
use super::{
    config::TransportConfig,
    control::SourceDatagram,
    event::{PeerId, TransportId},
    packet::{
        Body, EPHEMERAL_BYTES, Framing, Header, OpenError, Opener, PublicKey, STATELESS_PATH,
        Sealer, Stamp, TokenMint,
    },
    peer_map::PeerMap,
    statistics::{Refusals, release, tally},
    time::Time,
};

/// Handshake with all peers: sessions, keys, address validation and stateless retry tokens.
#[derive(Debug)]
pub(super) struct Handshake {
    started: Time,
    /// For how long nobody ran at our addresses before that, with the same key.
    quiet_before: Duration,
    /// Draw session numbers, and those that messages begin with.
    random_sessions: ChaCha20Rng,
    random_messages: ChaCha20Rng,
    /// Draws what handshakes need: ephemeral keys, early secrets, indices.
    secrets: Secrets,
    security: Security,
    /// The transport's number, in the ids of its peers.
    transport: TransportId,
    tokens: TokenMint,
    addresses: Addresses,
    replays: ReplayStore,
    offer_budgets: OfferBudgets,
    stateless: Stateless,
    sessions: PeerMap<Session>,
    /// By index: the generation of the next peer there. Indices that are free come last first.
    generations: Vec<u32>,
    free: Vec<u32>,
    by_session: HashMap<u64, PeerId, FixedState>,
    by_own_session: HashMap<u64, PeerId, FixedState>,
    /// By what datagrams state that are sealed.
    by_index: HashMap<u64, PeerId, FixedState>,
    /// By what datagrams state that we send to those who came to us.
    by_peer_index: HashMap<u64, PeerId, FixedState>,
    by_ephemeral: HashMap<[u8; EPHEMERAL_BYTES], PeerId, FixedState>,
    /// Those that we chose ourselves.
    by_remote: HashMap<SocketAddr, PeerId, FixedState>,
    unvalidated: usize,
    /// Those whose keys are not ours.
    pub(super) mismatches: KeyMismatches,
}

/// A peer as the packet layer knows it.
#[derive(Debug)]
struct Session {
    /// Our session with it: no two peers see the same.
    own: u64,
    /// Its session, once a datagram of it has come.
    session: Option<u64>,
    /// Seals what it is sent, at an endpoint without keys.
    plain: Option<Sealer>,
    /// What datagrams are sealed with, at any other.
    associations: Associations,
    /// Who it is, where key pairs tell; and else by which shared key it came.
    key: Option<PublicKey>,
    key_id: u8,
    /// Whether we chose it ourselves: then it stays.
    is_ours: bool,
    /// Whether it counts among those that have shown a token.
    is_validated: bool,
    /// When it was asked for a token last.
    challenged_at: Option<Time>,
    /// Where it sends from, if it came by itself.
    remotes: Remotes,
    heard_at: Time,
}

/// How those are answered of whom nothing is kept.
#[derive(Debug)]
struct Stateless {
    /// The session of plain ones.
    session: u64,
    sequence: u64,
}

/// What becomes of a stranger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// It is a peer that we had asked, heard of for the first time.
    Known(PeerId),
    /// It may become a peer.
    Welcome,
    /// It has to show a token first.
    NeedsToken,
    /// Its message has to wait: there are as many peers as the quota allows.
    Busy(u64),
    /// It has sent nothing that makes it a peer.
    Nobody,
}

impl Handshake {
    /// Returns a seed for hashes besides.
    pub(super) fn new(config: &TransportConfig, random: &Randomness, now: Time) -> (Self, u64) {
        let mut secret = [0; 32];
        random.stream(Purpose::TokenSecret).fill_bytes(&mut secret);
        let hash_seed = random.stream(Purpose::HashSeed).next_u64();
        let mut random_sessions = random.stream(Purpose::Sessions);
        let quotas = &config.quotas;
        let addresses = quotas.unvalidated_peers.saturating_mul(2);
        let hasher = || FixedState::with_seed(hash_seed);
        let handshake = Self {
            started: now,
            quiet_before: config.quiet_before,
            tokens: TokenMint::new(secret, now.as_nanos()),
            addresses: Addresses::new(addresses, quotas.answers_per_s, hash_seed),
            replays: ReplayStore::new(now, config.unix_time, hash_seed),
            offer_budgets: OfferBudgets::new(now, hash_seed),
            stateless: Stateless {
                session: random_sessions.next_u64(),
                sequence: 0,
            },
            security: config.security.clone(),
            transport: TransportId(random.stream(Purpose::Transports).next_u32()),
            secrets: Secrets::new(random.stream(Purpose::Handshakes)),
            random_sessions,
            random_messages: random.stream(Purpose::Messages),
            sessions: PeerMap::default(),
            generations: Vec::new(),
            free: Vec::new(),
            by_session: HashMap::with_hasher(hasher()),
            by_own_session: HashMap::with_hasher(hasher()),
            by_index: HashMap::with_hasher(hasher()),
            by_peer_index: HashMap::with_hasher(hasher()),
            by_ephemeral: HashMap::with_hasher(hasher()),
            by_remote: HashMap::with_hasher(hasher()),
            unvalidated: 0,
            mismatches: KeyMismatches::default(),
        };
        (handshake, hash_seed)
    }

    /// A new peer; ours, if its session is not known. Returns the number of our first message.
    pub(super) fn add_peer(
        &mut self,
        now: Time,
        session: Option<u64>,
        key: Option<PublicKey>,
    ) -> (PeerId, u64) {
        let own = self.random_sessions.next_u64();
        // Far from the end: numbers do not wrap.
        let first_message = self.random_messages.next_u64() >> 1;
        let index = self.free.pop().unwrap_or_else(|| {
            let index = self.generations.len();
            self.generations.push(0);
            index as u32
        });
        let id = PeerId::of(self.transport, index, self.generations[index as usize]);
        let is_ours = session.is_none();
        self.unvalidated = self.unvalidated.saturating_add(usize::from(!is_ours));
        self.by_own_session.insert(own, id);
        if let Some(session) = session {
            self.by_session.insert(session, id);
        }
        let peer = Session {
            own,
            session,
            plain: self.is_unprotected().then(|| Sealer::plain(own)),
            associations: Associations::default(),
            key,
            key_id: 0,
            is_ours,
            is_validated: is_ours,
            challenged_at: None,
            remotes: Remotes::default(),
            heard_at: now,
        };
        self.sessions.insert(id, peer);
        (id, first_message)
    }

    pub(super) fn remove_peer(&mut self, id: PeerId) {
        let Some(mut peer) = self.sessions.remove(id) else {
            return;
        };
        // An index whose generations are used up is not used again: an id that was kept would come
        // to stand for somebody else.
        let generation = &mut self.generations[id.index as usize];
        if let Some(next) = generation.checked_add(1) {
            *generation = next;
            self.free.push(id.index);
        }
        release(&mut self.unvalidated, usize::from(!peer.is_validated));
        self.by_own_session.remove(&peer.own);
        if let Some(session) = peer
            .session
            .filter(|_| self.is_unprotected() || !peer.is_ours)
        {
            self.by_session.remove(&session);
        }
        self.by_remote.retain(|_, known| *known != id);
        self.unbind_all(&mut peer);
    }

    /// Whether datagrams are neither encrypted nor authenticated.
    pub(super) fn is_unprotected(&self) -> bool {
        self.security.is_unprotected()
    }

    /// Whether we can begin to speak to a peer of this key, or of none.
    pub(super) fn can_begin(&self, key: Option<&PublicKey>) -> bool {
        !matches!(self.security, Security::KeyPair(_)) || key.is_some()
    }

    /// Who a peer is, where key pairs tell.
    pub(super) fn peer_key(&self, id: PeerId) -> Option<PublicKey> {
        self.sessions.get(id)?.key
    }

    /// Our session with a peer, and the peer's with us if that is known.
    pub(super) fn sessions_with(&self, id: PeerId) -> Option<(u64, Option<u64>)> {
        let peer = self.sessions.get(id)?;
        Some((peer.own, peer.session))
    }

    pub(super) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// The number in the ids of all peers.
    pub(super) fn transport(&self) -> TransportId {
        self.transport
    }

    pub(super) fn peers(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.sessions.iter().map(|(id, _)| id)
    }

    /// Those that take what is sent to them without a handshake before.
    pub(super) fn peers_in_touch(&self, now: Time) -> Vec<PeerId> {
        let in_touch = |id: &PeerId| self.is_in_touch(now, *id);
        self.peers().filter(in_touch).collect()
    }

    pub(super) fn contains(&self, id: PeerId) -> bool {
        self.sessions.contains(id)
    }

    pub(super) fn is_ours(&self, id: PeerId) -> bool {
        self.sessions.get(id).is_some_and(|peer| peer.is_ours)
    }

    /// Whether a peer is known, and has shown no token.
    pub(super) fn is_unvalidated(&self, id: PeerId) -> bool {
        self.sessions.get(id).is_some_and(|peer| !peer.is_validated)
    }

    /// Since when nothing was heard of a peer, if it came by itself.
    pub(super) fn silent_since(&self, id: PeerId) -> Option<Time> {
        let peer = self.sessions.get(id)?;
        (!peer.is_ours).then_some(peer.heard_at)
    }

    pub(super) fn by_session(&self, session: u64) -> Option<PeerId> {
        self.by_session.get(&session).copied()
    }

    pub(super) fn by_remote(&self, remote: SocketAddr) -> Option<PeerId> {
        self.by_remote.get(&remote).copied()
    }

    pub(super) fn bind_remote(&mut self, remote: SocketAddr, id: PeerId) {
        self.by_remote.insert(remote, id);
    }

    /// Some of a peer's paths lead to other addresses than before.
    pub(super) fn bind_remotes(&mut self, remotes: impl Iterator<Item = SocketAddr>, id: PeerId) {
        self.by_remote.extend(remotes.map(|remote| (remote, id)));
    }

    /// A datagram came, of which nothing is known yet.
    pub(super) fn received(&mut self, now: Time, ip: IpAddr, bytes: usize) {
        self.addresses.received(now, ip, bytes);
    }

    /// Opens a plain datagram, and returns its body. What cannot be opened is counted.
    pub(super) fn open_plain<'d>(
        &self,
        header: &Header,
        datagram: &'d mut [u8],
        refused: &mut Refusals,
    ) -> Option<&'d [u8]> {
        match Opener::plain().open(header, datagram) {
            Ok(body) => Some(body),
            Err(OpenError::Damaged) => {
                tally(&mut refused.damaged, 1);
                None
            }
            Err(_) => {
                tally(&mut refused.malformed, 1);
                None
            }
        }
    }

    /// An authentic datagram of a peer came from there.
    pub(super) fn heard(&mut self, now: Time, id: PeerId, remote: SocketAddr, bytes: usize) {
        let Some(peer) = self.sessions.get_mut(id) else {
            return;
        };
        peer.heard_at = now;
        if peer.plain.is_none() {
            peer.associations.heard(now);
            if !peer.is_ours {
                peer.remotes.received(now, remote, bytes);
            }
            self.expire(now, id);
        }
    }

    /// So many datagrams are sent to a peer that ask for an answer.
    pub(super) fn asked(&mut self, now: Time, id: PeerId, datagrams: u32) {
        if let Some(peer) = self.sessions.get_mut(id) {
            peer.associations.asked(now, datagrams.into());
        }
    }

    /// The session of ours that an answer names, which only its peer knows, and whose it is. With
    /// keys, an answer counts from the peer alone whose keys it came by.
    pub(super) fn answered_session(
        &self,
        body: &[u8],
        from: Option<PeerId>,
    ) -> Option<(u64, PeerId)> {
        let own = u64::from_be_bytes(*body.first_chunk()?);
        let peer = *self.by_own_session.get(&own)?;
        (self.is_unprotected() || from == Some(peer)).then_some((own, peer))
    }

    /// Whom we have sent a datagram with this header, by a path to this address.
    pub(super) fn sent_to(&self, header: &Header, remote: SocketAddr) -> Option<PeerId> {
        if self.is_unprotected() {
            return self.by_own_session.get(&header.session).copied();
        }
        let chosen = self.by_remote(remote).filter(|id| {
            let session = self.sessions.get(*id);
            session.is_some_and(|it| it.associations.seals_for(header.session))
        });
        chosen.or_else(|| self.by_peer_index.get(&header.session).copied())
    }

    /// Whether an answer is from the session that a peer's datagrams come by: from
    /// now on, if none was known. A peer keeps the one that it has, even if
    /// another answers for it. It may have been restarted, and then begins again
    /// as another peer; or each end has begun by itself and got to know the other
    /// twice, and what is done of the one session is not done of the other.
    pub(super) fn recognise(&mut self, header: &Header, id: PeerId) -> bool {
        // Nobody has the session without state.
        let is_first = header.path != STATELESS_PATH
            && self
                .sessions
                .get(id)
                .is_some_and(|peer| peer.session.is_none());
        is_first && self.bind_session(header.session, id)
    }

    /// A peer's datagrams bear this session number, if none was known before.
    fn bind_session(&mut self, session: u64, id: PeerId) -> bool {
        let Some(peer) = self.sessions.get_mut(id) else {
            return false;
        };
        if peer.session.is_some() {
            return false;
        }
        peer.session = Some(session);
        self.by_session.insert(session, id);
        true
    }

    /// Decides on a stranger, by what it sends.
    pub(super) fn admit(
        &mut self,
        now: Time,
        config: &TransportConfig,
        source: &SourceDatagram,
        body: &Body<'_>,
        refused: &mut Refusals,
    ) -> Admission {
        let message = match body {
            Body::Symbol(symbol) => {
                // Somebody we have asked may send before we have heard its answer.
                if let Some(peer) = self.by_remote(source.four_tuple.remote)
                    && self.bind_session(source.asker, peer)
                {
                    return Admission::Known(peer);
                }
                if self.needs_token_first(config) {
                    tally(&mut refused.not_validated, 1);
                    return Admission::NeedsToken;
                }
                Some(symbol.message)
            }
            // It is for this session number alone: others may pretend to be at the same address.
            Body::Token(token) if self.is_token_good(now, source, token) => None,
            _ => return Admission::Nobody,
        };
        if self.len() < config.quotas.peers {
            return Admission::Welcome;
        }
        tally(&mut refused.too_many_peers, 1);
        message.map_or(Admission::Nobody, Admission::Busy)
    }

    /// What seals datagrams to a peer now; nothing, while there are no keys for it.
    pub(super) fn sealer(&self, now: Time, id: PeerId) -> Option<&Sealer> {
        let peer = self.sessions.get(id)?;
        match &peer.plain {
            Some(sealer) => Some(sealer),
            None => peer.associations.sealer(now),
        }
    }

    /// What datagrams to a peer have besides their bodies now.
    pub(super) fn framing(&self, now: Time, id: PeerId) -> Framing {
        let peer = self.sessions.get(id);
        let sealed = peer.filter(|peer| peer.plain.is_none());
        sealed.map_or(Framing::PLAIN, |peer| peer.associations.framing(now))
    }

    /// Seals what is sent to somebody of whom nothing is kept: who made an offer of this index, or
    /// sent something plain.
    pub(super) fn stateless(&mut self, now: Time, index: u64) -> (Sealer, Stamp) {
        let sealer = if self.is_unprotected() {
            Sealer::plain(self.stateless.session)
        } else {
            Sealer::retry(index)
        };
        let stamp = Stamp {
            path: STATELESS_PATH,
            sent_us: now.as_wire_micros(),
            sequence: self.stateless.sequence,
        };
        self.stateless.sequence = self.stateless.sequence.saturating_add(1);
        (sealer, stamp)
    }
}

#[cfg(test)]
mod tests;
