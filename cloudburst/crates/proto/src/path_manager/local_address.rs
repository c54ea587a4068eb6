//! Which of our addresses is answered from.

use super::PathManager;
use crate::event::{FourTuple, PeerId};

impl PathManager {
    /// The path that is answered by what has come so: who came to us by itself is answered from the
    /// address that it asked. A path of our own choice leaves that to the system for all that goes
    /// by it, so that the peer sees one address.
    pub(crate) fn return_address(&self, id: Option<PeerId>, four_tuple: FourTuple) -> FourTuple {
        let peer = id.and_then(|id| self.peers.get(id));
        let Some(peer) = peer.filter(|peer| peer.is_ours) else {
            return four_tuple;
        };
        let index = peer.paths.position(four_tuple);
        index.map_or(four_tuple, |index| peer.paths.get(index).four_tuple)
    }
}
