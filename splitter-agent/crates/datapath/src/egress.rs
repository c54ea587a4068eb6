//! What leaves by the tunnels' devices, as the program at their egress counts it.
//!
//! The same program at the egress of the site's interfaces counts what comes back, by flow.

use aya::maps::{HashMap, Map, MapData, MapError, PerCpuHashMap, PerCpuValues};
use aya::programs::SchedClassifier;
use aya::util::nr_cpus;
use splitter_policy::egress_counts::EgressCounts;

use super::error::{map_errno, map_error, program_error, typed};
use super::names::{COUNT_EGRESS, EGRESS, SITE_DEVICES};
use super::shapes::Shape;
use super::{AttachedMode, Dataplane, KernelError, Pins, TcSide, chain};

/// Only where there is no such entry (`BPF_NOEXIST`).
const UNLESS_THERE: u64 = 1;

/// The counts, and what tells packets of the site.
pub(super) struct EgressMaps {
    counts: PerCpuHashMap<MapData, u32, Shape<EgressCounts>>,
    site: HashMap<MapData, u32, u32>,
}

impl EgressMaps {
    pub(super) fn open(pins: &Pins) -> Result<Self, KernelError> {
        let open = |name| {
            MapData::from_pin(pins.map(name)).map_err(|source| KernelError::Map { name, source })
        };
        let counts = Map::PerCpuHashMap(open(EGRESS)?);
        let site = Map::HashMap(open(SITE_DEVICES)?);
        Ok(Self {
            counts: typed(EGRESS, PerCpuHashMap::try_from(counts))?,
            site: typed(SITE_DEVICES, HashMap::try_from(site))?,
        })
    }
}

impl Dataplane {
    /// Has the egress of a tunnel's device counted from now on, by a program that changes no packet. A
    /// device that is counted already goes on where it is, so that this may be called again at any time.
    ///
    /// # Errors
    /// When the kernel refuses, for want of TCX (Linux 6.6) and of `clsact` for instance.
    pub fn attach_egress(
        &mut self,
        device: &str,
        index: u32,
        has_ethernet_header: bool,
    ) -> Result<AttachedMode, KernelError> {
        let first = Shape(EgressCounts::of_device(has_ethernet_header));
        let cpus = nr_cpus().map_err(|(_, source)| KernelError::Mapping { source })?;
        let each = PerCpuValues::try_from(vec![first; cpus])
            .map_err(|source| KernelError::Mapping { source })?;
        match self.egress.counts.insert(index, each, UNLESS_THERE) {
            Err(error) if map_errno(&error) == Some(libc::EEXIST) => {}
            inserted => inserted.map_err(map_error(EGRESS))?,
        }
        self.attach_reverse(device, index)
    }

    /// Has what leaves by an interface of the site counted by flow from now on, by the same program,
    /// which goes by [what the agent notes](Self::set_egress_devices) of the device. May be called
    /// again at any time.
    ///
    /// # Errors
    /// When the kernel refuses, as for a tunnel's device.
    pub fn attach_reverse(&self, device: &str, index: u32) -> Result<AttachedMode, KernelError> {
        let mut program = SchedClassifier::from_pin(self.pins().count_egress())
            .map_err(program_error(COUNT_EGRESS))?;
        let id = program.info().map_err(program_error(COUNT_EGRESS))?.id();
        if let Some(mode) = Self::attached_egress(self.pins(), device, index, id) {
            return Ok(mode);
        }
        // What a device of that name has left, or a program of another build.
        self.detach_egress(device)?;
        chain::attach(&mut program, self.pins(), TcSide::Egress, device, index)
    }

    /// Has a device's egress counted no more. What is not there counts as removed.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn detach_egress(&self, device: &str) -> Result<(), KernelError> {
        chain::detach(self.pins(), TcSide::Egress, device)
    }

    /// Returns the kernel's number of the program that counts, if one is pinned.
    #[must_use]
    pub fn counting_program_id(pins: &Pins) -> Option<u32> {
        let program = SchedClassifier::from_pin(pins.count_egress()).ok()?;
        Some(program.info().ok()?.id())
    }

    /// How the program of that number is attached to the egress of a device, if it is.
    #[must_use]
    pub fn attached_egress(
        pins: &Pins,
        device: &str,
        index: u32,
        program_id: u32,
    ) -> Option<AttachedMode> {
        chain::attached_mode(pins, TcSide::Egress, device, index, program_id)
    }

    /// Returns what has left by the device of that number since it is counted; none where it is not.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn egress_counts(&self, index: u32) -> Result<Option<EgressCounts>, KernelError> {
        let per_cpu = match self.egress.counts.get(&index, 0) {
            Err(MapError::KeyNotFound) => return Ok(None),
            read => read.map_err(map_error(EGRESS))?,
        };
        let mut sum = EgressCounts::ZERO;
        per_cpu.iter().for_each(|counts| sum.add(&counts.0));
        if let Some(targets) = &self.targets {
            sum.add(&targets.redirected(index)?);
        }
        Ok(Some(sum))
    }

    /// Notes by which devices, by their numbers, packets come in that are split, and forgets the
    /// counts of devices that are not among `counted`.
    ///
    /// # Errors
    /// When the maps cannot be read or written.
    pub fn set_egress_devices(&mut self, site: &[u32], counted: &[u32]) -> Result<(), KernelError> {
        let EgressMaps { counts, site: map } = &mut self.egress;
        for device in site {
            map.insert(device, device, 0)
                .map_err(map_error(SITE_DEVICES))?;
        }
        let found: Vec<u32> = map.keys().filter_map(Result::ok).collect();
        for device in found.iter().filter(|it| !site.contains(it)) {
            let removed = map.remove(device);
            removed
                .or_else(unless_gone)
                .map_err(map_error(SITE_DEVICES))?;
        }
        let found: Vec<u32> = counts.keys().filter_map(Result::ok).collect();
        for device in found.iter().filter(|it| !counted.contains(it)) {
            let removed = counts.remove(device);
            removed.or_else(unless_gone).map_err(map_error(EGRESS))?;
        }
        Ok(())
    }
}

fn unless_gone(error: MapError) -> Result<(), MapError> {
    match map_errno(&error) {
        Some(libc::ENOENT) => Ok(()),
        _ => Err(error),
    }
}
