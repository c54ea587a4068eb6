//! Names of what an endpoint deals with: sockets, paths and peers.

use core::net::{IpAddr, SocketAddr};

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
    pub(crate) fn may_be(&self, other: &Self) -> bool {
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
                let turned = remotes.iter().copied().cycle().skip(shift);
                sockets.clone().zip(turned)
            })
            .filter(|&(socket, remote)| reaches(socket, remote))
            .map(|(socket, remote)| Self::new(socket, remote))
            .take(MAX_FOUR_TUPLES)
            .collect()
    }
}

/// Number of a transport, which the ids of its peers bear. It is drawn at random, so that two
/// transports hardly ever have the same (1 in 2^32).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransportId(pub(crate) u32);

/// Names somebody whom messages are exchanged with. Once the peer is gone it stands for nobody, ever,
/// and for nobody at any other transport either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId {
    transport: TransportId,
    pub(crate) index: u32,
    /// Tells it from those that had the index before.
    generation: u32,
}

impl PeerId {
    /// Names a peer, for a [`Machine`](crate::Machine) that keeps its own.
    pub const fn new(index: u32, generation: u32) -> Self {
        Self::of(TransportId(0), index, generation)
    }

    /// Names a peer of a transport.
    pub(crate) const fn of(transport: TransportId, index: u32, generation: u32) -> Self {
        Self {
            transport,
            index,
            generation,
        }
    }

    /// Returns the id as three numbers, for bindings to other languages.
    pub const fn to_words(self) -> [u32; 3] {
        [self.transport.0, self.index, self.generation]
    }

    /// Takes back what [`to_words`](Self::to_words) has returned. Other numbers stand for nobody.
    pub const fn from_words([transport, index, generation]: [u32; 3]) -> Self {
        Self::of(TransportId(transport), index, generation)
    }

    /// Returns the transport that has named it.
    pub const fn transport(self) -> TransportId {
        self.transport
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_comes_back_from_its_words() {
        let peer = PeerId::of(TransportId(7), 8, 9);
        assert_eq!(peer.to_words(), [7, 8, 9]);
        assert_eq!(PeerId::from_words(peer.to_words()), peer);
    }

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
