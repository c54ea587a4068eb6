//! What came back to the site, as the program at the egress of its interfaces counts it.

use std::collections::HashMap;

use aya::maps::{HashMap as BpfHashMap, Map, MapData};
use splitter_policy::flow::{FlowKey, FlowKeyV6};
use splitter_policy::reverse::{ReverseEntry, reversed};

use super::error::{map_error, typed};
use super::names::REVERSE;
use super::shapes::Shape;
use super::{Dataplane, KernelError, Pins};

/// Each takes some 150 bytes of the kernel's memory.
const MOST: u32 = 65_536;
/// The kernel hands the places of such a table to its CPUs by the hundred.
const LEAST: u32 = 4_096;

/// How many flows' reverse directions are counted where so many flows are tracked.
pub(super) fn capacity(table_size: u32) -> u32 {
    table_size.clamp(LEAST, MOST)
}

/// The counts by flow.
pub(super) struct ReverseMap(BpfHashMap<MapData, Shape<FlowKeyV6>, Shape<ReverseEntry>>);

impl ReverseMap {
    /// Opens what is pinned; none where programs of an earlier build are, which do not count it.
    pub(super) fn open(pins: &Pins) -> Result<Option<Self>, KernelError> {
        let path = pins.map(REVERSE);
        if !path.exists() {
            return Ok(None);
        }
        let counts = MapData::from_pin(path).map_err(map_error(REVERSE))?;
        let counts = BpfHashMap::try_from(Map::LruHashMap(counts));
        Ok(Some(Self(typed(REVERSE, counts)?)))
    }
}

/// The reverse directions of flows, as they were counted when it was looked.
#[derive(Clone, Debug, Default)]
pub struct ReverseCounts(HashMap<FlowKeyV6, ReverseEntry>);

impl ReverseCounts {
    /// Takes what was counted of these directions.
    #[cfg(test)]
    pub(crate) fn new(counts: impl IntoIterator<Item = (FlowKeyV6, ReverseEntry)>) -> Self {
        Self(counts.into_iter().collect())
    }

    /// Returns what came back of a flow; none where nothing was seen of that, or the flow has no ports
    /// by which it would be known.
    #[must_use]
    pub fn of(&self, flow: &FlowKey) -> Option<&ReverseEntry> {
        self.0.get(&reversed(flow)?.as_v6())
    }
}

impl Dataplane {
    /// Reads the reverse directions of all flows.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn reverse_counts(&self) -> Result<ReverseCounts, KernelError> {
        let Some(ReverseMap(map)) = &self.reverse else {
            return Ok(ReverseCounts::default());
        };
        // A walk that begins again because a key was forgotten meanwhile would not end on its own.
        let walk = map.iter().take(2 * MOST as usize);
        let read = walk.map(|item| item.map(|(key, entry)| (key.0, entry.0)));
        let counts = read.collect::<Result<_, _>>().map_err(map_error(REVERSE))?;
        Ok(ReverseCounts(counts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_follows_the_flow_table_within_bounds() {
        assert_eq!([0, 10_000, 1 << 20].map(capacity), [LEAST, 10_000, MOST]);
    }
}
