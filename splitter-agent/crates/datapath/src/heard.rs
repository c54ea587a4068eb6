//! What the spines of a fabric report, for a program that chooses among the uplinks to them.
//!
//! The fabric's programs note it in maps of their own, which are put into two maps of maps. So either side may be
//! loaded again by itself.

use std::path::Path;

use aya::maps::{Array, ArrayOfMaps, Map, MapData, PerCpuArray};
use flow_balance::{MAX_PATHS, PathId};
use splitter_config::FabricRole;
use splitter_policy::fabric::MAX_LEAVES;
use splitter_policy::paths::UplinkNumbers;

use super::clock::monotonic_ns;
use super::error::{map_error, typed};
use super::fabric::{LEAVES, REMOTE};
use super::names::{HEARD, HEARD_CHOICES, HEARD_LEAVES, HEARD_UPLINKS};
use super::pins::Pins;
use super::shapes::Shape;
use super::{Dataplane, FabricDataplane, KernelError};

/// Where the program finds each map of the fabric.
const PLACES: [(&str, &str); 2] = [(HEARD, REMOTE), (HEARD_LEAVES, LEAVES)];

/// The maps that a program has been given, by the kernel's numbers of the map they are in and of themselves. Putting
/// one there has the kernel wait for all programs, and only privileged processes may ask what is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeardMaps([Option<(u32, u32)>; PLACES.len()]);

/// State of what packets hear of a fabric, by tunnel in the order of the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeardByTunnel {
    uplinks: UplinkNumbers,
    /// Since when nothing has been reported, by uplink.
    silences_ns: [Option<u64>; MAX_PATHS],
    choices: [u64; MAX_PATHS],
}

impl HeardByTunnel {
    /// Tells if packets go by what is reported of the spine behind a tunnel.
    #[must_use]
    pub fn hears(&self, path: PathId) -> bool {
        self.uplinks.get(path).is_some()
    }

    /// Returns how long ago the spine behind a tunnel reported last, of its port to any leaf; none where it never has.
    #[must_use]
    pub fn report_age_ns(&self, path: PathId) -> Option<u64> {
        self.silences_ns[self.uplinks.get(path)?.index()]
    }

    /// Returns how many packets chose a tunnel by reports, of whichever spine, since the program was loaded.
    #[must_use]
    pub fn choices(&self, path: PathId) -> u64 {
        self.choices[path.index()]
    }
}

impl Dataplane {
    /// Looks what the program hears of the leaf whose programs are pinned in `directory`; none of a program that does
    /// not choose. Of a leaf that may not be read, as one that root has put in place, or of another build, nothing is heard.
    ///
    /// # Errors
    /// When maps of the program cannot be read.
    pub fn heard(&self, directory: &Path) -> Result<Option<HeardByTunnel>, KernelError> {
        if !self.pins().map(HEARD_CHOICES).exists() {
            return Ok(None);
        }
        let map = Map::PerCpuArray(self.map_of(HEARD_CHOICES)?);
        let per_cpu: PerCpuArray<_, [u64; MAX_PATHS]> =
            typed(HEARD_CHOICES, PerCpuArray::try_from(map))?;
        let mut heard = HeardByTunnel::default();
        for of_cpu in per_cpu.get(&0, 0).map_err(map_error(HEARD_CHOICES))?.iter() {
            for (sum, count) in heard.choices.iter_mut().zip(of_cpu) {
                *sum += count;
            }
        }
        let choices = heard.choices;
        if let Err(error) = self.look_at_leaf(directory, &mut heard) {
            tracing::debug!(%error, "the fabric's leaf is not to be read");
            heard = HeardByTunnel {
                choices,
                ..HeardByTunnel::default()
            };
        }
        Ok(Some(heard))
    }

