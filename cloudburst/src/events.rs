//! What happens to peers and paths, for those who want to know.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::broadcast::{self, error::RecvError};

use cloudburst_proto::{FourTuple, GoneReason, KeyMismatch, PeerId, PublicKey};

/// Events that wait for a listener at most; older ones give way to newer ones.
pub(super) const EVENTS: usize = 1_024;

/// Something that happened to a peer or a path.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum EndpointEvent {
    /// Somebody began to speak to this endpoint. Those [connected](super::Endpoint::connect) to are
    /// not announced.
    PeerKnown {
        /// The new peer.
        peer: PeerId,
        /// Its public key, where key pairs say who it is.
        identity: Option<PublicKey>,
    },
    /// A peer is gone, and its id stands for nobody; but after [`GoneReason::Closed`] that of a peer that
    /// was connected to stays good, and a message to it finds out whether it is there again.
    PeerGone {
        /// The peer that is gone.
        peer: PeerId,
        /// Why it was forgotten.
        reason: GoneReason,
    },
    /// A path delivers: for the first time, or again.
    PathUp {
        /// The peer that it leads to.
        peer: PeerId,
        /// The path.
        path: FourTuple,
    },
    /// A path delivered, and does no longer: it gets probes only.
    PathDown {
        /// The peer that it leads to.
        peer: PeerId,
        /// The path.
        path: FourTuple,
    },
    /// A path did not deliver while others to the same address did, and another pair of ports has
    /// taken its place.
    PathReplaced {
        /// The peer that both lead to.
        peer: PeerId,
        /// The path that did not deliver.
        from: FourTuple,
        /// The one that is tried instead.
        to: FourTuple,
    },
    /// Too much was lost for too long of what was sent at a
    /// [reserved](super::CongestionControl::Reserved) rate (RFC 8084): nothing more is sent to the
    /// peer until it is forgotten and connected again.
    CircuitBroken {
        /// The peer that nothing is sent to any more.
        peer: PeerId,
        /// The share of its datagrams that was lost, 0 to 1.
        loss: f64,
    },
    /// Datagrams were refused because of the keys that they came by. Announced, and logged as a
    /// warning, a second after the first, and every ten seconds at most, however many come;
    /// [`Refusals`](super::Refusals) counts all.
    KeyRefused {
        /// The address that the latest of them claims to come from.
        remote: SocketAddr,
        /// Why the keys of the latest do not fit.
        mismatch: KeyMismatch,
        /// Datagrams since the last such event, of whomever they were.
        datagrams: u64,
    },
    /// So many events came faster than they were taken, and are missing here.
    Lagged {
        /// Events that are missing.
        missed: u64,
    },
}

/// Events of an endpoint, from when it was asked for them; see [`Endpoint::events`](super::Endpoint::events).
///
/// It holds 1,024 events. Whoever takes them too slowly loses the oldest, and is told how many by
/// [`EndpointEvent::Lagged`]; nothing else waits for it.
#[derive(Debug)]
pub struct Events {
    events: broadcast::Receiver<EndpointEvent>,
    missed: Arc<AtomicU64>,
}

impl Events {
    pub(super) fn new(events: broadcast::Receiver<EndpointEvent>, missed: Arc<AtomicU64>) -> Self {
        Self { events, missed }
    }

    /// Waits for the next event; nothing once the endpoint is closed. Dropping the future loses
    /// nothing.
    pub async fn next(&mut self) -> Option<EndpointEvent> {
        match self.events.recv().await {
            Ok(event) => Some(event),
            Err(RecvError::Lagged(missed)) => {
                self.missed.fetch_add(missed, Ordering::Relaxed);
                Some(EndpointEvent::Lagged { missed })
            }
            Err(RecvError::Closed) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_listener_that_lags_hears_how_much_it_missed() {
        let (sender, receiver) = broadcast::channel(4);
        let missed = Arc::new(AtomicU64::new(0));
        let mut events = Events::new(receiver, Arc::clone(&missed));
        for number in 1..=7_u64 {
            sender
                .send(EndpointEvent::Lagged { missed: number })
                .unwrap();
        }
        let lagged = |missed| Some(EndpointEvent::Lagged { missed });
        // The first three gave way; what is here of the others comes in its order.
        for expected in [3, 4, 5, 6, 7] {
            assert_eq!(events.next().await, lagged(expected));
        }
        assert_eq!(missed.load(Ordering::Relaxed), 3);
        drop(sender);
        assert_eq!(events.next().await, None);
    }
}
