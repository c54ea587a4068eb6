//! Ports and pairs of ports that do not deliver are given up for others.

use core::time::Duration;

use super::{
    super::{
        event::{Event, PeerId, SocketId},
        paths::MAX_PATHS,
        time::Time,
    },
    Native,
};

impl Native {
    /// Looks at what a peer's ways have delivered, and gives up those that do not deliver while
    /// others to the same address do.
    pub(super) fn replace_failed_paths(&mut self, now: Time, id: PeerId, ack_timeout: Duration) {
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        if !peer.is_ours {
            // It is for the peer to choose its ports.
            if peer.paths.forget_gone(now) {
                peer.shared_bottleneck.restart(now);
            }
            return;
        }
        if !peer.paths.look(now, ack_timeout) {
            return;
        }
        if peer.paths.has_standby() {
            self.replace_paths(now, id, ack_timeout);
        } else if self.config.rotate_ports {
            self.rotate_failed_ports(now, id, ack_timeout);
        }
    }

    /// Other pairs of the ports that there are take the place of those that do not deliver.
    fn replace_paths(&mut self, now: Time, id: PeerId, ack_timeout: Duration) {
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        let mut is_any = false;
        for index in 0..peer.paths.iter().count() {
            let from = peer.paths.get(index).four_tuple;
            if !peer.paths.get(index).has_failed(now, ack_timeout) || !peer.replacements.take(now) {
                continue;
            }
            let to = peer
                .paths
                .replace_by_standby(now, index, &self.config.datagrams);
            if let Some(to) = to {
                is_any = true;
                self.statistics.paths_replaced += 1;
                self.events
                    .push_back(Event::PathReplaced { peer: id, from, to });
            }
        }
        if is_any {
            peer.shared_bottleneck.restart(now);
            let remotes = peer.paths.iter().map(|path| path.four_tuple.remote);
            let remotes: Vec<_> = remotes.collect();
            for remote in remotes {
                self.peers.bind_remote(remote, id);
            }
        }
    }

    /// Asks for other ports in place of those by which most does not arrive.
    fn rotate_failed_ports(&mut self, now: Time, id: PeerId, ack_timeout: Duration) {
        let Some(peer) = self.peers.get(id) else {
            return;
        };
        let mut sockets = [None; MAX_PATHS];
        let blamed = peer.paths.iter();
        let blamed = blamed.filter(|path| path.has_failed(now, ack_timeout));
        for (path, socket) in blamed.zip(&mut sockets) {
            *socket = Some(path.four_tuple.socket);
        }
        for socket in sockets.into_iter().flatten() {
            if !self.port_rotation.is_due(now, socket) {
                continue;
            }
            let Some(peer) = self.peers.get(id) else {
                return;
            };
            let (paths, bad, elsewhere) = peer.paths.count_over_socket(now, socket, ack_timeout);
            if 2 * bad < paths || !elsewhere {
                continue;
            }
            if self.is_needed(socket, id) {
                self.port_rotation.postpone(now, socket);
            } else if self.port_rotation.begin(now, socket) {
                self.events.push_back(Event::RotatePort { socket });
            }
        }
    }

    /// Whether another peer is reached by a socket, or reaches us by it.
    fn is_needed(&self, socket: SocketId, by_other_than: PeerId) -> bool {
        let others = self.peers.ids().filter(|&id| id != by_other_than);
        let mut others = others.filter_map(|id| self.peers.get(id));
        others.any(|peer| {
            let mut paths = peer.paths.iter();
            paths.any(|path| {
                let needs = path.is_good() || !peer.is_ours && !path.is_dead();
                path.four_tuple.socket == socket && needs
            })
        })
    }

    pub(crate) fn port_rotated(&mut self, now: Time, socket: SocketId) {
        self.statistics.ports_rotated += 1;
        let ids: Vec<PeerId> = self.peers.ids().collect();
        for id in ids {
            let Some(peer) = self.peers.get_mut(id) else {
                continue;
            };
            if peer
                .paths
                .rotate_socket(now, socket, &self.config.datagrams)
            {
                peer.shared_bottleneck.restart(now);
                self.look_after(now, id);
            }
        }
    }
}
