//! First contact: sessions, keys, address validation and stateless retry tokens.
//!
//! The caller that sends a message's symbol becomes a peer at once, so that no round trip is lost; until
//! it has shown a token it is sent at most three times what it sent (RFC 9000 §8.1), and shares a
//! small quota with others of whom as little is known.

use core::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};
use std::collections::HashMap;

use chacha20::ChaCha20Rng;
use cloudburst_security::{Addresses, Purpose, Randomness, Verdict};
use foldhash::fast::FixedState;
use rand_core::Rng;

use super::{
    config::TransportConfig,
    control::SourceDatagram,
    event::PeerId,
    packet::{
        Body, Header, Keyring, OpenError, Opener, STATELESS_PATH, Sealer, Stamp, TOKEN_BYTES,
        TokenBody, TokenMint,
    },
    peer_map::PeerMap,
    statistics::Refusals,
    time::Time,
};

/// Keys of a peer whose ciphers are kept.
const OPENERS: usize = 4;
/// How often a peer is asked for a token.
const CHALLENGE_PAUSE: Duration = Duration::from_millis(50);
/// For how long a token is good.
const TOKEN_LIFETIME: Duration = Duration::from_secs(60);

/// Handshake with all peers: sessions, keys, address validation and stateless retry tokens.
#[derive(Debug)]
pub(super) struct Handshake {
    /// Draw session numbers, and those that messages begin with.
    random_sessions: ChaCha20Rng,
    random_messages: ChaCha20Rng,
    keys: Keyring,
    tokens: TokenMint,
    addresses: Addresses,
    stateless: Stateless,
    sessions: PeerMap<Session>,
    /// By index: the generation of the next peer there. Indices that are free come last first.
    generations: Vec<u32>,
    free: Vec<u32>,
    by_session: HashMap<u64, PeerId, FixedState>,
    by_own_session: HashMap<u64, PeerId, FixedState>,
    /// Those that we chose ourselves.
    by_remote: HashMap<SocketAddr, PeerId, FixedState>,
    unvalidated: usize,
}

/// A peer as the packet layer knows it.
#[derive(Debug)]
struct Session {
    /// Seals what it is sent, as our session with it: no two peers see the same.
    sealer: Sealer,
    /// Its session, once a datagram of it has come.
    session: Option<u64>,
    /// Opens its datagrams, by key; the one used last in front.
    openers: Vec<Opener>,
    /// Whether we chose it ourselves: then it stays.
    is_ours: bool,
    /// Whether it counts among those that have shown a token.
    is_validated: bool,
    /// When it was asked for a token last.
    challenged_at: Option<Time>,
    heard_at: Time,
}

