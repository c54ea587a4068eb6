//! Datagrams: version 2 of our own format.
//!
//! ```text
//!  0        1        2        4           8          16          24
//! +--------+--------+--------+-----------+-----------+-----------+------+-----+
//! | 2|kind | key id | path   | sent, µs  | session   | sequence  | body | tag |
//! +--------+--------+--------+-----------+-----------+-----------+------+-----+
//! ```
//!
//! All in network byte order. With a key the body is encrypted, the header is
//! authenticated with it, and the tag follows; with key id 0 a [`check`] takes the tag's place,
//! but not behind symbols.
//! The reference *Cloudburst's datagrams* of the book has every field, the
//! reasons and test vectors.
//!
//! To send, a [`Sealer`] writes a datagram around a body:
//!
//! ```
//! use cloudburst_wire::{Query, Body, Header, Keyring, Stamp};
//!
//! let keys = Keyring::default();
//! let (session, own) = (7, 8);
//! let mut datagram = [0; 100];
//! let stamp = Stamp { path: 1, sent_us: 1_000, sequence: 0 };
//! keys.sealer(session)
//!     .write(stamp, &mut datagram, |body| Query { message: 5 }.write(body))?;
//!
//! let header = Header::parse(&datagram)?;
//! let opener = keys.opener(header.key_id, header.session)?;
//! let body = opener.open(&header, &mut datagram)?;
//! assert_eq!(Body::parse(header.kind, body, own)?, Body::Query(Query { message: 5 }));
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! The caller that receives also refuses its own session (somebody reflects) and asks
//! the [`ReplayWindow`] of the header's session and path, before and after
//! opening.

mod answer;
mod body;
mod field;
mod header;
mod identity;
mod keyring;
mod noise;
mod replay;
mod report;
mod seal;
mod size;
mod time;
mod token;

pub use answer::{Busy, BusyReason, Challenge, Outcome, Pong, Progress, ProgressState, Stop};
pub use body::{Body, Ping, Query, Symbol, TokenBody};
pub use field::{BufferTooShort, Written};
pub use header::{HEADER_BYTES, Header, Malformed, PacketKind, STATELESS_PATH, VERSION};
pub use identity::{IDENTITY_BYTES, IdentityError, PublicKey, SecretKey};
pub use keyring::{Key, KeyError, Keyring, KeyringError, MAX_KEYS, SECRET_BYTES};
pub use noise::{
    ACCEPTANCE_BYTES, Acceptance, Clear, Credentials, EPHEMERAL_BYTES, Initiator, NotAuthentic,
    Offer, Pattern, Responder, TrafficKeys,
};
pub use replay::{REPLAY_WINDOW, ReplayWindow, Replayed};
pub use report::{Echo, REPORT_BYTES, Report, Reports};
pub use seal::{OpenError, Opener, Sealer, Stamp, check};
pub use size::{
    CHECK_BYTES, MIN_QUESTION_BYTES, MIN_SYMBOL_BYTES, TAG_BYTES, question_datagram_bytes,
    symbol_bytes, symbol_datagram_bytes,
};
pub use time::Time;
pub use token::{SECRET_PERIOD, TOKEN_BYTES, TokenError, TokenMint};

#[cfg(test)]
mod tests;
