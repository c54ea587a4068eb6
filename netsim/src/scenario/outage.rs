//! What a scenario file says of links that fail during the run.

use serde::{Deserialize, Serialize};

use super::Fabric;
use crate::validation::{Checked, below, in_range, require};

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
    /// When, in microseconds from the start of the run.
    pub at_us: f64,
    /// When they work again; without it never.
    #[serde(default)]
    pub back_us: Option<f64>,
    /// So much later policies know, in microseconds, of the failure as of the return.
    #[serde(default)]
    pub known_after_us: f64,
}

/// As long as a run lasts at most.
const MOST_US: f64 = 1e9;

pub(crate) fn check_outages(fabric: &Fabric) -> Checked {
    for (index, outage) in fabric.outage.iter().enumerate() {
        let key = |name: &str| format!("fabric.outage[{index}].{name}");
        below(&key("spine"), outage.spine, fabric.spines, "spines")?;
        if let Some(leaf) = outage.leaf {
            below(&key("leaf"), leaf, fabric.leaves, "leaves")?;
        }
        in_range(&key("at_us"), outage.at_us, 0.0, MOST_US)?;
        in_range(&key("known_after_us"), outage.known_after_us, 0.0, MOST_US)?;
        if let Some(back_us) = outage.back_us {
            in_range(&key("back_us"), back_us, 0.0, MOST_US)?;
            require(
                back_us > outage.at_us,
                &format!("{} = {back_us}", key("back_us")),
                || {
                    format!(
                        "the link fails at {}, and can only return later",
                        outage.at_us
                    )
                },
            )?;
        }
    }
    Ok(())
}
