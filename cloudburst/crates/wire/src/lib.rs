//! Datagrams: version 3 of our own format.
//!
//! ```text
//!  0        1        2        4           8          16          24
//! +--------+--------+--------+-----------+-----------+-----------+--------+------+-----+
//! | 3|kind | form   | path   | sent, µs  | index     | sequence  | prefix | body | tag |
//! +--------+--------+--------+-----------+-----------+-----------+--------+------+-----+
//! ```
//!
//! All in network byte order. The body is encrypted, header and prefix are authenticated with it,
//! and the tag follows; in the plain form, which only endpoints without keys speak, a [`check`]
//! takes the tag's place, but not behind symbols. The prefix is empty, or a message of the
//! handshake. The reference *Cloudburst's datagrams* of the book has every field, the
//! reasons and test vectors.
//!
//! To send, a [`Sealer`] writes a datagram around a body:
//!
//! ```
//! use cloudburst_wire::{Query, Body, Header, Opener, Sealer, Stamp};
//!
//! let (index, key, own) = (7, [1; 32], 8);
//! let mut datagram = [0; 100];
//! let stamp = Stamp { path: 1, sent_us: 1_000, sequence: 0 };
//! Sealer::sealed(index, &key)
//!     .write(stamp, &mut datagram, |body| Query { message: 5 }.write(body))?;
//!
//! let header = Header::parse(&datagram)?;
//! let body = Opener::sealed(&key).open(&header, &mut datagram)?;
//! assert_eq!(Body::parse(header.kind, body, own)?, Body::Query(Query { message: 5 }));
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! The caller that receives also asks the [`ReplayWindow`] of the header's path, before and after
//! opening.

// Its input is what anybody sends: nothing may overflow, whatever it is.
// A test that does fails, as it should.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod answer;
mod body;
mod cipher;
mod control;
mod counter;
mod ecn;
pub mod envelope;
mod failure;
mod field;
mod header;
mod hello;
mod identity;
mod key_kind;
mod keyring;
mod noise;
mod replay;
mod report;
mod seal;
mod size;
mod time;
mod token;
mod varint;

pub use answer::{
    Busy, BusyAnswers, BusyReason, Challenge, Outcome, Pong, Progress, ProgressState, Stop,
};
pub use body::{Body, Cancel, Goodbye, Ping, Query, Symbol, TokenBody};
pub use control::{Answer, Asked, Question};
pub use counter::{release, tally, untally};
pub use ecn::{Ecn, EcnCounts};
pub use failure::{Failure, FailureReason, MAX_FAILURE_TEXT_BYTES};
pub use field::{BufferTooShort, Written};
pub use header::{Form, HEADER_BYTES, Header, Malformed, PacketKind, STATELESS_PATH, VERSION};
pub use hello::{Gate, Hello, hello_bytes, write_hello};
pub use identity::{IDENTITY_BYTES, IdentityError, PublicKey, SecretKey};
pub use key_kind::KeyKind;
pub use keyring::{Key, KeyError, Keyring, KeyringError, MAX_KEYS, SECRET_BYTES};
pub use noise::{
    ACCEPTANCE_BYTES, Acceptance, Clear, Credentials, EPHEMERAL_BYTES, Initiator, NOBODY_BEFORE,
    NotAuthentic, Offer, Pattern, Responder, TrafficKeys,
};
pub use replay::{REPLAY_WINDOW, ReplayWindow, Replayed};
pub use report::{Echo, MIN_REPORT_BYTES, Report, Reports};
pub use seal::{KEY_BYTES, OpenError, Opener, Sealer, Stamp, check};
pub use size::{
    CHECK_BYTES, Framing, MIN_QUESTION_BYTES, MIN_SYMBOL_BYTES, TAG_BYTES, question_datagram_bytes,
    symbol_bytes, symbol_datagram_bytes,
};
pub use time::Time;
pub use token::{SECRET_PERIOD, TOKEN_BYTES, TokenError, TokenMint};

#[cfg(test)]
mod tests;
#[cfg(test)]
mod vectors;
