//! What goes in and out of an endpoint besides datagrams.

mod failure;
mod names;

use core::time::Duration;

pub use cloudburst_congestion::EcnState;
use cloudburst_security::RefusedKeys;
pub use cloudburst_wire::Ecn;

pub use self::{
    failure::{ConnectRefused, ForeignPeer, Reason, SendRefused, Undelivered},
    names::{FourTuple, PeerId, SocketId, TransportId},
};

/// Notice of the network about a datagram that it could not deliver (ICMP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IcmpKind {
    /// Nobody is there: no port, no host or no network.
    Unreachable,
    /// A link on the way carries datagrams of so many bytes at most, as UDP payload.
    TooBig {
        /// The longest datagram that it carries.
        longest: usize,
    },
}

/// Says what a message is to its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageKind {
    /// A message by itself.
    Message,
    /// Something to be answered by a [`MessageKind::Reply`].
    Request,
    /// The answer to a request.
    Reply {
        /// The request's number, [`SendId::as_u64`].
        to: u64,
    },
    /// The answer to a request that has no reply: the message is a [`Failure`](super::Failure), as
    /// [`Failure::to_bytes`](super::Failure::to_bytes) writes it.
    Failure {
        /// The request's number, [`SendId::as_u64`].
        to: u64,
    },
}

impl MessageKind {
    /// Whether it needs capacity of the host: who waits for a reply has a place for it already.
    pub(super) const fn needs_capacity(self) -> bool {
        matches!(self, Self::Message | Self::Request)
    }
}

/// A message that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SendId {
    pub(super) peer: PeerId,
    pub(super) message: u64,
}

impl SendId {
    /// Names a message, for a [`Machine`](super::Machine) that numbers its own.
    pub const fn new(peer: PeerId, message: u64) -> Self {
        Self { peer, message }
    }

    /// The message's number on the wire, which a reply to it refers to. Peers'
    /// numbers begin at random, so that two of them hardly ever have the same.
    pub const fn as_u64(self) -> u64 {
        self.message
    }

    /// Whom it was sent to.
    pub const fn peer(self) -> PeerId {
        self.peer
    }
}

/// Datagrams that are to be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The path that it takes.
    pub four_tuple: FourTuple,
    /// Bytes at the beginning of the buffer.
    pub bytes: usize,
    /// Length of each datagram but perhaps the last.
    pub segment_bytes: usize,
    /// How they are to be marked.
    pub ecn: Ecn,
}

