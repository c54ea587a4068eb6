//! The loaded programs and maps of one instance.

use std::fmt;

use aya::Pod;
use aya::maps::{Array, HashMap, Map, MapData, MapError, MapInfo, PerCpuArray};
use aya::programs::Xdp;
use aya_obj::programs::XdpAttachType;
use splitter_common::config::{Config as Policy, Settings};
use splitter_common::counters::Counters;
use splitter_common::flow::{FlowEntry, FlowKey, FlowKeyV4, FlowKeyV6};

use super::attach::attach;
use super::error::{map_errno, map_error, program_error, typed};
use super::names::{COUNTERS, FLOWS_V4, FLOWS_V6, SETTINGS};
use super::shapes::Shape;
use super::{AttachedMode, KernelError, LoadOptions, Object, PROGRAM, Pins, load};
use crate::config::{AttachMode, Family};

/// A flow and what is known of it.
#[derive(Clone, Copy, Debug)]
pub struct FlowRecord {
    /// Its 5-tuple.
    pub key: FlowKey,
    /// Its entry.
    pub entry: FlowEntry,
}

/// The maps of one instance, opened. The programs live on in their pins.
pub struct Dataplane {
    pins: Pins,
    settings: Array<MapData, Shape<Settings>>,
    counters: PerCpuArray<MapData, Shape<Counters>>,
    flows_v4: HashMap<MapData, Shape<FlowKeyV4>, Shape<FlowEntry>>,
    flows_v6: HashMap<MapData, Shape<FlowKeyV6>, Shape<FlowEntry>>,
}

impl Dataplane {
    /// Loads `object`, tells it its settings and pins it; attaches nothing.
    ///
    /// # Errors
    /// See [`KernelError`]. Whatever was pinned before the failure is removed.
    pub fn load(object: &Object, pins: &Pins, options: &LoadOptions) -> Result<Self, KernelError> {
        // Of an agent that was killed here: the program, which is pinned last, is not there.
        pins.remove()?;
        pins.prepare()?;
        load::load(object, pins, options).inspect_err(|_| {
            // The first error is the one to tell; pins that stay are found by
            // the next `up` or `down`.
            let _ = pins.remove();
        })?;
        Self::open(pins)?.ok_or(KernelError::Missing {
            kind: "program",
            name: PROGRAM,
        })
    }

    /// Opens what an earlier agent pinned; `None` when there is nothing.
    ///
    /// # Errors
    /// When pins exist but cannot be used.
    pub fn open(pins: &Pins) -> Result<Option<Self>, KernelError> {
        if !pins.exist() {
            return Ok(None);
        }
        let open = |name| {
            MapData::from_pin(pins.map(name)).map_err(|source| KernelError::Map { name, source })
        };
        Ok(Some(Self {
            settings: typed(SETTINGS, Array::try_from(Map::Array(open(SETTINGS)?)))?,
            counters: typed(
                COUNTERS,
                PerCpuArray::try_from(Map::PerCpuArray(open(COUNTERS)?)),
            )?,
            flows_v4: typed(
                FLOWS_V4,
                HashMap::try_from(Map::LruHashMap(open(FLOWS_V4)?)),
            )?,
            flows_v6: typed(
                FLOWS_V6,
                HashMap::try_from(Map::LruHashMap(open(FLOWS_V6)?)),
            )?,
            pins: pins.clone(),
        }))
    }

    /// Where it is pinned.
    pub fn pins(&self) -> &Pins {
        &self.pins
    }

