//! The devices that packets are redirected into, and what those that they come in by are called on
//! their links.
//!
//! A device has a slot, in which what was put into it is counted, and keeps that as long as it is
//! there: a class that moves away and comes back finds the counts that it left.

use std::collections::BTreeMap;

use aya::maps::xdp::DevMap;
use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray, PerCpuValues};
use aya::util::nr_cpus;
use splitter_policy::egress_counts::EgressCounts;
use splitter_policy::forward::{Mac, TARGET_SLOTS as SLOTS};
use splitter_policy::next_hop::Generation;

use super::error::{map_errno, map_error, typed};
use super::names::{LAN_ADDRESSES, REDIRECTED, ROUTING_GENERATION, TARGET_SLOTS, TARGETS};
use super::next_hops::begin_generation;
use super::shapes::Shape;
use super::{KernelError, Pins};

/// Lists what the redirect maps are to hold, or hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Targets {
    /// The tunnels' devices as the programs number them, in order.
    pub tunnels: Vec<u32>,
    /// The link address of each device that packets come in by.
    pub lan: BTreeMap<u32, [u8; 6]>,
}

impl Targets {
    /// Tells if packets of a class may be put into the device of that number.
    #[must_use]
    pub fn have(&self, device: u32) -> bool {
        self.tunnels.iter().any(|target| target >> 1 == device)
    }
}

/// The maps of both.
pub(super) struct TargetMaps {
    devices: DevMap<MapData>,
    slots: HashMap<MapData, u32, u32>,
    redirected: PerCpuArray<MapData, Shape<EgressCounts>>,
    lan: HashMap<MapData, u32, Shape<Mac>>,
    generation: Array<MapData, Shape<Generation>>,
}

impl TargetMaps {
    pub(super) fn open(pins: &Pins) -> Result<Self, KernelError> {
        let open = |name| {
            MapData::from_pin(pins.map(name)).map_err(|source| KernelError::Map { name, source })
        };
        let devices = Map::DevMap(open(TARGETS)?);
        let slots = Map::HashMap(open(TARGET_SLOTS)?);
        let redirected = Map::PerCpuArray(open(REDIRECTED)?);
        let lan = Map::HashMap(open(LAN_ADDRESSES)?);
        let generation = Map::Array(open(ROUTING_GENERATION)?);
        Ok(Self {
            devices: typed(TARGETS, DevMap::try_from(devices))?,
            slots: typed(TARGET_SLOTS, HashMap::try_from(slots))?,
            redirected: typed(REDIRECTED, PerCpuArray::try_from(redirected))?,
            lan: typed(LAN_ADDRESSES, HashMap::try_from(lan))?,
            generation: typed(ROUTING_GENERATION, Array::try_from(generation))?,
        })
    }

    /// What they hold. The kernel removes devices that go.
    pub(super) fn read(&self) -> Result<Targets, KernelError> {
        let mut tunnels = Vec::new();
        for (target, slot) in self.targets()? {
            if self.device_in(slot)? == Some(target >> 1) {
                tunnels.push(target);
            }
        }
        tunnels.sort_unstable();
        let lan = self.lan.iter().map(|entry| {
            let (device, mac) = entry?;
            Ok((device, mac.0.bytes()))
        });
        Ok(Targets {
            tunnels,
            lan: typed(LAN_ADDRESSES, lan.collect::<Result<_, MapError>>())?,
        })
    }

    /// Has them hold this and nothing else. What the programs have noted of next hops is void then.
    pub(super) fn write(&mut self, wanted: &Targets) -> Result<(), KernelError> {
        let (found, noted) = (self.read()?, self.targets()?);
        for (target, _) in noted.iter().filter(|it| !wanted.tunnels.contains(&it.0)) {
            let removed = self.slots.remove(target);
            removed
                .or_else(unless_gone)
                .map_err(map_error(TARGET_SLOTS))?;
        }
        for device in found.lan.keys().filter(|it| !wanted.lan.contains_key(it)) {
            let removed = self.lan.remove(device);
            removed
                .or_else(unless_gone)
                .map_err(map_error(LAN_ADDRESSES))?;
        }
        for (&device, &mac) in &wanted.lan {
            let inserted = self.lan.insert(device, Shape(Mac::new(mac)), 0);
            inserted.map_err(map_error(LAN_ADDRESSES))?;
        }
        // Before a slot is another device's.
        self.void_next_hops()?;
        for &target in &wanted.tunnels {
            let slot = self.slot_for(target >> 1)?;
            let inserted = self.slots.insert(target, slot, 0);
            inserted.map_err(map_error(TARGET_SLOTS))?;
        }
        // Whoever vouches may have done so meanwhile, for routes by the devices that there were.
        self.void_next_hops()
    }

    /// What was put into the device of that number on all CPUs; zeros where nothing can be.
    pub(super) fn redirected(&self, device: u32) -> Result<EgressCounts, KernelError> {
        let mut sum = EgressCounts::ZERO;
        if let Some(slot) = self.slot_of(device)? {
            let per_cpu = self.redirected.get(&slot, 0);
            let per_cpu = per_cpu.map_err(map_error(REDIRECTED))?;
            per_cpu.iter().for_each(|counts| sum.add(&counts.0));
        }
        Ok(sum)
    }

    fn void_next_hops(&mut self) -> Result<(), KernelError> {
        // What serves many is not believed before whoever vouches has seen the devices.
        begin_generation(&mut self.generation).map(|_| ())
    }

    fn slot_for(&mut self, device: u32) -> Result<u32, KernelError> {
        if let Some(slot) = self.slot_of(device)? {
            return Ok(slot);
        }
        let used: Vec<u32> = self.targets()?.into_iter().map(|it| it.1).collect();
        let mut slots = Vec::new();
        for slot in (0..SLOTS).filter(|it| !used.contains(it)) {
            // Rather one in which nothing was counted.
            slots.push((self.device_in(slot)?.is_some(), slot));
        }
        let full = KernelError::NoTargetSlot { device };
        let (_, slot) = slots.into_iter().min().ok_or(full)?;
        let cpus = nr_cpus().map_err(|(_, source)| KernelError::Mapping { source })?;
        let zeros = PerCpuValues::try_from(vec![Shape(EgressCounts::ZERO); cpus])
            .map_err(|source| KernelError::Mapping { source })?;
        let zeroed = self.redirected.set(slot, zeros, 0);
        zeroed.map_err(map_error(REDIRECTED))?;
        let set = self.devices.set(slot, device, None, 0);
        set.map_err(|source| KernelError::Target { device, source })?;
        Ok(slot)
    }

    fn slot_of(&self, device: u32) -> Result<Option<u32>, KernelError> {
        for slot in 0..SLOTS {
            if self.device_in(slot)? == Some(device) {
                return Ok(Some(slot));
            }
        }
        Ok(None)
    }

    fn device_in(&self, slot: u32) -> Result<Option<u32>, KernelError> {
        match self.devices.get(slot, 0) {
            Ok(value) => Ok(Some(value.if_index)),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(map_error(TARGETS)(error)),
        }
    }

    /// Which slots packets for a tunnel may be put into, whether their devices are there or not.
    fn targets(&self) -> Result<Vec<(u32, u32)>, KernelError> {
        let targets = self.slots.iter().collect::<Result<Vec<_>, _>>();
        targets.map_err(map_error(TARGET_SLOTS))
    }
}

fn unless_gone(error: MapError) -> Result<(), MapError> {
    match map_errno(&error) {
        Some(libc::ENOENT) => Ok(()),
        _ => Err(error),
    }
}