/// Something that happened, for the host to handle.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A whole message arrived. It comes once.
    Received {
        /// The peer that sent it.
        peer: PeerId,
        /// The path by which the datagram came that completed it.
        four_tuple: FourTuple,
        /// Its sender's number for it: what a reply refers to.
        id: u64,
        /// The kind of the message.
        kind: MessageKind,
        /// The content of the message.
        message: Vec<u8>,
    },
    /// The receiver has it.
    Delivered {
        /// The message that it is about.
        id: SendId,
        /// The time and symbols that it took.
        receipt: Receipt,
    },
    /// It was abandoned. Unless the failure says otherwise the receiver may have
    /// it all the same.
    Undelivered {
        /// The message that it is about.
        id: SendId,
        /// The failure and its reason.
        failure: Undelivered,
    },
    /// A peer has given a message of its up that is done: if it was handed over as a request, nobody waits
    /// for the reply. It may come more than once, and for what was never handed over.
    Cancelled {
        /// The peer that sent the message.
        peer: PeerId,
        /// Its sender's number for it, as in [`Self::Received`].
        id: u64,
    },
    /// Datagrams from a socket do not arrive, while those from others to the same address do: a
    /// network that spreads by ports leads it somewhere bad. Bind another socket at the same
    /// address, on a port that the system chooses, and call
    /// [`port_rotated`](super::Transport::port_rotated). The caller that cannot does nothing, or sets
    /// [`TransportConfig::rotate_ports`](super::TransportConfig::rotate_ports) to false.
    ///
    /// It comes 64 times at most, and then once a minute; of a socket whose ports are never good,
    /// ever more seldom, at last every ten minutes.
    RotatePort {
        /// The socket whose port it is.
        socket: SocketId,
    },
    /// A path to a peer did not deliver, while others to the same address did, and another pair
    /// of ports that was not in use has taken its place. For logs.
    PathReplaced {
        /// The peer whose path it is.
        peer: PeerId,
        /// The path that did not deliver.
        from: FourTuple,
        /// The one that is tried instead.
        to: FourTuple,
    },
    /// The circuit breaker of a peer that is sent to at a reserved rate has tripped (RFC 8084): more was
    /// lost for longer than [`Reservation::most_loss`](super::Reservation::most_loss) allows. Its
    /// messages were abandoned, and none is taken until it is forgotten and connected again.
    CircuitBroken {
        /// The peer that nothing is sent to any more.
        peer: PeerId,
        /// The share of its datagrams that was lost, 0 to 1.
        loss: f64,
    },
    /// Somebody who was not connected to has begun to speak. With keys it is authentic; its address
    /// may not have been validated yet.
    PeerKnown {
        /// The new peer.
        peer: PeerId,
    },
    /// A peer is gone. What was under way to it was abandoned, what was incomplete of it is forgotten,
    /// and its id stands for nobody; but after [`GoneReason::Closed`] the id of a peer that we are
    /// connected to stays good, and a message to it finds out whether it is there again.
    PeerGone {
        /// The peer that is gone.
        peer: PeerId,
        /// Why it is.
        reason: GoneReason,
    },
    /// Datagrams were refused because of the keys that they came by. Reported a second after the first,
    /// and every ten seconds at most, however many come.
    KeysRefused(RefusedKeys),
    /// A path in use was found to deliver ([`Health::Good`]), for the first time or again, or to
    /// deliver no longer ([`Health::Dead`]).
    PathHealth {
        /// The peer that it leads to.
        peer: PeerId,
        /// The path in question.
        four_tuple: FourTuple,
        /// The health it has from now on.
        health: Health,
    },
}

/// Why a peer is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum GoneReason {
    /// The host has called [`forget`](super::Transport::forget).
    #[error("the peer was forgotten")]
    Forgotten,
    /// Nothing was heard for two minutes of a peer that came by itself.
    #[error("nothing was heard of the peer for two minutes")]
    Silent,
    /// The peer has said that it closes.
    #[error("the peer has closed")]
    Closed,
}

/// Counts the time and symbols that the delivery of a message took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// From the call of send until the stop arrived.
    pub completion: Duration,
    /// Source symbols of the message.
    pub symbols: u32,
    /// Symbols sent until the stop arrived.
    pub sent: u32,
    /// Symbols that the receiver took until it was complete.
    pub needed: u32,
    /// Paths that carried a symbol.
    pub paths: u16,
}

/// Reports what is known of a path.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct PathReport {
    /// The path's number on the wire.
    pub path: u16,
    /// The way it takes.
    pub four_tuple: FourTuple,
    /// The path's health: it delivers or not.
    pub health: Health,
    /// Datagrams that were sent.
    pub sent: u64,
    /// Datagrams that arrived, as far as the peer has reported.
    pub delivered: u64,
    /// The share of datagrams that is lost of late, 0 to 1.
    pub loss: f64,
    /// Datagrams that arrived with a mark of congestion (ECN), as far as the peer has reported.
    pub marked: u64,
    /// The state of ECN on the path.
    pub ecn: EcnState,
    /// Time to the peer and back, smoothed, without queueing at the peer's host.
    pub rtt: Option<Duration>,
    /// How much later datagrams arrive by it than by the fastest path.
    pub lag: Option<Duration>,
    /// The longest datagram that is known to get through, in bytes.
    pub datagram_bytes: usize,
}

impl PathReport {
    /// Reports a path of which nothing is known yet.
    pub const fn new(path: u16, four_tuple: FourTuple) -> Self {
        Self {
            path,
            four_tuple,
            health: Health::Unknown,
            sent: 0,
            delivered: 0,
            loss: 0.0,
            marked: 0,
            ecn: EcnState::Untested,
            rtt: None,
            lag: None,
            datagram_bytes: 0,
        }
    }
}

/// Tells if a path delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Health {
    /// Nothing is known yet.
    Unknown,
    /// It is known to deliver.
    Good,
    /// It did, and does no longer: it gets probes only.
    Dead,
}