    /// The settings in force.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn policy(&self) -> Result<Policy, KernelError> {
        self.settings
            .get(&0, 0)
            .map(|settings| settings.0.config)
            .map_err(map_error(SETTINGS))
    }

    /// Changes the settings; flows keep what is known of them.
    ///
    /// # Errors
    /// When the map cannot be written.
    pub fn set_policy(&mut self, policy: Policy) -> Result<(), KernelError> {
        let mut settings = self.settings.get(&0, 0).map_err(map_error(SETTINGS))?;
        settings.0.config = policy;
        self.settings
            .set(0, settings, 0)
            .map_err(map_error(SETTINGS))
    }

    /// Attaches the program to an interface and pins the link.
    ///
    /// # Errors
    /// See [`KernelError`]; [`AttachMode::Native`] never falls back.
    pub fn attach(
        &self,
        interface: &str,
        index: u32,
        mode: AttachMode,
    ) -> Result<AttachedMode, KernelError> {
        let attached = attach(&mut self.program()?, interface, index, mode)?;
        let path = self.pins.link(interface);
        // A link whose interface has gone is of no use any more.
        let _ = std::fs::remove_file(&path);
        attached
            .link
            .pin(&path)
            .map_err(|source| KernelError::PinObject { path, source })?;
        Ok(attached.mode)
    }

    /// Detaches the program from an interface, if it is attached.
    ///
    /// # Errors
    /// When the pin cannot be removed.
    pub fn detach(&self, interface: &str) -> Result<(), KernelError> {
        let path = self.pins.link(interface);
        match std::fs::remove_file(&path) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                Err(KernelError::Pin { path, source })
            }
            _ => Ok(()),
        }
    }

    /// The kernel's id of the split program.
    ///
    /// # Errors
    /// When the pinned program cannot be opened.
    pub fn program_id(&self) -> Result<u32, KernelError> {
        let info = self.program()?.info().map_err(program_error(PROGRAM))?;
        Ok(info.id())
    }

    /// Everything counted so far, on all CPUs.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn counters(&self) -> Result<Counters, KernelError> {
        let per_cpu = self.counters.get(&0, 0).map_err(map_error(COUNTERS))?;
        let mut sum = Counters::ZERO;
        per_cpu.iter().for_each(|counters| sum.add(&counters.0));
        Ok(sum)
    }

    /// Walks over all flows. Flows that come or go meanwhile may be missed or
    /// seen twice.
    ///
    /// # Errors
    /// When a table cannot be read.
    pub fn for_each_flow(&self, mut visit: impl FnMut(FlowRecord)) -> Result<(), KernelError> {
        let limit = self.table_capacity(Family::V4)?;
        walk(&self.flows_v4, limit, FLOWS_V4, |key, entry| {
            visit(FlowRecord {
                key: FlowKey::V4(key),
                entry,
            });
        })?;
        let limit = self.table_capacity(Family::V6)?;
        walk(&self.flows_v6, limit, FLOWS_V6, |key, entry| {
            visit(FlowRecord {
                key: FlowKey::V6(key),
                entry,
            });
        })
    }

    /// What is known of a flow.
    ///
    /// # Errors
    /// When the table cannot be read.
    pub fn flow(&self, key: &FlowKey) -> Result<Option<FlowEntry>, KernelError> {
        let (name, found) = match *key {
            FlowKey::V4(key) => (FLOWS_V4, self.flows_v4.get(&Shape(key), 0)),
            FlowKey::V6(key) => (FLOWS_V6, self.flows_v6.get(&Shape(key), 0)),
        };
        match found {
            Ok(entry) => Ok(Some(entry.0)),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(source) => Err(KernelError::Map { name, source }),
        }
    }

    /// Forgets a flow; one that is gone already is no error.
    ///
    /// # Errors
    /// When the table cannot be changed.
    pub fn remove_flow(&mut self, key: &FlowKey) -> Result<(), KernelError> {
        let (name, removed) = match *key {
            FlowKey::V4(key) => (FLOWS_V4, self.flows_v4.remove(&Shape(key))),
            FlowKey::V6(key) => (FLOWS_V6, self.flows_v6.remove(&Shape(key))),
        };
        match removed {
            Err(source) if map_errno(&source) != Some(libc::ENOENT) => {
                Err(KernelError::Map { name, source })
            }
            _ => Ok(()),
        }
    }

    /// How many flows the table of a family can hold.
    ///
    /// # Errors
    /// When the map's description cannot be read.
    pub fn table_capacity(&self, family: Family) -> Result<u32, KernelError> {
        let name = match family {
            Family::V4 => FLOWS_V4,
            Family::V6 => FLOWS_V6,
        };
        let info = MapInfo::from_pin(self.pins.map(name)).map_err(map_error(name))?;
        Ok(info.max_entries())
    }

    fn program(&self) -> Result<Xdp, KernelError> {
        Xdp::from_pin(self.pins.program(), XdpAttachType::Interface).map_err(program_error(PROGRAM))
    }
}

impl fmt::Debug for Dataplane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dataplane")
            .field("pins", &self.pins)
            .finish_non_exhaustive()
    }
}

/// Visits the entries of a table, at most as many as twice its size: when a
/// key vanishes under the walk, the kernel starts over.
fn walk<K, V>(
    map: &HashMap<MapData, Shape<K>, Shape<V>>,
    limit: u32,
    name: &'static str,
    mut visit: impl FnMut(K, V),
) -> Result<(), KernelError>
where
    Shape<K>: Pod,
    Shape<V>: Pod,
{
    for item in map.iter().take(limit as usize * 2) {
        let (key, value) = item.map_err(map_error(name))?;
        visit(key.0, value.0);
    }
    Ok(())
}
