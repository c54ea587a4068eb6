//! What can go wrong, for each operation.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use bytes::Bytes;

use super::{Ports, PortsError, RemotesError};
use cloudburst_proto::{
    self as protocol, ConfigError, Failure, ForeignPeer, GoneReason, IdentityError, KeyError,
    KeyringError, StartError, Undelivered,
};

/// Names the setting of an [`EndpointConfig`](super::EndpointConfig) that is wrong, with its value.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointConfigError {
    /// A setting that does not depend on sockets is wrong.
    #[error("the settings are wrong: {0}")]
    Protocol(#[from] ConfigError),
    /// The number is no code point.
    #[error("dscp is {0}; it must be 0 to 63")]
    Dscp(u8),
    /// No sockets, or too many.
    #[error("{}; 1 to {most} sockets are possible, 1 to 256 for each address", sockets(.addresses, .ports))]
    Sockets {
        /// Local addresses to bind.
        addresses: usize,
        /// Ports of each address.
        ports: Ports,
        /// Sockets that are possible.
        most: usize,
    },
    /// A setting that must be above 0.
    #[error("{0} is 0; it must be above")]
    Zero(&'static str),
    /// Two local addresses of which one would keep the other from being bound.
    #[error(
        "the local addresses {first} and {second} overlap: give each address once, and {} alone", unspecified(.first)
    )]
    Overlap {
        /// One of the two addresses.
        first: IpAddr,
        /// One of the two addresses.
        second: IpAddr,
    },
}

/// Why an endpoint cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The protocol cannot start.
    #[error(transparent)]
    Protocol(#[from] StartError),
    /// Somebody else has the port.
    #[error(
        "cannot bind UDP {address}: another process has it; stop that process or choose another port (`{SHOWS_PORTS}` shows who it is)"
    )]
    InUse {
        /// The address that was asked for.
        address: SocketAddr,
    },
    /// No address of this machine.
    #[error(
        "cannot bind UDP {address}: no interface of this machine has that address; choose one that `{SHOWS_ADDRESSES}` shows, or 0.0.0.0"
    )]
    NotLocal {
        /// The address that was asked for.
        address: SocketAddr,
    },
    /// A port that needs a privilege.
    #[error(
        "cannot bind UDP {address}: not permitted; choose a port of 1024 or above, or {GRANT_PORT}"
    )]
    NotPermitted {
        /// The address that was asked for.
        address: SocketAddr,
    },
    /// Anything else that a socket does not do.
    #[error("cannot {action} UDP {address}: {source}")]
    Socket {
        /// The action that was tried.
        action: &'static str,
        /// The address that it was tried on.
        address: SocketAddr,
        /// The system's own words.
        source: io::Error,
    },
    /// The system lacks what the driver needs.
    #[error("cannot {action}: {source}")]
    System {
        /// The action that was tried.
        action: &'static str,
        /// The system's own words.
        source: io::Error,
    },
}

/// Commands and rights of the system at hand, for remedies.
const SHOWS_PORTS: &str = if cfg!(any(target_os = "linux", target_os = "android")) {
    "ss -lunp"
} else if cfg!(windows) {
    "netstat -abn -p UDP"
} else if cfg!(target_os = "freebsd") {
    "sockstat -l -P udp"
} else {
    "lsof -nP -iUDP"
};
const SHOWS_ADDRESSES: &str = if cfg!(any(target_os = "linux", target_os = "android")) {
    "ip address"
} else if cfg!(windows) {
    "ipconfig"
} else {
    "ifconfig"
};
const GRANT_PORT: &str = if cfg!(any(target_os = "linux", target_os = "android")) {
    "grant CAP_NET_BIND_SERVICE"
} else {
    "run it with an administrator's rights"
};

