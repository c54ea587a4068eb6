//! Why messages and peers are refused or given up.

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
    /// that does no harm; [`SendOptions::idempotent`](crate::SendOptions::idempotent) has that done.
    #[error(
        "the receiver was restarted, and may have taken it before or not; send it again only if taking it twice does no harm"
    )]
    Unknown,
    /// The host has called [`cancel`](crate::Transport::cancel).
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
    /// The machine's format has no empty messages; [`Transport`](crate::Transport) does.
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

/// Tells that a [`PeerId`](crate::PeerId) was given by another endpoint.
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
