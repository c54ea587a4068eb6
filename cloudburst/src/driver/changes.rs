//! Changes to peers and paths, for those who listen.

use super::{
    super::{EndpointEvent, runtime::Runtime},
    Driver,
};
use cloudburst_proto::{Event, Health, RefusedKeys};

impl<R: Runtime> Driver<R> {
    /// Lets listeners know of a change to a peer or a path; there may be none.
    pub(super) fn announce(&mut self, event: Event) {
        let event = match event {
            Event::PeerKnown { peer } => EndpointEvent::PeerKnown {
                peer,
                identity: self.machine.peer_key(peer),
            },
            Event::PeerGone { peer, reason } => {
                self.unanswered.peer_gone(peer);
                let now = self.now();
                let stays = self.machine.paths(now, peer).next().is_some();
                for again in self.outgoing.peer_gone(peer, reason, stays) {
                    self.send(now, again);
                }
                EndpointEvent::PeerGone { peer, reason }
            }
            Event::PathHealth {
                peer,
                four_tuple: path,
                health,
            } => match health {
                Health::Good => EndpointEvent::PathUp { peer, path },
                _ => EndpointEvent::PathDown { peer, path },
            },
            Event::PathReplaced { peer, from, to } => {
                self.log_path_replaced(from, to);
                EndpointEvent::PathReplaced { peer, from, to }
            }
            Event::CircuitBroken { peer, loss } => {
                tracing::error!(
                    event = "circuit_broken",
                    loss,
                    "the circuit breaker has tripped: too much is lost at the reserved rate; nothing more is sent to this peer"
                );
                EndpointEvent::CircuitBroken { peer, loss }
            }
            Event::KeysRefused(RefusedKeys {
                remote,
                mismatch,
                datagrams,
            }) => {
                tracing::warn!(
                    event = "key_refused",
                    %remote,
                    datagrams,
                    "refused somebody whose key does not fit ours: {mismatch}"
                );
                EndpointEvent::KeyRefused {
                    remote,
                    mismatch,
                    datagrams,
                }
            }
            _ => return,
        };
        let _ = self.events.send(event);
    }
}
