//! Keys of `[[fabric.outage]]`: links that fail during the run.

use serde::{Deserialize, Serialize};

/// The links of one spine fail, and perhaps come back.
///
/// A link that has failed takes no packets, in either direction; what it had taken still arrives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outage {
    /// Which spine, from 0.
    pub spine: u16,
    /// Only its link to this leaf, from 0; without it those to all.
    #[serde(default)]
    pub leaf: Option<u16>,
    /// Time of the failure, in microseconds from the start of the run.
    pub at_us: f64,
    /// Time at which they work again; without it never.
    #[serde(default)]
    pub back_us: Option<f64>,
    /// Delay after which policies know, in microseconds, of the failure as of the return.
    #[serde(default)]
    pub known_after_us: f64,
}
