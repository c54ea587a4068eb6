//! What the programs may believe of the next hops that they have noted, and which neighbours they send to.

use std::fmt;
use std::time::Duration;

use aya::maps::xdp::DevMap;
use aya::maps::{Array, HashMap, Map, MapData, MapError};
use nix::time::{ClockId, clock_gettime};
use splitter_config::SteeringMode;
use splitter_policy::forward::{Mac, TARGET_SLOTS as SLOTS};
use splitter_policy::next_hop::{Generation, NextHopTrust, TunnelHops, neighbour};
use splitter_policy::prefix_lengths::PrefixLengths;

use super::error::{map_error, typed};
use super::names::{
    NEIGHBOURS, PREFIX_LENGTHS, ROUTING_GENERATION, TARGETS, TUNNEL_HOPS, VOUCHED_UNTIL,
};
use super::shapes::Shape;
use super::tunnel_hops::{TunnelLink, described};
use super::{KernelError, Pins};

/// The maps of next hops of an instance whose program redirects.
pub struct NextHops {
    generation: Array<MapData, Shape<Generation>>,
    vouched_until_ns: Array<MapData, u64>,
    lengths: Array<MapData, Shape<PrefixLengths>>,
    neighbours: HashMap<MapData, u64, u64>,
    devices: DevMap<MapData>,
    /// Not of an older build's programs.
    tunnels: Option<Array<MapData, Shape<TunnelHops>>>,
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
        let generation = Map::Array(open(ROUTING_GENERATION)?);
        let vouched = Map::Array(open(VOUCHED_UNTIL)?);
        let lengths = Map::Array(open(PREFIX_LENGTHS)?);
        let neighbours = Map::LruHashMap(open(NEIGHBOURS)?);
        let devices = Map::DevMap(open(TARGETS)?);
        let tunnels = match pins.map(TUNNEL_HOPS).exists() {
            true => Some(Map::Array(open(TUNNEL_HOPS)?)),
            false => None,
        };
        Ok(Some(Self {
            generation: typed(ROUTING_GENERATION, Array::try_from(generation))?,
            vouched_until_ns: typed(VOUCHED_UNTIL, Array::try_from(vouched))?,
            lengths: typed(PREFIX_LENGTHS, Array::try_from(lengths))?,
            neighbours: typed(NEIGHBOURS, HashMap::try_from(neighbours))?,
            devices: typed(TARGETS, DevMap::try_from(devices))?,
            tunnels: typed(TUNNEL_HOPS, tunnels.map(Array::try_from).transpose())?,
        }))
    }

    /// The generation that is in force: of whoever has voided last what was noted.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn generation(&self) -> Result<Generation, KernelError> {
        let read = self.generation.get(&0, 0);
        read.map(|it| it.0).map_err(map_error(ROUTING_GENERATION))
    }

    /// Voids what was noted of next hops so far, and returns the generation of what is from now on.
    ///
    /// # Errors
    /// When the map cannot be written.
    pub fn begin(&mut self) -> Result<Generation, KernelError> {
        begin_generation(&mut self.generation)
    }

    /// Has the programs know how much of a packet rules and routes look at. What was noted stays what it was:
    /// a generation has to [begin](Self::begin) afterwards.
    ///
    /// # Errors
    /// When the map cannot be written.
    pub fn write_lengths(&mut self, lengths: &PrefixLengths) -> Result<(), KernelError> {
        let written = self.lengths.set(0, Shape(*lengths), 0);
        written.map_err(map_error(PREFIX_LENGTHS))
    }

    /// Vouches for what is noted in the generation in force for
    /// [`PERIOD_NS`](NextHopTrust::PERIOD_NS): all that had changed at `heard`, read from
    /// [`now`](Self::now), has been heard of, and what it voids is void.
    ///
    /// # Errors
    /// When the map cannot be written.
    pub fn vouch(&mut self, heard: Duration) -> Result<(), KernelError> {
        self.vouch_until(nanoseconds(heard).saturating_add(NextHopTrust::PERIOD_NS))
    }

    /// Vouches for nothing any more: the kernel is asked for each packet.
    ///
    /// # Errors
    /// When the map cannot be written.
    pub fn distrust(&mut self) -> Result<(), KernelError> {
        self.vouch_until(0)
    }

    /// The time by the clock of [`vouch`](Self::vouch): `CLOCK_MONOTONIC`.
    #[must_use]
    pub fn now() -> Duration {
        Duration::from_nanos(now_ns())
    }

    fn vouch_until(&mut self, until_ns: u64) -> Result<(), KernelError> {
        let written = self.vouched_until_ns.set(0, until_ns, 0);
        written.map_err(map_error(VOUCHED_UNTIL))
    }

    /// The devices that packets are put into, by their numbers.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn devices(&self) -> Result<Vec<u32>, KernelError> {
        let mut devices = Vec::new();
        for slot in 0..SLOTS {
            devices.extend(self.device_in(slot)?);
        }
        devices.sort_unstable();
        devices.dedup();
        Ok(devices)
    }

    /// Has the programs know the next hops of the tunnels that packets choose among, in the order of the configuration, as
    /// far as they may put packets into their devices. What is so already is left as it is.
    ///
    /// # Errors
    /// When a map cannot be read or written.
    pub fn write_tunnels(&mut self, tunnels: &[Option<TunnelLink>]) -> Result<(), KernelError> {
        let mut slots = Vec::new();
        for slot in 0..SLOTS {
            slots.extend(self.device_in(slot)?.map(|device| (device, slot)));
        }
        let Some(map) = &mut self.tunnels else {
            return Ok(());
        };
        for (family, wanted) in (0..).zip(described(tunnels, &slots)) {
            let Shape(found) = map.get(&family, 0).map_err(map_error(TUNNEL_HOPS))?;
            if found != wanted {
                let written = map.set(family, Shape(wanted), 0);
                written.map_err(map_error(TUNNEL_HOPS))?;
            }
        }
        Ok(())
    }

    /// Reads the next hops of the tunnels that packets choose among, of IPv4 and of IPv6, as the programs have them; none
    /// where they are of an older build.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn tunnels(&self) -> Result<Option<[TunnelHops; 2]>, KernelError> {
        let Some(map) = &self.tunnels else {
            return Ok(None);
        };
        let of = |family| map.get(&family, 0).map(|it| it.0);
        let both = of(0).and_then(|v4| Ok([v4, of(1)?]));
        both.map(Some).map_err(map_error(TUNNEL_HOPS))
    }

    /// Tells if somebody vouches for next hops now.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn are_vouched_for(&self) -> Result<bool, KernelError> {
        let until_ns = self.vouched_until_ns.get(&0, 0);
        until_ns
            .map(|it| it > now_ns())
            .map_err(map_error(VOUCHED_UNTIL))
    }

    fn device_in(&self, slot: u32) -> Result<Option<u32>, KernelError> {
        match self.devices.get(slot, 0) {
            Ok(found) => Ok(Some(found.if_index)),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(map_error(TARGETS)(error)),
        }
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
            if self.device_in(slot)? != Some(device) {
                continue;
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
}

/// Begins a generation: what was noted in another is void.
pub(super) fn begin_generation(
    map: &mut Array<MapData, Shape<Generation>>,
) -> Result<Generation, KernelError> {
    // By the time none had the number before: those who void next hops do not ask each other.
    let generation = Generation::new(now_ns());
    let written = map.set(0, Shape(generation), 0);
    written.map_err(map_error(ROUTING_GENERATION))?;
    Ok(generation)
}

impl fmt::Debug for NextHops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NextHops").finish_non_exhaustive()
    }
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from);
    now.map_or(0, nanoseconds)
}

fn nanoseconds(duration: Duration) -> u64 {
    duration.as_nanos().try_into().unwrap_or(u64::MAX)
}
