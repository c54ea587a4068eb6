//! Messages that must not wait: erasure-coded, burst over several paths until
//! the receiver says stop.
//!
//! - [`code`]: the erasure code, for one message of 1 byte to 32 MiB. No
//!   allocation, no input or output, no clock; works without `std`.
//! - The crate `cloudburst-proto`: the transport as a state machine without sockets and clock.
//! - This crate: the transport on UDP sockets, with tokio; [`Endpoint`] is where
//!   most users begin.
//!
//! The design is that of *Cloudburst* (see the repository's documentation for
//! where it deviates and why).
//!
//! ```no_run
//! use cloudburst::{EndpointConfig, Endpoint, PublicKey, SecretKey, Security};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! // As `cloudburst keygen` made them: ours, and what it printed at the server.
//! let ours: SecretKey = std::fs::read_to_string("client.key")?.parse()?;
//! let server: PublicKey = std::fs::read_to_string("server.pub")?.parse()?;
//! let endpoint = Endpoint::bind(EndpointConfig::client(Security::key_pair(ours))).await?;
//! let peer = endpoint.connect_to(server, ["192.0.2.7:4433".parse()?]).await?;
//! let receipt = endpoint.send(peer, "made to arrive soon").await?;
//! println!("there after {:?}", receipt.completion);
//! endpoint.close(std::time::Duration::from_secs(1)).await;
//! # Ok(())
//! # }
//! ```
//!
//! One task, the driver, owns the state machine and all sockets; an [`Endpoint`]
//! is a handle that talks to it, cheap to clone. Several sockets are bound so
//! that networks which spread by ports take several paths at once: every pair of
//! a socket of ours and an address of the peer is a path.
//!
//! What waits, and where:
//!
//! - [`Endpoint::send`] waits while as many messages or bytes are under way as
//!   [`Quotas`] allow; [`Endpoint::try_send`] says
//!   [`TrySendError::Full`] instead.
//! - Questions to the driver (connect, statistics, paths, ...) wait for one of 256 places. Keys that
//!   are set before those set last were taken replace them. So the driver's queue is bounded by
//!   what those who put something there hold.
//! - What has arrived waits for [`Endpoint::recv`] in an inbox of
//!   [its own size](EndpointConfig::with_inbox). When it is full, or
//!   half of its bytes are, those who came by themselves are answered with Busy; they do until their
//!   message's time is over. What is complete and does not fit is kept by the protocol, within its
//!   quotas, and its sender answered the same: a message that is said to be delivered is in the inbox.
//!   Replies go to the caller that waits for them and need no capacity.

mod bind;
pub mod blocking;
mod commands;
mod config;
mod driver;
mod endpoint;
mod error;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod icmp;
mod outgoing;
mod pending_request;
mod ports;
mod remotes;
mod requests;
mod socket;
mod statistics;
mod timer;

pub use self::{
    config::EndpointConfig,
    endpoint::{Endpoint, Received},
    error::{
        BindError, Closed, ConnectError, EndpointConfigError, Error, PeerError, ReplyError,
        RequestError, SendError, TrySendError,
    },
    outgoing::Sending,
    ports::{Ports, PortsError},
    remotes::{Remotes, RemotesError},
    requests::IntoReply,
    statistics::{CompletionHistogram, EndpointStatistics, SocketStatistics},
};

pub use cloudburst_code::{self as code, Schedule};
pub use cloudburst_proto::{
    ConfigError, CongestionControl, ConnectRefused, Failure, FailureReason, ForeignPeer, FourTuple,
    Health, IDENTITY_BYTES, Identity, IdentityError, Key, KeyError, Keyring, KeyringError,
    MAX_LIFETIME, PathReport, PeerId, PublicKey, Quotas, Reason, Receipt, Refusals, Reservation,
    SECRET_BYTES, SecretKey, Security, SendRefused, SocketId, StartError, TransportStatistics,
    Undelivered,
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
