//! The protocol: messages in bursts until the receiver says stop.
//!
//! A pure state machine. It has no socket, no clock and no thread, and asks the system once, for
//! the secret that all that is random comes from: datagrams and the time come in by calls, datagrams,
//! events and a deadline are asked for. So the driver for sockets, a simulator
//! and tests in virtual time host the same code.
//!
//! ```text
//!            send, handle_datagram, handle_timeout
//!                           |
//!                           v
//!   host <-- events -- Endpoint -- datagrams --> host
//!                           |
//!                           v
//!                     next_deadline
//! ```
//!
//! After every call a host takes what [`Transport::poll_transmit`] and
//! [`Transport::poll_event`] give until they give nothing more, and calls
//! [`Transport::handle_timeout`] when [`Transport::next_deadline`] has come.

// Peers and strangers report much of what is reckoned with here: nothing may overflow, whatever they say.
// A test that does fails, as it should.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod answers;
mod buffer_pool;
mod cancellations;
mod config;
mod control;
mod event;
mod feedback;
mod handshake;
mod incoming;
mod intake;
mod machine;
mod outbound;
mod outgoing;
mod path;
mod path_manager;
mod paths;
mod peer_map;
mod questions;
mod quota;
mod receiver;
mod router;
mod scheduler;
mod send_options;
mod sender;
mod shared_message;
mod statistics;
mod timers;
mod transmit;
mod transport;
mod upkeep;

use cloudburst_wire as packet;
pub use cloudburst_wire::envelope;

/// The clock of hosts, under the name that it has here.
mod time {
    pub(crate) use cloudburst_wire::Time;
}

pub use cloudburst_congestion::{
    CongestionControl, DEFAULT_INITIAL_ROUND_TRIP, MIN_DATAGRAM_BYTES, PathChoice, Reservation,
};
pub use cloudburst_security::{Identity, KeyMismatch, RandomnessError, RefusedKeys, Security};
pub use cloudburst_wire::{
    BusyAnswers, Failure, FailureReason, IDENTITY_BYTES, IdentityError, Key, KeyError, KeyKind,
    Keyring, KeyringError, MAX_FAILURE_TEXT_BYTES, PublicKey, SECRET_BYTES, SecretKey, Time,
};

pub use self::{
    config::{
        Budget, ConfigError, Datagrams, HostCapacity, MAX_DATAGRAM_BYTES, MAX_LIFETIME, Quotas,
        TransportConfig,
    },
    event::{
        ConnectRefused, Ecn, EcnState, Event, ForeignPeer, FourTuple, GoneReason, Health, IcmpKind,
        MessageKind, PathReport, PeerId, Reason, Receipt, SendId, SendRefused, SocketId, Transmit,
        TransportId, Undelivered,
    },
    machine::Machine,
    path_manager::RETURN_WITHIN,
    send_options::{Priority, SendOptions},
    shared_message::SharedMessage,
    statistics::{Refusals, TransportStatistics},
    transport::{StartError, Transport},
};
