//! Recordings: files of flows with sizes, start gaps and classes, and without addresses. A [`Tracker`] makes
//! records of what looks at a flow table find, a [`Writer`] a file of them, and a [`Reader`] reads it.
//!
//! # The file
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `flowrec` and a zero |
//! | 2 | version of the format, little-endian: [`VERSION`] |
//! | 4 | length of the header, little-endian, at most 64 KiB |
//! | | the [`Header`] as JSON |
//! | | the flows in the order of their starts, as many as the header says |
//! | 4 | CRC-32 of all before, little-endian |
//!
//! A flow is a byte of flags and numbers of variable length (LEB128): microseconds since the start of the
//! flow before, microseconds from the first packet to the last, packets and bytes from the site, and
//! packets and bytes to the site where they are known. Most flows take 10 to 15 bytes.
//!
//! The file is not encrypted, and its owner alone may read it: it says how much a site sends and when, though
//! not to whom. Whoever saw the same traffic elsewhere, or knows the sizes of what a server offers, can tell
//! flows by times and sizes.

mod error;
mod header;
mod input;
mod reader;
mod record;
mod tracker;
mod writer;

pub use error::{ReadError, WriteError};
pub use header::{Header, ThresholdUnit, Unseen};
pub use reader::Reader;
pub use record::{Count, FlowEnd, FlowRecord, Transport};
pub use tracker::{Look, Tracker};
pub use writer::Writer;

/// The version of the format that this library writes and reads.
pub const VERSION: u16 = 1;

/// The first bytes of each file.
const MAGIC: [u8; 8] = *b"flowrec\0";

/// No header is longer.
const MAX_HEADER_BYTES: u32 = 64 * 1024;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
