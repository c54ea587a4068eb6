//! The papers' figures, measured again and held against what the papers print.
//!
//! - [`computation`], [`coding`], [`header`]: Cloudburst's choice of its code's
//!   parameters (§IV-A), by the ids `C1`, `C2` and `C3`.
//! - [`cloudburst`]: its evaluation (§V), `C4` to `C11`, simulated.
//! - [`tr`]: TR's figures, `T1` to `T16`, simulated.
//! - [`splitter`]: the splitter's figures, `S1` to `S6`, on real packets, and simulated beside that.
//! - [`artefact`]: the machine that figures were made on, and what each cost.
//! - [`book`]: results that are kept with the sources, and where they come from.
//! - [`changes`]: other settings than those of the scenarios.
//! - [`check`]: claims held against measurements, with a correction for many comparisons.
//! - [`made_by`]: the commits that runs were made at.
//! - [`notes`]: items of the list that are no measurements, `C12` and `C13`.
//! - [`ns3`]: the simulator next to ns-3.
//! - [`mod@progress`]: how far a measurement is.
//! - [`overhead`]: how many packets a message takes until it can be decoded, on
//!   the wire that `cloudburst` speaks.

pub mod artefact;
pub mod book;
pub mod changes;
pub mod check;
pub mod cloudburst;
pub mod coding;
pub mod computation;
pub mod elimination;
pub mod figure;
pub mod header;
pub mod id;
pub mod made_by;
pub mod notes;
pub mod ns3;
pub mod overhead;
pub mod pages;
pub mod progress;
pub mod splitter;
pub mod sweep;
pub mod tr;
pub mod trials;

pub use self::progress::progress;
