//! The loaded programs and maps of one instance.

use std::fmt;

use aya::maps::{Array, HashMap, Map, MapData, MapInfo, PerCpuArray};
use aya::programs::links::{FdLink, LinkError};
use aya::programs::{Xdp, XdpMode, xdp::XdpLink};
use aya::{Ebpf, EbpfLoader, Pod};
use aya_obj::programs::XdpAttachType;
use serde::Serialize;
use splitter_common::config::{Config as Policy, Settings};
use splitter_common::counters::Counters;
use splitter_common::flow::{FlowEntry, FlowKey, FlowKeyV4, FlowKeyV6};

use super::error::{map_errno, program_errno};
use super::shapes::Shape;
use super::{KernelError, Object, PROGRAM, Pins, calibrate};
use crate::config::{AttachMode, Family, PacketLog};

/// How a program is to be loaded.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Flows that each family's table holds.
    pub table_size: u32,
    /// What the kernel program logs.
    pub packet_log: PacketLog,
    /// What it is told.
    pub policy: Policy,
}

/// How a program turned out to be attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AttachedMode {
    /// In the driver.
    Native,
    /// In the network stack.
    Generic,
}

impl AttachedMode {
    /// The word in tables and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Generic => "generic",
        }
    }
}

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

const SETTINGS: &str = "SETTINGS";
const COUNTERS: &str = "COUNTERS";
const TUNNELS: &str = "TUNNELS";
const CLOCK_READING: &str = "CLOCK_READING";
const FLOWS_V4: &str = "FLOWS_V4";
const FLOWS_V6: &str = "FLOWS_V6";
const CLOCK_PROGRAM: &str = "read_clocks";

