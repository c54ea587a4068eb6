//! Messages that must not wait: erasure-coded, burst over several paths until
//! the receiver says stop.
//!
//! - [`code`]: the erasure code, for one message of 1 byte to 32 MiB. No
//!   allocation, no input or output, no clock; works without `std`.
//! - [`wire`]: the header in front of every symbol.
//! - `protocol` (feature `std`): the transport as a state machine without sockets
//!   and clock.
//! - `net` (feature `tokio`): the transport on UDP sockets; `Endpoint` is where
//!   most users begin.
//!
//! The design is that of *Cloudburst* (see the repository's documentation for
//! where it deviates and why).

#![cfg_attr(not(any(feature = "std", test)), no_std)]

pub mod code;
#[cfg(feature = "tokio")]
pub mod net;
#[cfg(feature = "std")]
pub mod protocol;
pub mod wire;

#[cfg(feature = "tokio")]
pub use net::{Config, Endpoint, Ports, Received, Remotes, Sending, blocking};
#[cfg(feature = "tokio")]
pub use protocol::{
    Keyring, PeerId, Receipt, Undelivered,
    packet::{Key, KeyError, KeyringError},
};

#[cfg(all(doctest, feature = "tokio"))]
#[doc = include_str!("../README.md")]
struct Readme;