/// How those are answered of whom nothing is kept.
#[derive(Debug)]
struct Stateless {
    sealer: Sealer,
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
        let addresses = 2 * quotas.unvalidated_peers;
        let hasher = || FixedState::with_seed(hash_seed);
        let handshake = Self {
            tokens: TokenMint::new(secret, now.as_nanos()),
            addresses: Addresses::new(addresses, quotas.answers_per_s, hash_seed),
            stateless: Stateless {
                sealer: config.keys.sealer(random_sessions.next_u64()),
                sequence: 0,
            },
            keys: config.keys.clone(),
            random_sessions,
            random_messages: random.stream(Purpose::Messages),
            sessions: PeerMap::default(),
            generations: Vec::new(),
            free: Vec::new(),
            by_session: HashMap::with_hasher(hasher()),
            by_own_session: HashMap::with_hasher(hasher()),
            by_remote: HashMap::with_hasher(hasher()),
            unvalidated: 0,
        };
        (handshake, hash_seed)
    }

    /// A new peer; ours, if its session is not known. Returns the number of our first message.
    pub(super) fn add_peer(&mut self, now: Time, session: Option<u64>) -> (PeerId, u64) {
        let sealer = self.keys.sealer(self.random_sessions.next_u64());
        // Far from the end: numbers do not wrap.
        let first_message = self.random_messages.next_u64() >> 1;
        let index = self.free.pop().unwrap_or_else(|| {
            self.generations.push(0);
            (self.generations.len() - 1) as u32
        });
        let id = PeerId::new(index, self.generations[index as usize]);
        let is_ours = session.is_none();
        self.unvalidated += usize::from(!is_ours);
        self.by_own_session.insert(sealer.session(), id);
        if let Some(session) = session {
            self.by_session.insert(session, id);
        }
        let peer = Session {
            sealer,
            session,
            openers: Vec::new(),
            is_ours,
            is_validated: is_ours,
            challenged_at: None,
            heard_at: now,
        };
        self.sessions.insert(id, peer);
        (id, first_message)
    }

    pub(super) fn remove_peer(&mut self, id: PeerId) {
        let Some(peer) = self.sessions.remove(id) else {
            return;
        };
        let generation = &mut self.generations[id.index as usize];
        *generation = generation.wrapping_add(1);
        self.free.push(id.index);
        self.unvalidated -= usize::from(!peer.is_validated);
        self.by_own_session.remove(&peer.sealer.session());
        if let Some(session) = peer.session {
            self.by_session.remove(&session);
        }
        self.by_remote.retain(|_, known| *known != id);
    }

    pub(super) fn len(&self) -> usize {
        self.sessions.len()
    }

    pub(super) fn peers(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.sessions.iter().map(|(id, _)| id)
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

    /// Opens a datagram, and returns its body and what opened it, unless the peer has that
    /// already. What cannot be opened is counted.
    pub(super) fn open<'d>(
        &self,
        peer: Option<PeerId>,
        header: &Header,
        datagram: &'d mut [u8],
        refused: &mut Refusals,
    ) -> Option<(&'d [u8], Option<Opener>)> {
        let kept = self.kept_opener(peer, header);
        let new = match kept {
            Some(_) => None,
            None => match self.keys.opener(header.key_id, header.session) {
                Ok(opener) => Some(opener),
                Err(_) => {
                    refused.unknown_key += 1;
                    return None;
                }
            },
        };
        match new.as_ref().or(kept)?.open(header, datagram) {
            Ok(body) => Some((body, new)),
            Err(OpenError::Damaged) => {
                refused.damaged += 1;
                None
            }
            Err(_) => {
                refused.not_authentic += 1;
                None
            }
        }
    }

    fn kept_opener(&self, peer: Option<PeerId>, header: &Header) -> Option<&Opener> {
        let peer = self.sessions.get(peer?)?;
        let mut openers = peer.openers.iter();
        openers
            .find(|opener| opener.key_id() == header.key_id && opener.session() == header.session)
    }

    /// A datagram of a peer was authentic.
    pub(super) fn heard(&mut self, now: Time, id: PeerId, opener: Option<Opener>) {
        let Some(peer) = self.sessions.get_mut(id) else {
            return;
        };
        peer.heard_at = now;
        if let Some(opener) = opener {
            peer.openers.truncate(OPENERS - 1);
            peer.openers.insert(0, opener);
        }
    }

    /// The session of ours that an answer names, which only its peer knows, and whose it is.
    pub(super) fn answered_session(&self, body: &[u8]) -> Option<(u64, PeerId)> {
        let own = u64::from_be_bytes(*body.first_chunk()?);
        Some((own, *self.by_own_session.get(&own)?))
    }

    /// The peer that a datagram of ours went to, by the session that it names.
    pub(super) fn sent_to(&self, header: &Header) -> Option<PeerId> {
        self.by_own_session.get(&header.session).copied()
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

    /// A peer's datagrams come by this session, if none was known before.
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
                let is_crowded = self.unvalidated >= config.quotas.unvalidated_peers;
                if config.require_validation || is_crowded {
                    refused.not_validated += 1;
                    return Admission::NeedsToken;
                }
                Some(symbol.message)
            }
            // It is for this session alone: others may pretend to be at the same address.
            Body::Token(token) if self.is_token_good(now, source, token) => None,
            _ => return Admission::Nobody,
        };
        if self.len() < config.quotas.peers {
            return Admission::Welcome;
        }
        refused.too_many_peers += 1;
        message.map_or(Admission::Nobody, Admission::Busy)
    }

    /// Whether a token is ours, and for who shows it.
    fn is_token_good(&mut self, now: Time, source: &SourceDatagram, body: &TokenBody) -> bool {
        let ip = source.four_tuple.remote.ip();
        let verdict = self
            .tokens
            .verify(now.as_nanos(), ip, source.asker, &body.token);
        verdict.is_ok()
    }

    /// Somebody shows a token: its address is valid from now on, and so is the peer that it is.
    pub(super) fn take_token(
        &mut self,
        now: Time,
        source: &SourceDatagram,
        body: &TokenBody,
        refused: &mut Refusals,
    ) -> Option<PeerId> {
        if !self.is_token_good(now, source, body) {
            refused.bad_token += 1;
            return None;
        }
        self.validate_address(now, source.four_tuple.remote.ip());
        let id = source.peer?;
        let peer = self.sessions.get_mut(id)?;
        self.unvalidated -= usize::from(!core::mem::replace(&mut peer.is_validated, true));
        Some(id)
    }

    /// Whether to ask for a token: a peer now and then, a stranger each time. Somebody
    /// else may pretend to be at the stranger's address, and must not use up
    /// what is meant for it.
    pub(super) fn is_challenge_due(&mut self, now: Time, peer: Option<PeerId>) -> bool {
        let Some(peer) = peer.and_then(|id| self.sessions.get_mut(id)) else {
            return true;
        };
        let is_recent = |at| now.since(at) < CHALLENGE_PAUSE;
        if peer.challenged_at.is_some_and(is_recent) {
            return false;
        }
        peer.challenged_at = Some(now);
        true
    }

    /// A peer has answered from an address. If we chose it, that validates the address: only who
    /// receives what we send there can name our session to us.
    /// If it is another's, an answer that is sealed shows that it receives there as before; one
    /// without a key shows nothing, and a token is asked for in time.
    pub(super) fn answered(&mut self, now: Time, id: PeerId, ip: IpAddr) {
        if self.is_ours(id) {
            self.validate_address(now, ip);
        } else if self.is_sealing(id) {
            self.addresses.renew(now, ip);
        }
    }

    /// Whether a peer at an address has to show a token: it never did, or what it showed is about
    /// to lapse (RFC 9000 §8.2: path validation may be done at any time).
    pub(super) fn needs_token(&self, now: Time, id: PeerId, ip: IpAddr) -> bool {
        let is_renewal_due = || !self.is_ours(id) && self.addresses.is_renewal_due(now, ip);
        self.is_unvalidated(id) || is_renewal_due()
    }

    /// An address was shown to receive what we send there (path validation).
    fn validate_address(&mut self, now: Time, ip: IpAddr) {
        self.addresses.validate(now, ip);
    }

    /// Bytes that may be sent to a peer at an address (anti-amplification limit): to one of our
    /// own choice, any.
    pub(super) fn credit(&self, now: Time, id: PeerId, ip: IpAddr) -> u64 {
        if self.is_ours(id) {
            return u64::MAX;
        }
        self.addresses.credit(now, ip)
    }

    /// Something was sent to a peer that did not ask for it.
    pub(super) fn sent(&mut self, id: PeerId, ip: IpAddr, bytes: usize) {
        if !self.is_ours(id) {
            self.addresses.sent(ip, bytes);
        }
    }

    /// Whether an answer may go to an address; if so it counts, and else why not does.
    pub(super) fn may_answer(
        &mut self,
        now: Time,
        ip: IpAddr,
        bytes: usize,
        refused: &mut Refusals,
    ) -> bool {
        match self.addresses.answer(now, ip, bytes) {
            Verdict::Go => return true,
            Verdict::Capped => refused.answers_capped += 1,
            Verdict::Amplifies => refused.amplification_capped += 1,
        }
        false
    }

    /// Makes a token for the sender of a datagram.
    pub(super) fn mint(&mut self, now: Time, ip: IpAddr, asker: u64) -> [u8; TOKEN_BYTES] {
        self.tokens.mint(now.as_nanos(), ip, asker, TOKEN_LIFETIME)
    }

    pub(super) fn sealer(&self, id: PeerId) -> Option<&Sealer> {
        self.sessions.get(id).map(|peer| &peer.sealer)
    }

    pub(super) fn is_sealing(&self, id: PeerId) -> bool {
        self.sealer(id).is_some_and(Sealer::is_sealing)
    }

    /// Seals what is sent to somebody of whom nothing is kept.
    pub(super) fn stateless(&mut self, now: Time) -> (&Sealer, Stamp) {
        let Stateless { sealer, sequence } = &mut self.stateless;
        *sequence += 1;
        let stamp = Stamp {
            path: STATELESS_PATH,
            sent_us: now.as_wire_micros(),
            sequence: *sequence - 1,
        };
        (sealer, stamp)
    }

    /// Uses other keys from now on. Sessions go on.
    pub(super) fn set_keys(&mut self, keys: Keyring) {
        for peer in self.sessions.values_mut() {
            peer.sealer = keys.sealer(peer.sealer.session());
            peer.openers.clear();
        }
        self.stateless.sealer = keys.sealer(self.stateless.sealer.session());
        self.keys = keys;
    }
}

#[cfg(test)]
mod tests;
