//! The time has come for something.

use core::{net::IpAddr, time::Duration};

use cloudburst_proto::{Event, FourTuple, GoneReason, MAX_LIFETIME, PeerId, Reason, SendId, Time};

use crate::{Due, IDLE, Paper, peer::Arrival};

/// How often a peer with messages that are remembered is looked after.
const EXPIRY_PAUSE: Duration = Duration::from_secs(1);
/// After this long without a word a peer that was not connected to is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(2 * MAX_LIFETIME.as_secs());

impl Paper {
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        while let Some(due) = self.timers.pop(now) {
            match due {
                Due::Message(id) => self.attend_message(now, id),
                Due::Id(peer, id) => self.pass_on(now, peer, id),
                Due::Peer(id) => self.attend_peer(now, id),
            }
        }
    }

    fn attend_message(&mut self, now: Time, id: SendId) {
        let Some(outgoing) = self.outgoing.get_mut(&id) else {
            return;
        };
        if outgoing.is_due(now, &mut self.timers) {
            let reason = if outgoing.is_spent() {
                Reason::BudgetSpent
            } else {
                Reason::TimedOut
            };
            self.give_up(now, id, reason);
        }
    }

    /// An id has rested: the message that waits for it begins.
    fn pass_on(&mut self, now: Time, id: PeerId, code: u8) {
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        let is_alive = |message| self.outgoing.contains_key(&SendId::new(id, message));
        if let Some(message) = peer.ids.pass_on(now, code, is_alive) {
            self.start(now, SendId::new(id, message));
        }
    }

    /// Sets the peer's alarm for what may be due next.
    pub(crate) fn look_after(&mut self, now: Time, id: PeerId) {
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        let mut due = Time::NEVER;
        if !peer.arrivals.is_empty() {
            due = now + EXPIRY_PAUSE;
        }
        if !peer.is_ours {
            due = due.min((peer.heard_at + FORGOTTEN_AFTER).max(now + EXPIRY_PAUSE));
        }
        peer.alarm.set_sooner(due, Due::Peer(id), &mut self.timers);
    }

    fn attend_peer(&mut self, now: Time, id: PeerId) {
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        if !peer.alarm.is_due(now, Due::Peer(id), &mut self.timers) {
            return;
        }
        let is_forgotten = now.since(peer.heard_at) >= FORGOTTEN_AFTER;
        let is_free = !peer.is_ours && peer.outgoing == 0;
        self.expire(now, id);
        if is_free && is_forgotten {
            return self.remove_peer(id, GoneReason::Silent);
        }
        self.look_after(now, id);
    }

    fn expire(&mut self, now: Time, id: PeerId) {
        let memory = self.memory();
        let Some(peer) = self.peers.get(&id) else {
            return;
        };
        let old = peer.arrivals.iter().filter(|(_, arrival)| match arrival {
            Arrival::UnderWay(incoming) => now.since(incoming.last_at) >= IDLE,
            Arrival::Done { last_at, .. } => now.since(*last_at) >= memory,
        });
        let mut old: Vec<(IpAddr, u8)> = old.map(|(key, _)| *key).collect();
        old.sort_unstable();
        let before = self.statistics.incoming_now;
        for key in old {
            self.drop_arrival(id, key);
        }
        self.statistics.refused.expired += before - self.statistics.incoming_now;
    }

    /// Forgets a peer and all that is under way to it and from it.
    pub(crate) fn forget_peer(&mut self, now: Time, id: PeerId) {
        let messages = self.outgoing.keys().filter(|message| message.peer() == id);
        let mut messages: Vec<SendId> = messages.copied().collect();
        messages.sort_unstable();
        for message in messages {
            self.give_up(now, message, Reason::Cancelled);
        }
        self.remove_peer(id, GoneReason::Forgotten);
    }

    /// Forgets a peer and all that is under way from it.
    fn remove_peer(&mut self, id: PeerId, reason: GoneReason) {
        let Some(peer) = self.peers.get(&id) else {
            return;
        };
        let is_ours = peer.is_ours;
        let mut arrivals: Vec<(IpAddr, u8)> = peer.arrivals.keys().copied().collect();
        arrivals.sort_unstable();
        for key in arrivals {
            self.drop_arrival(id, key);
        }
        self.peers.remove(&id);
        self.by_ip.retain(|_, known| *known != id);
        self.unvalidated -= usize::from(!is_ours);
        self.events.push_back(Event::PeerGone { peer: id, reason });
    }

    pub(crate) fn handle_unreachable(&mut self, now: Time, four_tuple: FourTuple) {
        let Some(id) = self.by_ip.get(&four_tuple.remote.ip()).copied() else {
            return;
        };
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        if let Some(way) = peer
            .ways
            .iter_mut()
            .find(|way| way.four_tuple == four_tuple)
        {
            let was_unreachable = core::mem::replace(&mut way.is_unreachable, true);
            self.statistics.paths_died += u64::from(!was_unreachable);
        }
        if peer.width() > 0 {
            return;
        }
        // Whoever sends again finds out again.
        for way in &mut peer.ways {
            way.is_unreachable = false;
        }
        let messages = self.outgoing.keys().filter(|message| message.peer() == id);
        let mut messages: Vec<SendId> = messages.copied().collect();
        messages.sort_unstable();
        for message in messages {
            self.give_up(now, message, Reason::Unreachable);
        }
    }
}