impl Dataplane {
    /// Loads `object`, tells it its settings and pins it; attaches nothing.
    ///
    /// # Errors
    /// See [`KernelError`]. Whatever was pinned before the failure is removed.
    pub fn load(object: &Object, pins: &Pins, options: &LoadOptions) -> Result<Self, KernelError> {
        pins.prepare()?;
        Self::load_into(object, pins, options).inspect_err(|_| {
            // The first error is the one to tell; pins that stay are found by
            // the next `up` or `down`.
            let _ = pins.remove();
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
        let mut program = self.program()?;
        let attached = match mode {
            AttachMode::Native => attach(&mut program, interface, index, AttachedMode::Native)?,
            AttachMode::Generic => attach(&mut program, interface, index, AttachedMode::Generic)?,
            AttachMode::Auto => {
                match attach(&mut program, interface, index, AttachedMode::Native) {
                    Err(error @ KernelError::NoNativeXdp { .. }) => {
                        tracing::warn!(interface, %error, "no native XDP, attaching generic");
                        attach(&mut program, interface, index, AttachedMode::Generic)?
                    }
                    other => other?,
                }
            }
        };
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

    fn load_into(object: &Object, pins: &Pins, options: &LoadOptions) -> Result<Self, KernelError> {
        let mut ebpf = load_object(object, options)?;
        let clock = measure_clock(&mut ebpf)?;
        let mut settings: Array<_, Shape<Settings>> =
            typed(SETTINGS, Array::try_from(map_mut(&mut ebpf, SETTINGS)?))?;
        let told = Settings {
            config: options.policy,
            clock,
        };
        settings
            .set(0, Shape(told), 0)
            .map_err(map_error(SETTINGS))?;

        let program = xdp_mut(&mut ebpf, PROGRAM)?;
        program.load().map_err(load_error(PROGRAM))?;
        let path = pins.program();
        for name in [SETTINGS, COUNTERS, TUNNELS, FLOWS_V4, FLOWS_V6] {
            let path = pins.map(name);
            let map = map_mut(&mut ebpf, name)?;
            map.pin(&path)
                .map_err(|source| KernelError::PinObject { path, source })?;
        }
        // Last, because its presence says that all the rest is there.
        xdp_mut(&mut ebpf, PROGRAM)?
            .pin(&path)
            .map_err(|source| KernelError::PinObject { path, source })?;
        Self::open(pins)?.ok_or(KernelError::Missing {
            kind: "program",
            name: PROGRAM,
        })
    }
}

impl fmt::Debug for Dataplane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dataplane")
            .field("pins", &self.pins)
            .finish_non_exhaustive()
    }
}

struct Attached {
    link: FdLink,
    mode: AttachedMode,
}

fn attach(
    program: &mut Xdp,
    interface: &str,
    index: u32,
    mode: AttachedMode,
) -> Result<Attached, KernelError> {
    let requested = match mode {
        AttachedMode::Native => XdpMode::Driver,
        AttachedMode::Generic => XdpMode::Skb,
    };
    let interface = interface.to_owned();
    let id = program
        .attach_to_if_index(index, requested)
        .map_err(|source| {
            let errno = program_errno(&source);
            match errno {
                Some(libc::EPERM) => KernelError::NotPermitted {
                    action: "attach an XDP program",
                },
                Some(libc::EBUSY | libc::EEXIST) => KernelError::Busy {
                    interface: interface.clone(),
                },
                Some(
                    errno @ (libc::EOPNOTSUPP
                    | libc::ERANGE
                    | libc::EINVAL
                    | libc::ENOSPC
                    | libc::ENOMEM),
                ) if mode == AttachedMode::Native => KernelError::NoNativeXdp {
                    interface: interface.clone(),
                    source: std::io::Error::from_raw_os_error(errno),
                },
                _ => KernelError::Attach {
                    interface: interface.clone(),
                    mode: mode.as_str(),
                    source,
                },
            }
        })?;
    let link: XdpLink = program.take_link(id).map_err(program_error(PROGRAM))?;
    let link = FdLink::try_from(link)
        .map_err(|source: LinkError| KernelError::Link { interface, source })?;
    Ok(Attached { link, mode })
}

fn load_object(object: &Object, options: &LoadOptions) -> Result<Ebpf, KernelError> {
    let level = log_level(options.packet_log);
    let mut loader = EbpfLoader::new();
    loader
        .map_max_entries(FLOWS_V4, options.table_size)
        .map_max_entries(FLOWS_V6, options.table_size)
        .override_global("AYA_LOG_LEVEL", &level, false);
    loader.load(object.bytes()).map_err(|error| match &error {
        aya::EbpfError::MapError(source) if map_errno(source) == Some(libc::EPERM) => {
            KernelError::NotPermitted {
                action: "create BPF maps",
            }
        }
        _ => KernelError::Load(error),
    })
}

/// As `aya-log` counts them: 0 is off, 5 is trace.
fn log_level(level: PacketLog) -> u8 {
    match level {
        PacketLog::Off => 0,
        PacketLog::Info => 3,
        PacketLog::Debug => 4,
        PacketLog::Trace => 5,
    }
}

fn measure_clock(ebpf: &mut Ebpf) -> Result<splitter_common::config::TickClock, KernelError> {
    xdp_mut(ebpf, CLOCK_PROGRAM)?
        .load()
        .map_err(load_error(CLOCK_PROGRAM))?;
    let map = ebpf.take_map(CLOCK_READING).ok_or(KernelError::Missing {
        kind: "map",
        name: CLOCK_READING,
    })?;
    let reading = typed(CLOCK_READING, Array::try_from(map))?;
    Ok(calibrate::measure(xdp_mut(ebpf, CLOCK_PROGRAM)?, &reading)?)
}

fn xdp_mut<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut Xdp, KernelError> {
    ebpf.program_mut(name)
        .and_then(|program| program.try_into().ok())
        .ok_or(KernelError::Missing {
            kind: "program",
            name,
        })
}

fn map_mut<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut Map, KernelError> {
    ebpf.map_mut(name)
        .ok_or(KernelError::Missing { kind: "map", name })
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

fn typed<T>(name: &'static str, map: Result<T, aya::maps::MapError>) -> Result<T, KernelError> {
    map.map_err(map_error(name))
}

fn map_error(name: &'static str) -> impl Fn(aya::maps::MapError) -> KernelError {
    move |source| KernelError::Map { name, source }
}

fn program_error(program: &'static str) -> impl Fn(aya::programs::ProgramError) -> KernelError {
    move |source| KernelError::Program { program, source }
}

fn load_error(program: &'static str) -> impl Fn(aya::programs::ProgramError) -> KernelError {
    move |source| match program_errno(&source) {
        Some(libc::EPERM) => KernelError::NotPermitted {
            action: "load a BPF program",
        },
        _ => KernelError::Program { program, source },
    }
}
