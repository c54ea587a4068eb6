//! Checks of links that fail during the run.

use super::{Checked, below, in_range, require};
use crate::scenario::FabricSettings;

/// Longest time that a run may last.
const MOST_US: f64 = 1e9;

pub(super) fn check_outages(fabric: &FabricSettings) -> Checked {
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
