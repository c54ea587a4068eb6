//! The protocol: messages in bursts until the receiver says stop.
//!
//! A pure state machine. It has no socket, no clock, no thread and no source of
//! randomness but the seed: datagrams and the time come in by calls, datagrams,
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
//! After every call a host takes what [`Endpoint::poll_transmit`] and
//! [`Endpoint::poll_event`] give until they give nothing more, and calls
//! [`Endpoint::handle_timeout`] when [`Endpoint::next_deadline`] has come.

mod address;
mod blame;
mod bottleneck;
mod config;
mod endpoint;
pub mod envelope;
mod estimate;
mod event;
mod inbound;
mod incoming;
mod machine;
mod native;
mod outgoing;
mod pacer;
pub mod packet;
mod path;
mod paths;
mod peer;
mod peers;
mod renewal;
mod room;
mod spare;
mod statistics;
mod survey;
mod time;
mod timers;
mod window;

pub use self::{
    config::{
        Budget, Config, ConfigError, DEFAULT_INITIAL_ROUND_TRIP, DEFAULT_LINK_BITS_PER_S,
        Datagrams, MAX_DATAGRAM_BYTES, MAX_LIFETIME, MIN_DATAGRAM_BYTES, Quotas,
    },
    endpoint::Endpoint,
    event::{
        ConnectError, Ecn, Event, Health, Kind, PathReport, PeerId, Reason, Receipt, Route,
        SendError, SendId, SocketId, Transmit, Undelivered,
    },
    machine::Machine,
    packet::Keyring,
    statistics::{Refusals, Statistics},
    time::Time,
};
