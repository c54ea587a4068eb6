//! The unit of thresholds.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Says what a threshold counts of a flow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ThresholdUnit {
    /// Packets.
    #[default]
    Packets,
    /// Bytes on the wire.
    Bytes,
}

impl ThresholdUnit {
    /// Every unit, by its name in configurations.
    pub const NAMES: &[(&'static str, Self)] =
        &[("packets", Self::Packets), ("bytes", Self::Bytes)];

    /// The name of the unit in configurations and messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Packets => "packets",
            Self::Bytes => "bytes",
        }
    }
}

impl fmt::Display for ThresholdUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
