//! What goes in and out of an endpoint besides datagrams.

use core::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

/// One of the host's sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId(pub u16);

/// A way to a peer: from a socket of ours to an address of its.
///
/// Networks that spread by hash (ECMP) choose the path from both ports, so that
/// several paths to the same machine are likely to take several paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct FourTuple {
    /// One of our sockets.
    pub socket: SocketId,
    /// The address of ours that datagrams come to and leave from, where the socket has several: a
    /// stateful firewall or address translator at the peer lets nothing in from another than was
    /// asked (RFC 1122 §4.1.3.5). Nothing leaves the choice to the system.
    pub local: Option<IpAddr>,
    /// Address of the other end.
    pub remote: SocketAddr,
}

/// Most paths to a peer that are worth having.
const MAX_FOUR_TUPLES: usize = 256;

impl FourTuple {
    /// The path from a socket to an address; the system chooses which of the socket's addresses
    /// datagrams leave from.
    pub const fn new(socket: SocketId, remote: SocketAddr) -> Self {
        Self {
            socket,
            local: None,
            remote,
        }
    }

    /// Returns this path with the address of ours that a datagram was sent to.
    #[must_use]
    pub const fn with_local(self, local: Option<IpAddr>) -> Self {
        Self { local, ..self }
    }

    /// Returns whether both may be one path: one that leaves its local address to the system may be any.
    pub(super) fn may_be(&self, other: &Self) -> bool {
        let is_open = self.local.is_none() || other.local.is_none();
        (self.socket, self.remote) == (other.socket, other.remote)
            && (is_open || self.local == other.local)
    }

    /// All pairs of a socket and an address that it `reaches`, 256 at most; those first that share
    /// neither with the one before: a caller that takes the first few takes several of both.
    pub fn between(
        sockets: impl Iterator<Item = SocketId> + Clone,
        remotes: &[SocketAddr],
        reaches: impl Fn(SocketId, SocketAddr) -> bool,
    ) -> Vec<Self> {
        let diagonals = 0..remotes.len();
        diagonals
            .flat_map(|shift| {
                let at = move |index: usize| remotes[(index + shift) % remotes.len()];
                (0..)
                    .zip(sockets.clone())
                    .map(move |(index, socket)| (socket, at(index)))
            })
            .filter(|&(socket, remote)| reaches(socket, remote))
            .map(|(socket, remote)| Self::new(socket, remote))
            .take(MAX_FOUR_TUPLES)
            .collect()
    }
}

/// Notice of the network about a datagram that it could not deliver (ICMP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpKind {
    /// Nobody is there: no port, no host or no network.
    Unreachable,
    /// A link on the way carries datagrams of so many bytes at most, as UDP payload.
    TooBig {
        /// The longest datagram that it carries.
        longest: usize,
    },
}

/// Number of a transport, which the ids of its peers bear. It is drawn at random, so that two
/// transports hardly ever have the same (1 in 2^32).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransportId(pub(super) u32);

/// Names somebody whom messages are exchanged with. Once the peer is gone it stands for nobody, ever,
/// and for nobody at any other transport either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId {
    transport: TransportId,
    pub(super) index: u32,
    /// Tells it from those that had the index before.
    generation: u32,
}

impl PeerId {
    /// Names a peer, for a [`Machine`](super::Machine) that keeps its own.
    pub const fn new(index: u32, generation: u32) -> Self {
        Self::of(TransportId(0), index, generation)
    }

    /// Names a peer of a transport.
    pub(super) const fn of(transport: TransportId, index: u32, generation: u32) -> Self {
        Self {
            transport,
            index,
            generation,
        }
    }

    /// Returns the transport that has named it.
    pub const fn transport(self) -> TransportId {
        self.transport
    }
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

/// Explicit congestion notification (ECN, RFC 3168 §5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// Takes no part in it, or nothing is known.
    #[default]
    NotCapable,
    /// The datagram may be marked.
    Capable,
    /// Was marked on the way.
    CongestionExperienced,
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

/// A message that was abandoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("message given up: {reason}; {sent} symbols were sent for {symbols}{}", Progress(.received))]
#[non_exhaustive]
pub struct Undelivered {
    /// The reason it was abandoned.
    pub reason: Reason,
    /// Source symbols of the message.
    pub symbols: u32,
    /// Symbols that were sent.
    pub sent: u32,
    /// Symbols the receiver said it had, if it said so.
    pub received: Option<u32>,
}

impl Undelivered {
    /// Says that a message was abandoned after so many symbols, of which the receiver said nothing.
    pub const fn new(reason: Reason, symbols: u32, sent: u32) -> Self {
        Self {
            reason,
            symbols,
            sent,
            received: None,
        }
    }
}

struct Progress<'a>(&'a Option<u32>);

