//! Datagrams of endpoints with keys: what opens and what seals them.

use cloudburst_security::{Association, Security, Slot};

use super::{Handshake, Session};
use crate::{
    control::Question,
    event::PeerId,
    packet::{ACCEPTANCE_BYTES, Form, Header, Hello, Sealer, hello_bytes},
    time::Time,
};

/// A datagram under keys that are known.
pub(crate) struct OpenedSealed<'d> {
    /// The index of the keys that its answer is sealed with.
    pub(crate) keys: u64,
    pub(crate) body: &'d [u8],
}

impl Handshake {
    /// Whose datagrams state this index.
    pub(crate) fn by_index(&self, index: u64) -> Option<PeerId> {
        self.by_index.get(&index).copied()
    }

    /// Whose offer this is, if it was accepted already.
    pub(crate) fn by_offer(&self, header: &Header, datagram: &[u8]) -> Option<PeerId> {
        let hello = Hello::parse(header, datagram).ok()?;
        self.by_ephemeral.get(hello.ephemeral()?).copied()
    }

    /// Opens a datagram that states an index of ours.
    pub(crate) fn open_data<'d>(
        &mut self,
        now: Time,
        id: PeerId,
        header: &Header,
        datagram: &'d mut [u8],
    ) -> Option<OpenedSealed<'d>> {
        let session = self.sessions.get_mut(id)?;
        let keys = header.session;
        let (slot, opener) = session.associations.opener(now, keys)?;
        let prefix_bytes = match header.form {
            Form::Acceptance => ACCEPTANCE_BYTES,
            _ => 0,
        };
        let body = opener.open_behind(prefix_bytes, header, datagram).ok()?;
        if slot == Slot::Next {
            let dropped = session.associations.confirm(now);
            self.unbind(dropped);
        }
        Some(OpenedSealed { keys, body })
    }

    /// Opens a datagram with an offer that was accepted already.
    pub(crate) fn open_early<'d>(
        &self,
        now: Time,
        id: PeerId,
        header: &Header,
        datagram: &'d mut [u8],
    ) -> Option<OpenedSealed<'d>> {
        let hello = Hello::parse(header, datagram).ok()?;
        let prefix_bytes = hello_bytes(hello.clear.pattern);
        let associations = &self.sessions.get(id)?.associations;
        let (keys, opener) = associations.early_opener(now, hello.ephemeral()?)?;
        let body = opener.open_behind(prefix_bytes, header, datagram).ok()?;
        Some(OpenedSealed { keys, body })
    }

    /// What seals a question: one that is to replace keys takes the offer with it.
    pub(crate) fn question_sealer(
        &self,
        now: Time,
        id: PeerId,
        question: Question,
    ) -> Option<&Sealer> {
        match question {
            Question::Offer { .. } => self.sessions.get(id)?.associations.offer_sealer(),
            _ => self.sealer(now, id),
        }
    }

    /// What seals the answer to what came by these keys.
    pub(crate) fn answer_sealer(&self, now: Time, id: PeerId, keys: u64) -> Option<&Sealer> {
        let session = self.sessions.get(id)?;
        match &session.plain {
            Some(sealer) => Some(sealer),
            None => session.associations.answer_sealer(now, keys),
        }
    }

    /// Whether messages that come with the offer that led to these keys have to come again.
    pub(crate) fn refuses_early(&self, id: PeerId, keys: u64) -> bool {
        let session = self.sessions.get(id);
        let mut associations = session.into_iter().flat_map(|it| it.associations.iter());
        associations.any(|it| it.index == keys && it.refuses_early)
    }

    /// Whether a peer takes what is sent to it without a handshake before; without keys, any does that
    /// was heard of.
    pub(crate) fn is_in_touch(&self, now: Time, id: PeerId) -> bool {
        let Some(session) = self.sessions.get(id) else {
            return false;
        };
        match session.plain {
            Some(_) => session.session.is_some(),
            None => session.associations.is_in_touch(now),
        }
    }

    /// When a peer's keys have to be taken out, whether it is heard of or not.
    pub(crate) fn worn_at(&self, id: PeerId) -> Option<Time> {
        self.sessions.get(id)?.associations.worn_at()
    }

    /// Takes out a peer's keys that are worn.
    pub(crate) fn expire(&mut self, now: Time, id: PeerId) {
        while let Some(session) = self.sessions.get_mut(id)
            && let Some(worn) = session.associations.expire(now)
        {
            self.unbind(Some(worn));
        }
    }

    /// Keys are gone: nobody finds them any more.
    pub(super) fn unbind(&mut self, dropped: Option<Association>) {
        if let Some(dropped) = dropped {
            self.by_index.remove(&dropped.index);
            self.by_peer_index.remove(&dropped.peer_index());
            if let Some((ephemeral, _)) = dropped.early {
                self.by_ephemeral.remove(&ephemeral);
            }
        }
    }

    /// All of a peer's keys are gone.
    pub(super) fn unbind_all(&mut self, session: &mut Session) {
        let associations = core::mem::take(&mut session.associations);
        if let Some(pending) = &associations.pending {
            self.by_index.remove(&pending.index);
        }
        for dropped in associations.into_all() {
            self.unbind(Some(dropped));
        }
    }

    /// Takes over other keys, or another list of those who may speak to us. Peers whose key is not
    /// among them any more have to begin again.
    pub(crate) fn set_security(&mut self, security: Security) {
        self.security = security;
        let ids: Vec<PeerId> = self.peers().collect();
        for id in ids {
            let Some(mut session) = self.sessions.remove(id) else {
                continue;
            };
            if !is_still_good(&self.security, &session) {
                self.unbind_all(&mut session);
            }
            self.sessions.insert(id, session);
        }
    }
}

/// Whether a peer's keys were agreed upon by credentials that are still ours.
fn is_still_good(security: &Security, session: &Session) -> bool {
    match security {
        Security::KeyPair(identity) => {
            session.is_ours
                || session
                    .key
                    .is_some_and(|key| identity.allowed.contains(&key))
        }
        Security::SharedKeys(keys) => keys.get(session.key_id).is_some(),
        other => other.is_unprotected(),
    }
}