    /// Notes which tunnels are uplinks of the leaf, and how long ago spines reported; nothing where it is not in place.
    fn look_at_leaf(&self, directory: &Path, heard: &mut HeardByTunnel) -> Result<(), KernelError> {
        let Some(fabric) = self.leaf_in(directory)? else {
            return Ok(());
        };
        let map = Map::Array(self.map_of(HEARD_UPLINKS)?);
        let uplinks: Array<_, Shape<UplinkNumbers>> = typed(HEARD_UPLINKS, Array::try_from(map))?;
        heard.uplinks = uplinks.get(&0, 0).map_err(map_error(HEARD_UPLINKS))?.0;
        for leaf in 0..MAX_LEAVES as u32 {
            let (reports, now_ns) = (fabric.remote_backlogs(leaf)?, monotonic_ns());
            for (uplink, least_ns) in PathId::all().zip(&mut heard.silences_ns) {
                let silence_ns = reports.behind(uplink).silence_ns(now_ns);
                *least_ns = [*least_ns, silence_ns].into_iter().flatten().min();
            }
        }
        Ok(())
    }

    /// The programs of a leaf in a directory of pins; none where those of a leaf are not in place.
    fn leaf_in(&self, directory: &Path) -> Result<Option<FabricDataplane>, KernelError> {
        let bpffs = self.pins().bpffs();
        Pins::new(bpffs, directory).check_readable()?;
        let fabric = FabricDataplane::open(bpffs, directory);
        Ok(fabric.filter(|it| it.role() == FabricRole::Leaf))
    }

    /// Has the program go by what spines report to the leaf whose programs are pinned in `directory`; `devices` are the
    /// numbers of the tunnels' devices, in the order of the configuration, and `given` what it was given before.
    /// Returns how many of the tunnels are uplinks of the leaf: none where it is not in place.
    ///
    /// # Errors
    /// When maps cannot be used, such as those of a leaf that another build has put in place. The program goes by the
    /// queues of this machine alone then.
    pub fn hear(
        &mut self,
        directory: &Path,
        devices: &[Option<u32>],
        given: &mut HeardMaps,
    ) -> Result<usize, KernelError> {
        if !self.pins().map(HEARD_UPLINKS).exists() {
            return Ok(0);
        }
        let heard = self.give_maps(directory, devices, given);
        let uplinks = match &heard {
            Ok(Some(uplinks)) => *uplinks,
            Ok(None) | Err(_) => UplinkNumbers::default(),
        };
        let map = Map::Array(self.map_of(HEARD_UPLINKS)?);
        let mut known: Array<_, Shape<UplinkNumbers>> = typed(HEARD_UPLINKS, Array::try_from(map))?;
        let before = known.get(&0, 0).map_err(map_error(HEARD_UPLINKS))?.0;
        if before != uplinks {
            let written = known.set(0, Shape(uplinks), 0);
            written.map_err(map_error(HEARD_UPLINKS))?;
        }
        heard?;
        let are_uplinks = PathId::all().filter(|it| uplinks.get(*it).is_some());
        Ok(are_uplinks.count())
    }

    /// Gives the program the maps of a leaf; none where that is not in place.
    fn give_maps(
        &self,
        directory: &Path,
        devices: &[Option<u32>],
        given: &mut HeardMaps,
    ) -> Result<Option<UplinkNumbers>, KernelError> {
        let Some(fabric) = self.leaf_in(directory)? else {
            return Ok(None);
        };
        for ((outer, inner), given) in PLACES.into_iter().zip(&mut given.0) {
            let (place, map) = (self.map_of(outer)?, fabric.map(inner)?);
            let numbers = (number(outer, &place)?, number(inner, &map)?);
            if *given == Some(numbers) {
                continue;
            }
            let mut place: ArrayOfMaps<_, MapData> =
                typed(outer, ArrayOfMaps::try_from(Map::ArrayOfMaps(place)))?;
            place.set(0, &map, 0).map_err(map_error(outer))?;
            *given = Some(numbers);
        }
        let ports = fabric.port_numbers()?;
        let mut uplinks = UplinkNumbers::default();
        for (path, device) in PathId::all().zip(devices) {
            let of_device = ports.iter().find(|(index, _)| Some(*index) == *device);
            if let Some(uplink) = of_device.and_then(|(_, it)| PathId::new(*it as usize)) {
                uplinks.set(path, uplink);
            }
        }
        Ok(Some(uplinks))
    }

    fn map_of(&self, name: &'static str) -> Result<MapData, KernelError> {
        MapData::from_pin(self.pins().map(name)).map_err(map_error(name))
    }
}

/// The kernel's number of a map.
fn number(name: &'static str, map: &MapData) -> Result<u32, KernelError> {
    Ok(map.info().map_err(map_error(name))?.id())
}