impl core::fmt::Display for Progress<'_> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.0 {
            Some(received) => write!(formatter, ", the receiver had {received}"),
            None => write!(formatter, ", the receiver said nothing"),
        }
    }
}

/// Why a message was abandoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The budget of symbols is spent: so many were sent.
    #[error("the budget of symbols is spent")]
    BudgetSpent,
    /// The budget of time is over.
    #[error("the time is over")]
    TimedOut,
    /// The network says of every path that nobody is there.
    #[error("no path reaches the peer")]
    Unreachable,
    /// The receiver has no capacity, to the end.
    #[error("the receiver has no room")]
    Busy,
    /// The receiver will never take it: it is longer than it takes.
    #[error("the receiver refuses it")]
    Refused,
    /// The receiver no longer knows what became of it.
    #[error("the receiver no longer knows what became of it")]
    Stale,
    /// Too much was lost for too long of what was sent at a reserved rate.
    #[error("the circuit breaker has tripped: too much was lost for too long")]
    CircuitBroken,
    /// The receiver was restarted, and may have handed it over before that. Send it again where
    /// that does no harm; [`SendOptions::idempotent`](super::SendOptions::idempotent) has that done.
    #[error(
        "the receiver was restarted, and may have taken it before or not; send it again only if taking it twice does no harm"
    )]
    Unknown,
    /// The host has called [`cancel`](super::Transport::cancel).
    #[error("cancelled")]
    Cancelled,
    /// The peer has said that it closes, and may have taken it before, or was not back within two
    /// seconds.
    #[error("the peer has closed")]
    PeerClosed,
}

/// Why a message cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendRefused {
    /// The machine's format has no empty messages; [`Transport`](super::Transport) does.
    #[error("this machine cannot send an empty message")]
    Empty,
    /// It is longer than the configuration or the format allows.
    #[error("the message has {given} bytes; at most {most} can be sent")]
    TooLarge {
        /// Bytes of the message.
        given: usize,
        /// Bytes that are allowed.
        most: usize,
    },
    /// More messages or bytes wait than the quota allows: wait for one to be
    /// delivered and try again.
    #[error("{messages} messages of {bytes} bytes wait already; wait for a delivery and try again")]
    Full {
        /// Messages that wait already.
        messages: usize,
        /// Bytes of these messages.
        bytes: usize,
    },
    /// The peer's circuit breaker has tripped; forget it, and connect again with a lower rate.
    #[error(
        "the peer's circuit breaker has tripped, as too much was lost at the reserved rate; connect again with a lower one, or with adaptive congestion control"
    )]
    CircuitBroken,
    /// There is no such peer, or no longer.
    #[error("the peer is not known, or no longer")]
    NoPeer,
    /// The id was given by another endpoint, and stands for nobody here.
    #[error(transparent)]
    ForeignPeer(#[from] ForeignPeer),
    /// The machine carries messages only, neither requests nor replies.
    #[error("this machine knows no requests and replies; send a message")]
    Unsupported,
}

/// Tells that a [`PeerId`] was given by another endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the id of the peer was given by another endpoint, and stands for nobody here; connect to the peer at this endpoint and use the id that returns"
)]
pub struct ForeignPeer;

/// Why there is nobody to send to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectRefused {
    /// No way to it.
    #[error("a peer needs at least one route")]
    NoPath,
    /// The peer's public key is not given, and with key pairs none other can be spoken to.
    #[error("the public key of the peer is needed; `cloudburst keygen` prints it there")]
    NoPeerKey,
    /// The quota of peers is used up.
    #[error("{0} peers are known, as many as the quota allows")]
    TooManyPeers(usize),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_routes_differ_in_both_ends() {
        let remotes = [1, 2].map(|port| SocketAddr::from(([192, 0, 2, 1], port)));
        let sockets = (0..3).map(SocketId);
        let four_tuples = FourTuple::between(sockets.clone(), &remotes, |_, _| true);
        let ends: Vec<_> = four_tuples
            .iter()
            .map(|four_tuple| (four_tuple.socket.0, four_tuple.remote.port()))
            .collect();
        assert_eq!(ends, [(0, 1), (1, 2), (2, 1), (0, 2), (1, 1), (2, 2)]);
        let some = FourTuple::between(sockets, &remotes, |socket, _| socket.0 == 1);
        assert_eq!(some.len(), 2);
        let many = FourTuple::between((0..1_000).map(SocketId), &remotes, |_, _| true);
        assert_eq!(many.len(), MAX_FOUR_TUPLES);
    }
}
