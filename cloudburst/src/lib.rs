//! Messages that must not wait: erasure-coded, burst over several paths until the receiver says stop.
//!
//! A message of a byte to 4 MiB is sent as coded packets, over several UDP paths at once, until its
//! receiver says stop: a lost packet, a slow path or a dead one costs no round trip. The design is that
//! of *Cloudburst*; the repository's book says where it deviates and why.
//!
//! # Two endpoints
//!
//! Each end has a key pair (`cloudburst keygen` makes one), is given the other's public key, and binds
//! an [`Endpoint`]. This runs as it is, with both on one machine:
//!
//! ```
//! use std::time::Duration;
//! use cloudburst::{Endpoint, EndpointConfig, Ports, SecretKey, Security};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Real keys are random, and each in a file of its own machine.
//! let [client_key, server_key] = [1, 2].map(|secret| SecretKey::new([secret; 32]));
//!
//! // The server says who may speak to it, and where it is to be found; port 0 is any.
//! let security = Security::with_allowed(server_key.clone(), [client_key.public()]);
//! let config = EndpointConfig::server(0, security).with_local([[127, 0, 0, 1].into()])?;
//! let server = Endpoint::bind(config).await?;
//! let address = server.local_addrs()[0];
//!
//! // The client binds several ports: each is a path of its own. It knows the server's public key.
//! let config = EndpointConfig::client(Security::key_pair(client_key))
//!     .with_local([[127, 0, 0, 1].into()])?
//!     .with_ports(Ports::Any(4))?
//!     .with_lifetime(Duration::from_secs(2))?;
//! let client = Endpoint::bind(config).await?;
//! let peer = client.connect_to(server_key.public(), [address]).await?;
//!
//! // A message resolves when the receiver has it.
//! let receipt = client.send(peer, "made to arrive soon").await?;
//! println!("there after {:?}, by {} packets", receipt.completion, receipt.sent);
//! assert_eq!(server.recv().await?.message, "made to arrive soon");
//!
//! // A request resolves when its reply is here. `serve` answers several at a time.
//! let answering = server.clone();
//! tokio::spawn(async move {
//!     let echo = |request: cloudburst::Received| async move { Some(request.message) };
//!     answering.serve(64, echo).await;
//! });
//! let reply = client.request(peer, "what is it?", Duration::from_secs(2)).await?;
//! assert_eq!(reply, "what is it?");
//!
//! // Closing waits for what is under way.
//! client.close(Duration::from_secs(1)).await;
//! server.close(Duration::from_secs(1)).await;
//! # Ok(())
//! # }
//! ```
//!
//! # Where to go on
//!
//! - [`Endpoint`] is what most users need; [`blocking`] has the same without async.
//! - [`EndpointConfig`] has all settings, with what each costs and gains. The defaults may be used on the
//!   Internet. [`Security`] alone has to be chosen.
//! - [`Remotes`] reads where a peer is (`server.example:4433-4436`) and looks it up.
//! - [`memory`] is a network in memory, with loss, delay, reordering and partitions, for tests.
//! - [`runtime`] is the seam between an endpoint and the system: traits for sockets, time and tasks of
//!   one's own.
//! - [`Endpoint::send_group`] sends one message to several peers, and encodes it once.
//! - Errors are one type for each operation, and [`Error`] takes up all of them.
//! - [`code`] is the erasure code alone, for one message of 1 byte to 32 MiB: no allocation, no input or
//!   output, no clock, no `std`. The crate `cloudburst-proto` is the transport as a state machine
//!   without sockets and clock, for simulators and other runtimes.
//!
//! # How it works
//!
//! One task, the driver, owns the state machine and all sockets; an [`Endpoint`] is a handle that talks
//! to it, cheap to clone. Several sockets are bound so that networks which spread by ports take several
//! paths at once: every pair of a socket of ours and an address of the peer is a path.
//!
//! The content of a message is copied once on its way out, to where it is coded together with its
//! envelope, and once on its way in, from the memory of its decoder, which the next message uses.
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
mod closing;
mod commands;
mod config;
mod driver;
mod endpoint;
mod error;
mod events;
mod group;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod icmp;
pub mod memory;
mod notices;
mod options;
mod outgoing;
mod pending_request;
mod ports;
mod received;
mod remotes;
mod requests;
pub mod runtime;
mod socket;
mod start;
mod statistics;
mod timer;
mod unanswered;
mod watched;

pub use self::{
    closing::{CloseReport, ClosedMessages},
    config::EndpointConfig,
    endpoint::Endpoint,
    error::{
        BindError, Closed, ConnectError, EndpointConfigError, Error, PeerError, ReplyError,
        RequestError, SendError, TrySendError,
    },
    events::{EndpointEvent, Events},
    group::{GroupOutcome, GroupSending},
    outgoing::Sending,
    ports::{Ports, PortsError},
    received::Received,
    remotes::{Remotes, RemotesError},
    requests::IntoReply,
    statistics::{CompletionExemplar, CompletionHistogram, EndpointStatistics, SocketStatistics},
};

pub use cloudburst_code::{self as code, Schedule};
pub use cloudburst_proto::{
    BusyAnswers, ConfigError, CongestionControl, ConnectRefused, EcnState, Failure, FailureReason,
    ForeignPeer, FourTuple, GoneReason, Health, IDENTITY_BYTES, Identity, IdentityError, Key,
    KeyError, KeyKind, KeyMismatch, Keyring, KeyringError, MAX_LIFETIME, PathChoice, PathReport,
    PeerId, Priority, PublicKey, Quotas, Reason, Receipt, Refusals, Reservation, SECRET_BYTES,
    SecretKey, Security, SendOptions, SendRefused, SocketId, StartError, TransportStatistics,
    Undelivered,
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