fn unspecified(of_family: &IpAddr) -> IpAddr {
    match of_family {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

fn sockets(addresses: &usize, ports: &Ports) -> String {
    match addresses {
        0 => "no local address is given".to_owned(),
        _ => format!("ports {ports} at {addresses} local addresses"),
    }
}

impl BindError {
    /// Says why a socket cannot be bound, by what the system says of it.
    pub fn new(address: SocketAddr, source: io::Error) -> Self {
        Self::at(address, "bind", source)
    }

    pub(super) fn at(address: SocketAddr, action: &'static str, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::InUse { address },
            io::ErrorKind::AddrNotAvailable => Self::NotLocal { address },
            io::ErrorKind::PermissionDenied => Self::NotPermitted { address },
            _ => Self::Socket {
                action,
                address,
                source,
            },
        }
    }

    /// Returns true where something that is not ours is in the way.
    pub fn is_in_use(&self) -> bool {
        matches!(self, Self::InUse { .. })
    }

    /// Returns true where a privilege is missing.
    pub fn is_not_permitted(&self) -> bool {
        matches!(self, Self::NotPermitted { .. })
    }
}

/// The endpoint is closed: by [`close`](super::Endpoint::close), or its runtime has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the endpoint is closed; bind another")]
pub struct Closed;

/// Why a question about a peer has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// The id was given by another endpoint; see [`ForeignPeer`].
    #[error(transparent)]
    ForeignPeer(#[from] ForeignPeer),
    /// The endpoint is closed; see [`Closed`].
    #[error(transparent)]
    Closed(#[from] Closed),
}

/// Why there is nobody to send to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No address was given.
    #[error("no address of the peer is given; give at least one")]
    NoAddress,
    /// No socket of ours can send there.
    #[error(
        "no socket of this endpoint can send to {remote}: none is bound to an address of its family, or to none but such as reach this machine alone; add one by EndpointConfig::with_local"
    )]
    NoSocket {
        /// The first of the addresses.
        remote: SocketAddr,
    },
    /// An address that nobody can have, or more than one.
    #[error(
        "{remote} is no address to send to: neither the address nor the port may be 0, and it must be one host's"
    )]
    NotAnAddress {
        /// The address in question.
        remote: SocketAddr,
    },
    /// The state machine has no capacity.
    #[error(transparent)]
    Protocol(#[from] protocol::ConnectRefused),
    /// The endpoint is closed; see [`Closed`].
    #[error(transparent)]
    Closed(#[from] Closed),
}

/// Why a message was not delivered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// It was not sent.
    #[error(transparent)]
    Refused(#[from] protocol::SendRefused),
    /// It was sent, and abandoned.
    #[error(transparent)]
    Undelivered(#[from] Undelivered),
    /// See [`Closed`]. The message may have arrived.
    #[error(transparent)]
    Closed(#[from] Closed),
}

/// Why a message was not taken at once.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TrySendError {
    /// The quota of messages under way is used up.
    #[error(
        "as many messages or bytes are under way as quotas.outgoing_messages and quotas.outgoing_bytes allow; wait for a delivery, or use send, which waits"
    )]
    Full {
        /// The message, given back.
        message: Bytes,
    },
    /// It never can be.
    #[error(transparent)]
    Refused(#[from] protocol::SendRefused),
    /// The endpoint is closed; see [`Closed`].
    #[error(transparent)]
    Closed(#[from] Closed),
}

/// Why there is no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The request was not sent.
    #[error("the request was not sent: {0}")]
    Refused(#[from] protocol::SendRefused),
    /// The request was abandoned.
    #[error("no reply: {0}")]
    Undelivered(#[from] Undelivered),
    /// The peer has the request, and has answered that there is no reply, and why.
    #[error("no reply: the request was delivered, and the peer says: {0}")]
    Failed(#[from] Failure),
    /// Nothing came in time.
    #[error("no reply within {after:?}; {}", if *.delivered { "the request was delivered: the peer is slow, does not answer, or its reply is lost" } else { "nothing was heard of the request: is the peer there, and do the keys fit?" })]
    TimedOut {
        /// How long it was waited for.
        after: Duration,
        /// Tells if the peer has the request.
        delivered: bool,
    },
    /// The peer has the request, and is gone before it answered.
    #[error("no reply: the request was delivered, but {0} before its reply came")]
    PeerGone(GoneReason),
    /// The endpoint is closed; see [`Closed`].
    #[error(transparent)]
    Closed(#[from] Closed),
}

/// Any error of this crate, for functions that do several things.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting is wrong.
    #[error(transparent)]
    Config(#[from] EndpointConfigError),
    /// Text is no ports.
    #[error(transparent)]
    Ports(#[from] PortsError),
    /// Text is no address of a peer, or the name cannot be resolved.
    #[error(transparent)]
    Remotes(#[from] RemotesError),
    /// Text is no key of a key pair.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// Text is no shared key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Keys are no keyring.
    #[error(transparent)]
    Keyring(#[from] KeyringError),
    /// The endpoint cannot start.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// There is nobody to send to.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A message was not delivered.
    #[error(transparent)]
    Send(#[from] SendError),
    /// A message was not taken at once.
    #[error(transparent)]
    TrySend(#[from] TrySendError),
    /// There is no reply.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A reply was not delivered.
    #[error(transparent)]
    Reply(#[from] ReplyError),
    /// A question about a peer has no answer.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// The endpoint is closed; see [`Closed`].
    #[error(transparent)]
    Closed(#[from] Closed),
}

impl From<SendError> for RequestError {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Refused(error) => Self::Refused(error),
            SendError::Undelivered(error) => Self::Undelivered(error),
            SendError::Closed(error) => Self::Closed(error),
        }
    }
}

/// Why a reply was not delivered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// The message does not ask for one.
    #[error("the message is no request, so nobody waits for a reply; use send")]
    NotARequest,
    /// The request was answered already.
    #[error("the request was answered already; a request has one reply")]
    Answered,
    /// The peer has given the request up, or is gone: nobody waits for a reply.
    #[error("the peer waits for no reply any more")]
    Cancelled,
    /// The reply could not be sent, as any message.
    #[error(transparent)]
    Send(#[from] SendError),
}
