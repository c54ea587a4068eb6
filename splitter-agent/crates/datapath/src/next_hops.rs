//! What the programs may believe of the next hops that they have noted, and which neighbours they send to.

use std::fmt;
use std::time::Duration;

use aya::maps::xdp::DevMap;
use aya::maps::{Array, HashMap, Map, MapData, MapError};
use nix::time::{ClockId, clock_gettime};
use splitter_config::SteeringMode;
use splitter_policy::forward::{Mac, TARGET_SLOTS as SLOTS};
use splitter_policy::next_hop::{NextHopTrust, neighbour};

use super::error::{map_error, typed};
use super::names::{NEIGHBOURS, NEXT_HOP_TRUST, TARGETS};
use super::shapes::Shape;
use super::{KernelError, Pins};

/// The maps of next hops of an instance whose program redirects.
pub struct NextHops {
    trust: Array<MapData, Shape<NextHopTrust>>,
    neighbours: HashMap<MapData, u64, u64>,
    devices: DevMap<MapData>,
}

impl NextHops {
    /// Opens what is pinned; `None` where no program redirects.
    ///
    /// # Errors
    /// When the maps cannot be opened.
    pub fn open(pins: &Pins) -> Result<Option<Self>, KernelError> {
        if pins.pinned() != Some(SteeringMode::Redirect) {
            return Ok(None);
        }
        let open = |name| {
            MapData::from_pin(pins.map(name)).map_err(|source| KernelError::Map { name, source })
        };
        let trust = Map::Array(open(NEXT_HOP_TRUST)?);
        let neighbours = Map::LruHashMap(open(NEIGHBOURS)?);
        let devices = Map::DevMap(open(TARGETS)?);
        Ok(Some(Self {
            trust: typed(NEXT_HOP_TRUST, Array::try_from(trust))?,
            neighbours: typed(NEIGHBOURS, HashMap::try_from(neighbours))?,
            devices: typed(TARGETS, DevMap::try_from(devices))?,
        }))
    }

    /// Voids what was noted of next hops so far, and vouches for so long for what is from now on. Of a
    /// packet, rules and routes look at more than its destination and its traffic class where
    /// `looks_beyond` is set.
    ///
    /// # Errors
    /// When the map cannot be written.
    pub fn renew(&mut self, lasting: Duration, looks_beyond: bool) -> Result<(), KernelError> {
        // Whole, so that it takes nothing back of what somebody else writes at the same time.
        self.write(NextHopTrust {
            generation: draw_generation(),
            until_ns: now_ns().saturating_add(nanoseconds(lasting)),
            looks_beyond: if looks_beyond { NextHopTrust::ALL } else { 0 },
        })
    }

    /// Vouches for nothing any more: the kernel is asked for each packet.
    ///
    /// # Errors
    /// When the map cannot be written.
    pub fn distrust(&mut self) -> Result<(), KernelError> {
        self.write(NextHopTrust {
            generation: draw_generation(),
            ..NextHopTrust::default()
        })
    }

    /// Tells if packets were sent past the network stack to that link address behind that device within
    /// the last `period`.
    ///
    /// # Errors
    /// When a map cannot be read.
    pub fn is_used(
        &self,
        device: u32,
        link_address: [u8; 6],
        period: Duration,
    ) -> Result<bool, KernelError> {
        let since_ns = now_ns().saturating_sub(nanoseconds(period));
        for slot in 0..SLOTS {
            match self.devices.get(slot, 0) {
                Ok(found) if found.if_index == device => {}
                Ok(_) | Err(MapError::KeyNotFound) => continue,
                Err(error) => return Err(map_error(TARGETS)(error)),
            }
            let name = neighbour(Mac::new(link_address), slot);
            match self.neighbours.get(&name, 0) {
                Ok(sent_ns) => return Ok(sent_ns >= since_ns),
                Err(MapError::KeyNotFound) => {}
                Err(error) => return Err(map_error(NEIGHBOURS)(error)),
            }
        }
        Ok(false)
    }

    fn write(&mut self, trust: NextHopTrust) -> Result<(), KernelError> {
        let written = self.trust.set(0, Shape(trust), 0);
        written.map_err(map_error(NEXT_HOP_TRUST))
    }
}

impl fmt::Debug for NextHops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NextHops").finish_non_exhaustive()
    }
}

/// A number that no generation had before: those who void next hops do not ask each other.
pub(super) fn draw_generation() -> u64 {
    now_ns()
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from);
    now.map_or(0, nanoseconds)
}

fn nanoseconds(duration: Duration) -> u64 {
    duration.as_nanos().try_into().unwrap_or(u64::MAX)
}
