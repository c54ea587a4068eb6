//! The devices that packets are redirected into, and what those that they come in by are called on
//! their links.

use std::collections::BTreeMap;
use std::path::Path;

use aya::maps::xdp::DevMapHash;
use aya::maps::{HashMap, Map, MapData, MapError};
use splitter_policy::forward::Mac;

use super::error::{map_error, typed};
use super::names::{LAN_ADDRESSES, TARGETS};
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

/// Both maps.
pub(super) struct TargetMaps {
    tunnels: DevMapHash<MapData>,
    lan: HashMap<MapData, u32, Shape<Mac>>,
}

impl TargetMaps {
    pub(super) fn open(pins: &Pins) -> Result<Self, KernelError> {
        let open = |path: &Path, name| {
            MapData::from_pin(path).map_err(|source| KernelError::Map { name, source })
        };
        let tunnels = Map::DevMapHash(open(&pins.map(TARGETS), TARGETS)?);
        let lan = Map::HashMap(open(&pins.map(LAN_ADDRESSES), LAN_ADDRESSES)?);
        Ok(Self {
            tunnels: typed(TARGETS, DevMapHash::try_from(tunnels))?,
            lan: typed(LAN_ADDRESSES, HashMap::try_from(lan))?,
        })
    }

    /// What they hold. The kernel removes devices that go.
    pub(super) fn read(&self) -> Result<Targets, KernelError> {
        let tunnels = self.tunnels.keys().collect::<Result<Vec<_>, _>>();
        let mut tunnels = tunnels.map_err(map_error(TARGETS))?;
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

    /// Has them hold this and nothing else.
    pub(super) fn write(&mut self, wanted: &Targets) -> Result<(), KernelError> {
        let found = self.read()?;
        for &target in &wanted.tunnels {
            let device = target >> 1;
            let inserted = self.tunnels.insert(target, device, None, 0);
            inserted.map_err(|source| KernelError::Target { device, source })?;
        }
        for (&device, &mac) in &wanted.lan {
            let inserted = self.lan.insert(device, Shape(Mac::new(mac)), 0);
            inserted.map_err(map_error(LAN_ADDRESSES))?;
        }
        let stale = |it: &&u32| !wanted.tunnels.contains(it);
        for device in found.tunnels.iter().filter(stale) {
            let removed = self.tunnels.remove(*device);
            removed.or_else(unless_gone).map_err(map_error(TARGETS))?;
        }
        for device in found.lan.keys().filter(|it| !wanted.lan.contains_key(it)) {
            let removed = self.lan.remove(device);
            removed
                .or_else(unless_gone)
                .map_err(map_error(LAN_ADDRESSES))?;
        }
        Ok(())
    }
}

fn unless_gone(error: MapError) -> Result<(), MapError> {
    match super::error::map_errno(&error) {
        Some(libc::ENOENT) => Ok(()),
        _ => Err(error),
    }
}
