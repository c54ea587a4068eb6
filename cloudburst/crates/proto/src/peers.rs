//! All peers, and how each is found.

use core::net::SocketAddr;
use std::collections::HashMap;

use foldhash::fast::FixedState;

use super::{event::PeerId, peer::Peer};

/// Peers by number, by either session and by address.
#[derive(Debug)]
pub(super) struct Peers {
    slots: Vec<Slot>,
    free: Vec<u32>,
    by_session: HashMap<u64, PeerId, FixedState>,
    by_own_session: HashMap<u64, PeerId, FixedState>,
    /// Those that we chose ourselves.
    by_remote: HashMap<SocketAddr, PeerId, FixedState>,
    unvalidated: usize,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    peer: Option<Box<Peer>>,
}

impl Peers {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            by_session: HashMap::with_hasher(FixedState::with_seed(seed)),
            by_own_session: HashMap::with_hasher(FixedState::with_seed(seed)),
            by_remote: HashMap::with_hasher(FixedState::with_seed(seed)),
            unvalidated: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Of those, peers that have not shown a token.
    pub(super) fn unvalidated(&self) -> usize {
        self.unvalidated
    }

    pub(super) fn add(&mut self, peer: Peer) -> PeerId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                peer: None,
            });
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        let id = PeerId {
            index,
            generation: slot.generation,
        };
        self.unvalidated += usize::from(!peer.is_validated);
        self.by_own_session.insert(peer.own_session(), id);
        if let Some(session) = peer.session {
            self.by_session.insert(session, id);
        }
        slot.peer = Some(Box::new(peer));
        id
    }

    pub(super) fn remove(&mut self, id: PeerId) -> Option<Box<Peer>> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation != id.generation {
            return None;
        }
        let peer = slot.peer.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.index);
        self.unvalidated -= usize::from(!peer.is_validated);
        self.by_own_session.remove(&peer.own_session());
        if let Some(session) = peer.session {
            self.by_session.remove(&session);
        }
        self.by_remote.retain(|_, known| *known != id);
        Some(peer)
    }

    pub(super) fn get(&self, id: PeerId) -> Option<&Peer> {
        let slot = self.slots.get(id.index as usize)?;
        let peer = slot.peer.as_deref();
        peer.filter(|_| slot.generation == id.generation)
    }

    pub(super) fn get_mut(&mut self, id: PeerId) -> Option<&mut Peer> {
        let slot = self.slots.get_mut(id.index as usize)?;
        let peer = slot.peer.as_deref_mut();
        peer.filter(|_| slot.generation == id.generation)
    }

    pub(super) fn by_session(&self, session: u64) -> Option<PeerId> {
        self.by_session.get(&session).copied()
    }

    pub(super) fn by_own_session(&self, session: u64) -> Option<PeerId> {
        self.by_own_session.get(&session).copied()
    }

    pub(super) fn by_remote(&self, remote: SocketAddr) -> Option<PeerId> {
        self.by_remote.get(&remote).copied()
    }

    pub(super) fn bind_remote(&mut self, remote: SocketAddr, id: PeerId) {
        self.by_remote.insert(remote, id);
    }

    /// A peer's datagrams come by this session, if none was known before.
    pub(super) fn bind_session(&mut self, session: u64, id: PeerId) -> bool {
        let Some(peer) = self.get_mut(id) else {
            return false;
        };
        if peer.session.is_some() {
            return false;
        }
        peer.session = Some(session);
        self.by_session.insert(session, id);
        true
    }

    /// The peer has shown a token.
    pub(super) fn validate(&mut self, id: PeerId) {
        if let Some(peer) = self.get_mut(id)
            && !peer.is_validated
        {
            peer.is_validated = true;
            self.unvalidated -= 1;
        }
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Peer> {
        self.slots
            .iter_mut()
            .filter_map(|slot| slot.peer.as_deref_mut())
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            slot.peer.as_ref().map(|_| PeerId {
                index: index as u32,
                generation: slot.generation,
            })
        })
    }
}
