//! The papers' figures, measured anew and held against what the papers print.
//!
//! - [`computation`], [`coding`], [`header`]: Cloudburst's choice of its code's
//!   parameters (§IV-A), by the ids `C1`, `C2` and `C3`.
//! - [`overhead`]: how many packets a message takes until it can be decoded, on
//!   the wire that `cloudburst` speaks.

pub mod coding;
pub mod computation;
pub mod elimination;
pub mod figure;
pub mod header;
pub mod overhead;
pub mod sweep;
pub mod tally;
pub mod trials;
