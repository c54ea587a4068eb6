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
    pub(super) fn renew_ways(&mut self, now: Time, id: PeerId, patience: Duration) {
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        if !peer.is_ours {
            // It is for the peer to choose its ports.
            if peer.paths.forget_gone(now) {
                peer.survey.begin_anew(now);
            }
            return;
        }
        if !peer.paths.look(now, patience) {
            return;
        }
        if peer.paths.has_spare() {
            self.exchange_routes(now, id, patience);
        } else if self.config.replace_ports {
            self.give_up_ports(now, id, patience);
        }
    }

    /// Other pairs of the ports that there are take the place of those that do not deliver.
    fn exchange_routes(&mut self, now: Time, id: PeerId, patience: Duration) {
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        let mut is_any = false;
        for index in 0..peer.paths.iter().count() {
            let from = peer.paths.get(index).route;
            if !peer.paths.get(index).is_to_blame(now, patience) || !peer.exchanges.take(now) {
                continue;
            }
            let to = peer.paths.exchange(now, index, &self.config.datagrams);
            if let Some(to) = to {
                is_any = true;
                self.statistics.routes_replaced += 1;
                self.events
                    .push_back(Event::RouteReplaced { peer: id, from, to });
            }
        }
        if is_any {
            peer.survey.begin_anew(now);
            let remotes = peer.paths.iter().map(|path| path.route.remote);
            let remotes: Vec<_> = remotes.collect();
            for remote in remotes {
                self.peers.bind_remote(remote, id);
            }
        }
    }

    /// Asks for other ports in place of those by which most does not arrive.
    fn give_up_ports(&mut self, now: Time, id: PeerId, patience: Duration) {
        let Some(peer) = self.peers.get(id) else {
            return;
        };
        let mut sockets = [None; MAX_PATHS];
        let blamed = peer.paths.iter();
        let blamed = blamed.filter(|path| path.is_to_blame(now, patience));
        for (path, socket) in blamed.zip(&mut sockets) {
            *socket = Some(path.route.socket);
        }
        for socket in sockets.into_iter().flatten() {
            if !self.renewals.is_due(now, socket) {
                continue;
            }
            let Some(peer) = self.peers.get(id) else {
                return;
            };
            let (ways, bad, elsewhere) = peer.paths.census(now, socket, patience);
            if 2 * bad < ways || !elsewhere {
                continue;
            }
            if self.is_needed(socket, id) {
                self.renewals.put_off(now, socket);
            } else if self.renewals.begin(now, socket) {
                self.events.push_back(Event::ReplacePort { socket });
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
                path.route.socket == socket && needs
            })
        })
    }

    pub(crate) fn port_replaced(&mut self, now: Time, socket: SocketId) {
        self.statistics.ports_replaced += 1;
        let ids: Vec<PeerId> = self.peers.ids().collect();
        for id in ids {
            let Some(peer) = self.peers.get_mut(id) else {
                continue;
            };
            if peer.paths.renew_socket(now, socket, &self.config.datagrams) {
                peer.survey.begin_anew(now);
                self.look_after(now, id);
            }
        }
    }
}
