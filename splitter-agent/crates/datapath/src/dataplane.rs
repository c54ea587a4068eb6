//! The loaded programs and maps of one instance.

use std::fmt;

use aya::maps::{Array, Map, MapData, PerCpuArray};
use splitter_config::{AttachMode, SteeringMode};
use splitter_netlink::Family;
use splitter_policy::config::PolicyConfig;
use splitter_policy::counters::Counters;
use splitter_policy::queue_search::ShortQueues;
use splitter_policy::settings::Settings;

use super::attach::attach;
use super::egress::EgressMaps;
use super::error::{map_error, program_error, typed};
use super::load::KeptMaps;
use super::names::{COUNTERS, FLOWS_V4, FLOWS_V6, SETTINGS, SHORT_QUEUES};
use super::prefix_thresholds::SiteMap;
use super::program::Program;
use super::program::program_name;
use super::reverse::ReverseMap;
use super::shapes::Shape;
use super::site_paths::PathMaps;
use super::table_note::TableNote;
use super::targets::TargetMaps;
use super::{
    AttachedMode, FlowTables, KernelError, LoadOptions, Object, Pins, TableSizes, Targets, TcSide,
    chain, load,
};

/// The maps of one instance, opened. The programs live on in their pins.
pub struct Dataplane {
    pins: Pins,
    steering: SteeringMode,
    pub(super) targets: Option<TargetMaps>,
    settings: Array<MapData, Shape<Settings>>,
    counters: PerCpuArray<MapData, Shape<Counters>>,
    /// Not there where the kernel lets no program read its memory.
    short_queues: Option<Array<MapData, Shape<ShortQueues>>>,
    pub(super) egress: EgressMaps,
    pub(super) sites: SiteMap,
    pub(super) reverse: Option<ReverseMap>,
    pub(super) paths: Option<PathMaps>,
    flows_v4: MapData,
    flows_v6: MapData,
}

impl Dataplane {
    /// Loads `object`, hands it its settings and pins it; attaches nothing.
    ///
    /// # Errors
    /// See [`KernelError`]. Whatever was pinned before the failure is removed.
    pub fn load(object: &Object, pins: &Pins, options: &LoadOptions) -> Result<Self, KernelError> {
        // Of an agent that was killed here: the program, which is pinned last, is not there.
        pins.remove()?;
        pins.prepare()?;
        load::load(object, pins, options, &KeptMaps::default()).inspect_err(|_| {
            // The first error is the one to report; pins that stay are found by
            // the next `up` or `down`.
            let _ = pins.remove();
        })?;
        Self::open(pins)?.ok_or(KernelError::Missing {
            kind: "program",
            name: program_name(options.steering),
        })
    }

    /// Opens what an earlier agent pinned; `None` when there is nothing.
    ///
    /// # Errors
    /// When pins exist but cannot be used.
    pub fn open(pins: &Pins) -> Result<Option<Self>, KernelError> {
        let Some(steering) = pins.pinned() else {
            return Ok(None);
        };
        let targets = match steering {
            SteeringMode::Redirect => Some(TargetMaps::open(pins)?),
            SteeringMode::Dscp | SteeringMode::Mark => None,
        };
        let open = |name| {
            MapData::from_pin(pins.map(name)).map_err(|source| KernelError::Map { name, source })
        };
        Ok(Some(Self {
            steering,
            targets,
            settings: typed(SETTINGS, Array::try_from(Map::Array(open(SETTINGS)?)))?,
            counters: typed(
                COUNTERS,
                PerCpuArray::try_from(Map::PerCpuArray(open(COUNTERS)?)),
            )?,
            short_queues: match pins.map(SHORT_QUEUES).exists() {
                true => Some(typed(
                    SHORT_QUEUES,
                    Array::try_from(Map::Array(open(SHORT_QUEUES)?)),
                )?),
                false => None,
            },
            egress: EgressMaps::open(pins)?,
            sites: SiteMap::open(pins)?,
            reverse: ReverseMap::open(pins)?,
            paths: PathMaps::open(pins)?,
            flows_v4: open(FLOWS_V4)?,
            flows_v6: open(FLOWS_V6)?,
            pins: pins.clone(),
        }))
    }

    /// Returns the paths at which it is pinned.
    pub fn pins(&self) -> &Pins {
        &self.pins
    }

    /// How its program gets packets into their tunnel.
    pub fn steering(&self) -> SteeringMode {
        self.steering
    }

    /// Returns what is known of where packets are redirected to; nothing where none are.
    ///
    /// # Errors
    /// When the maps cannot be read.
    pub fn targets(&self) -> Result<Targets, KernelError> {
        let read = self.targets.as_ref().map(TargetMaps::read);
        read.unwrap_or_else(|| Ok(Targets::default()))
    }

