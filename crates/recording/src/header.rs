//! The header of a recording: what holds for all of it.

use serde::{Deserialize, Serialize};

use super::record::MAX_US;

/// States what holds for a whole recording, and what of it was not seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    /// The program that wrote it, with its version.
    pub written_by: String,
    /// Seconds from 1970 to its beginning, UTC.
    pub started_unix_s: u64,
    /// Microseconds that it covers.
    pub duration_us: u64,
    /// Milliseconds between two looks at the flow table.
    pub look_every_ms: u64,
    /// Looks at the flow table.
    pub looks: u64,
    /// Flows in the file; the writer fills this in.
    pub flows: u64,
    /// Unit of the threshold in force: packets or bytes.
    pub unit: ThresholdUnit,
    /// The threshold in force at the beginning.
    pub threshold: u32,
    /// Rates of the short and of the long tunnel in Mbit/s, where they were stated.
    pub rates_mbit: Option<[u32; 2]>,
    /// Counts of flows, packets and time that were not seen.
    pub unseen: Unseen,
}

impl Header {
    /// Says what no recording has, if there is such a number.
    pub(crate) fn problem(&self) -> Option<&'static str> {
        if self.duration_us == 0 {
            Some("a recording of no time")
        } else if self.duration_us > MAX_US {
            Some("a recording of more than a year")
        } else if self.unseen.blind_us > self.duration_us {
            Some("more time without a look than there was")
        } else if self.rates_mbit.is_some_and(|it| it.contains(&0)) {
            Some("a tunnel without a rate")
        } else {
            None
        }
    }

    /// Returns the nearest that has no such problem.
    pub(crate) fn clamped(self) -> Self {
        let duration_us = self.duration_us.clamp(1, MAX_US);
        Self {
            duration_us,
            rates_mbit: self.rates_mbit.filter(|it| !it.contains(&0)),
            unseen: Unseen {
                blind_us: self.unseen.blind_us.min(duration_us),
                ..self.unseen
            },
            ..self
        }
    }
}

/// Counts what a recording does not hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Unseen {
    /// Flows that began and were not seen to: gone again before a look, evicted for others or started
    /// again under the same ports, or beyond those that the recorder watches at a time.
    pub missed: u64,
    /// Flows that the full flow table had no entry for.
    pub untracked: u64,
    /// Flows that ended when the file was full.
    pub beyond_file: u64,
    /// Flows in the file whose end was not seen, so that their sizes are the least that they had.
    pub vanished: u64,
    /// Microseconds in which there was no table to look at, or it could not be read.
    pub blind_us: u64,
}

impl Unseen {
    /// Flows that are not in the file.
    #[must_use]
    pub fn flows(&self) -> u64 {
        self.missed
            .saturating_add(self.untracked)
            .saturating_add(self.beyond_file)
    }
}

/// Names what a threshold counts of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ThresholdUnit {
    /// Packets.
    #[default]
    Packets,
    /// Bytes on the wire.
    Bytes,
}
