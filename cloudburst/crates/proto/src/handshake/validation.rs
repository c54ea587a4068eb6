//! Address validation (RFC 9000 §8): tokens, what may be sent before, and who is asked for one.

use core::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use cloudburst_security::Verdict;

use super::Handshake;
use crate::{
    config::TransportConfig,
    control::SourceDatagram,
    event::PeerId,
    packet::{TOKEN_BYTES, TokenBody},
    statistics::{Refusals, release, tally},
    time::Time,
};

/// How often a peer is asked for a token.
pub(super) const CHALLENGE_PAUSE: Duration = Duration::from_millis(50);
/// For how long a token is good.
const TOKEN_LIFETIME: Duration = Duration::from_secs(60);

impl Handshake {
    /// Whether nobody new is taken without a token.
    pub(crate) fn needs_token_first(&self, config: &TransportConfig) -> bool {
        config.require_validation || self.unvalidated >= config.quotas.unvalidated_peers
    }

    /// Whether a token is ours, and for who shows it.
    pub(super) fn is_token_good(
        &mut self,
        now: Time,
        source: &SourceDatagram,
        body: &TokenBody,
    ) -> bool {
        let remote = source.four_tuple.remote;
        let subject = self.token_subject(remote, source.asker);
        let verdict = self
            .tokens
            .verify(now.as_nanos(), remote.ip(), subject, &body.token);
        verdict.is_ok()
    }

    /// Somebody shows a token: its address is valid from now on, and so is the peer that it is.
    pub(crate) fn take_token(
        &mut self,
        now: Time,
        source: &SourceDatagram,
        body: &TokenBody,
        refused: &mut Refusals,
    ) -> Option<PeerId> {
        if !self.is_token_good(now, source, body) {
            tally(&mut refused.bad_token, 1);
            return None;
        }
        if self.is_unprotected() {
            self.validate_address(now, source.four_tuple.remote.ip());
        }
        self.validate_path(now, source.peer?, source.four_tuple.remote)
    }

    /// A peer has shown that it receives at an address.
    pub(crate) fn validate_path(
        &mut self,
        now: Time,
        id: PeerId,
        remote: SocketAddr,
    ) -> Option<PeerId> {
        let peer = self.sessions.get_mut(id)?;
        let is_new = !core::mem::replace(&mut peer.is_validated, true);
        release(&mut self.unvalidated, usize::from(is_new));
        if peer.plain.is_none() && !peer.is_ours {
            peer.remotes.validate(now, remote);
        }
        Some(id)
    }

    /// What a token is made for besides the address: with keys, a path has to be shown by itself
    /// (RFC 9000 §8.2), for another port may be another host's.
    pub(super) fn token_subject(&self, remote: SocketAddr, asker: u64) -> u64 {
        if self.is_unprotected() {
            return asker;
        }
        asker ^ u64::from(remote.port()).rotate_right(16)
    }

    /// Whether to ask for a token: a peer now and then, a stranger each time. Somebody
    /// else may pretend to be at the stranger's address, and must not use up
    /// what is meant for it.
    pub(crate) fn is_challenge_due(
        &mut self,
        now: Time,
        peer: Option<PeerId>,
        remote: SocketAddr,
    ) -> bool {
        let Some(peer) = peer.and_then(|id| self.sessions.get_mut(id)) else {
            return true;
        };
        if peer.plain.is_none() {
            return !peer.is_ours && peer.remotes.is_challenge_due(now, remote);
        }
        let is_recent = |at| now.since(at) < CHALLENGE_PAUSE;
        if peer.challenged_at.is_some_and(is_recent) {
            return false;
        }
        peer.challenged_at = Some(now);
        true
    }

    /// A peer has answered from an address. If we chose that and there are no keys, it is valid: only
    /// who receives what we send there can name our session to us. From any other the peer may
    /// name it as well; and with keys paths are validated one by one.
    pub(crate) fn answered(&mut self, now: Time, id: PeerId, remote: SocketAddr) {
        if self.is_unprotected() && self.by_remote(remote) == Some(id) {
            self.validate_address(now, remote.ip());
        }
    }

    /// Whether a peer at an address has to show a token: it never did, or what it showed is about
    /// to lapse (RFC 9000 §8.2: path validation may be done at any time).
    pub(crate) fn needs_token_of(&self, now: Time, id: PeerId, ip: IpAddr) -> bool {
        if !self.is_unprotected() {
            // Of each path by itself.
            return true;
        }
        let is_renewal_due = || !self.is_ours(id) && self.addresses.is_renewal_due(now, ip);
        self.is_unvalidated(id) || is_renewal_due()
    }

    /// An address was shown to receive what we send there (path validation).
    pub(super) fn validate_address(&mut self, now: Time, ip: IpAddr) {
        self.addresses.validate(now, ip);
    }

    /// Bytes that may be sent to a peer at an address (anti-amplification limit): to one of our
    /// own choice, any.
    pub(crate) fn credit(&self, now: Time, id: PeerId, remote: SocketAddr) -> u64 {
        match self.sessions.get(id) {
            Some(peer) if peer.is_ours => u64::MAX,
            Some(peer) if peer.plain.is_none() => peer.remotes.credit(now, remote),
            _ => self.addresses.credit(now, remote.ip()),
        }
    }

    /// Something was sent to a peer that did not ask for it.
    pub(crate) fn sent(&mut self, now: Time, id: PeerId, remote: SocketAddr, bytes: usize) {
        match self.sessions.get_mut(id) {
            Some(peer) if peer.is_ours => {}
            Some(peer) if peer.plain.is_none() => peer.remotes.sent(now, remote, bytes),
            _ => self.addresses.sent(now, remote.ip(), bytes),
        }
    }

    /// Whether an answer may go to an address; if so it counts, and else why not does.
    pub(crate) fn may_answer(
        &mut self,
        now: Time,
        (peer, remote): (Option<PeerId>, SocketAddr),
        bytes: usize,
        refused: &mut Refusals,
    ) -> bool {
        let sealed = peer.and_then(|id| self.sessions.get_mut(id));
        let sealed = sealed.filter(|peer| peer.plain.is_none() && !peer.is_ours);
        if sealed.is_some_and(|peer| !peer.remotes.take(now, remote, bytes)) {
            tally(&mut refused.amplification_capped, 1);
            return false;
        }
        match self.addresses.answer(now, remote.ip(), bytes) {
            Verdict::Go => return true,
            Verdict::Capped => tally(&mut refused.answers_capped, 1),
            Verdict::Amplifies => tally(&mut refused.amplification_capped, 1),
        }
        false
    }

    /// Makes a token for the sender of a datagram.
    pub(crate) fn mint(
        &mut self,
        now: Time,
        source: &SourceDatagram,
        remote: SocketAddr,
    ) -> [u8; TOKEN_BYTES] {
        if !self.is_unprotected() && source.peer.is_none() {
            return self.mint_retry(now, remote.ip(), source.asker);
        }
        let subject = self.token_subject(remote, source.asker);
        self.tokens
            .mint(now.as_nanos(), remote.ip(), subject, TOKEN_LIFETIME)
    }
}