    /// Changes where packets are redirected to.
    ///
    /// # Errors
    /// When the maps cannot be written.
    pub fn set_targets(&mut self, wanted: &Targets) -> Result<(), KernelError> {
        match &mut self.targets {
            Some(maps) => maps.write(wanted),
            None => Ok(()),
        }
    }

    /// The settings in force.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn policy(&self) -> Result<PolicyConfig, KernelError> {
        Ok(self.settings()?.config)
    }

    /// Tells if flows are handed over from one tunnel to the other. Where each packet chooses its tunnel, a flow that
    /// turns long changes its mark, and what counts as a hand-over there is none.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn hands_over(&self) -> Result<bool, KernelError> {
        Ok(self.policy()?.max_wait_ns > 0)
    }

    /// Changes the settings; flows keep what is known of them.
    ///
    /// # Errors
    /// When the map cannot be written.
    pub fn set_policy(&mut self, policy: PolicyConfig) -> Result<(), KernelError> {
        let mut settings = self.settings()?;
        settings.config = policy;
        self.settings
            .set(0, Shape(settings), 0)
            .map_err(map_error(SETTINGS))
    }

    /// The queues in front of shared tunnels that the programs look into; `None` where the kernel
    /// lets no program read its memory.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn short_queues(&self) -> Result<Option<ShortQueues>, KernelError> {
        let read = self.short_queues.as_ref().map(|map| map.get(&0, 0));
        let read = read.transpose().map_err(map_error(SHORT_QUEUES))?;
        Ok(read.map(|Shape(queues)| queues))
    }

    /// Has the programs look into these queues, or with zeros into none: they go by their model of
    /// the queues then.
    ///
    /// # Errors
    /// When the map cannot be written.
    pub fn set_short_queues(&mut self, queues: ShortQueues) -> Result<(), KernelError> {
        let written = self.short_queues.as_mut();
        let written = written.map(|map| map.set(0, Shape(queues), 0));
        written.unwrap_or(Ok(())).map_err(map_error(SHORT_QUEUES))
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
        let attached = match Program::from_pin(&self.pins, self.steering)? {
            Program::Xdp(mut program, name) => attach(&mut program, name, interface, index, mode)?,
            Program::Ingress(mut program) => {
                return chain::attach(&mut program, &self.pins, TcSide::Ingress, interface, index);
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
        self.pins.detach(interface, self.steering)
    }

    /// How a program of ours in traffic control is attached to an interface, if it is; one of
    /// another type shows in what the kernel reports about the interface.
    pub fn attached_ingress(
        pins: &Pins,
        interface: &str,
        index: u32,
        program_id: u32,
    ) -> Option<AttachedMode> {
        chain::attached_mode(pins, TcSide::Ingress, interface, index, program_id)
    }

    /// The kernel's id of the split program.
    ///
    /// # Errors
    /// When the pinned program cannot be opened.
    pub fn program_id(&self) -> Result<u32, KernelError> {
        let program = Program::from_pin(&self.pins, self.steering)?;
        program
            .id()
            .map_err(program_error(program_name(self.steering)))
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

    /// Maps the flow tables.
    ///
    /// # Errors
    /// When they cannot be mapped.
    pub fn tables(&self) -> Result<FlowTables, KernelError> {
        let layout = self.settings()?.layout;
        FlowTables::map(self.flows_v4.fd(), self.flows_v6.fd(), layout)
            .map_err(|source| KernelError::Mapping { source })
    }

    /// How many flows the tables are made for.
    ///
    /// # Errors
    /// When the settings cannot be read.
    pub fn table_sizes(&self) -> Result<TableSizes, KernelError> {
        Ok(TableSizes::of_layout(&self.settings()?.layout))
    }

    /// How many flows the table of a family is made for.
    ///
    /// # Errors
    /// When the settings cannot be read.
    pub fn table_capacity(&self, family: Family) -> Result<u32, KernelError> {
        Ok(self.table_sizes()?.of(family))
    }

    /// The kernel's number of the table of IPv4: of maps that took the place of others it is another.
    ///
    /// # Errors
    /// When the map cannot be asked.
    pub fn table_id(&self) -> Result<u32, KernelError> {
        let info = self.flows_v4.info().map_err(map_error(FLOWS_V4))?;
        Ok(info.id())
    }

    /// The NUMA node that the tables were made on; none where none was asked for.
    #[must_use]
    pub fn table_numa_node(&self) -> Option<u32> {
        TableNote::of(&self.pins)?.numa_node
    }

    fn settings(&self) -> Result<Settings, KernelError> {
        let settings = self.settings.get(&0, 0).map_err(map_error(SETTINGS))?;
        Ok(settings.0)
    }
}

impl fmt::Debug for Dataplane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dataplane")
            .field("pins", &self.pins)
            .finish_non_exhaustive()
    }
}
