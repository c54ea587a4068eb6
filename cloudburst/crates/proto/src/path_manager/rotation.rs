//! Ports, and pairs of ports, that do not deliver are abandoned for others.

use core::net::SocketAddr;
use std::collections::VecDeque;

use super::PathManager;
use crate::{
    event::{Event, PeerId, SocketId},
    paths::MAX_PATHS,
    time::Time,
};

impl PathManager {
    /// Looks at what a peer's paths have delivered, and abandons those that do not deliver while
    /// others to the same address do. How many were replaced at once.
    pub(super) fn replace_failed(
        &mut self,
        now: Time,
        id: PeerId,
        events: &mut VecDeque<Event>,
    ) -> u64 {
        let Some(peer) = self.peers.get_mut(id) else {
            return 0;
        };
        if !peer.is_ours {
            // It is for the peer to choose its ports.
            if peer.paths.forget_gone(now) {
                peer.detector.restart(now);
            }
            return 0;
        }
        let silence = peer.silence();
        if !peer.paths.look(now, silence) {
            return 0;
        }
        if peer.paths.has_standby() {
            return self.replace_by_standby(now, id, events);
        }
        if self.rotates_ports {
            self.rotate_failed_ports(now, id, events);
        }
        0
    }

    /// Other pairs of the ports that there are take the place of those that do not deliver.
    fn replace_by_standby(&mut self, now: Time, id: PeerId, events: &mut VecDeque<Event>) -> u64 {
        let Some(peer) = self.peers.get_mut(id) else {
            return 0;
        };
        let silence = peer.silence();
        let mut replaced = 0_u64;
        for index in 0..peer.paths.iter().count() {
            let from = peer.paths.get(index).four_tuple;
            if !peer.paths.get(index).has_failed(now, silence) || !peer.replacements.take(now) {
                continue;
            }
            if let Some(to) = peer.paths.replace_by_standby(now, index, &self.datagrams) {
                replaced = replaced.saturating_add(1);
                events.push_back(Event::PathReplaced { peer: id, from, to });
            }
        }
        if replaced > 0 {
            peer.detector.restart(now);
        }
        replaced
    }

    /// Asks for other ports in place of those by which most does not arrive.
    fn rotate_failed_ports(&mut self, now: Time, id: PeerId, events: &mut VecDeque<Event>) {
        let Some(peer) = self.peers.get(id) else {
            return;
        };
        let silence = peer.silence();
        let mut sockets = [None; MAX_PATHS];
        let failed = peer.paths.iter();
        let failed = failed.filter(|path| path.has_failed(now, silence));
        for (path, socket) in failed.zip(&mut sockets) {
            *socket = Some(path.four_tuple.socket);
        }
        for socket in sockets.into_iter().flatten() {
            if !self.rotation.is_due(now, socket) {
                continue;
            }
            let Some(peer) = self.peers.get(id) else {
                return;
            };
            let (all, bad, elsewhere) = peer.paths.count_over_socket(now, socket, silence);
            if bad < all.div_ceil(2) || !elsewhere {
                continue;
            }
            if self.is_needed(socket, id) {
                self.rotation.postpone(now, socket);
            } else if self.rotation.begin(now, socket) {
                events.push_back(Event::RotatePort { socket });
            }
        }
    }

    /// Whether another peer is reached by a socket, or reaches us by it.
    fn is_needed(&self, socket: SocketId, by_other_than: PeerId) -> bool {
        let mut others = self.peers.iter().filter(|&(id, _)| id != by_other_than);
        others.any(|(_, peer)| {
            let mut paths = peer.paths.iter();
            paths.any(|path| {
                let needs = path.is_good() || !peer.is_ours && !path.is_dead();
                path.four_tuple.socket == socket && needs
            })
        })
    }

    /// The addresses that a peer's paths lead to.
    pub(crate) fn remotes(&self, id: PeerId) -> impl Iterator<Item = SocketAddr> + '_ {
        let peer = self.peers.get(id).into_iter();
        peer.flat_map(|peer| peer.paths.iter().map(|path| path.four_tuple.remote))
    }

    /// A socket has another port: paths over it begin again. Returns whose there are.
    pub(crate) fn port_rotated(&mut self, now: Time, socket: SocketId) -> Vec<PeerId> {
        let ids: Vec<PeerId> = self.peers.iter().map(|(id, _)| id).collect();
        let mut changed = Vec::new();
        for id in ids {
            if let Some(peer) = self.peers.get_mut(id)
                && peer.paths.rotate_socket(now, socket, &self.datagrams)
            {
                peer.detector.restart(now);
                changed.push(id);
            }
        }
        changed
    }
}
