//! What the spines of a fabric report, for a program that chooses among the uplinks to them.
//!
//! The fabric's programs note it in maps of their own, which are put into two maps of maps. So either side may be
//! loaded again by itself.

use std::path::Path;

use aya::maps::{Array, ArrayOfMaps, Map, MapData};
use flow_balance::PathId;
use splitter_config::FabricRole;
use splitter_policy::paths::UplinkNumbers;

use super::error::{map_error, typed};
use super::fabric::{LEAVES, REMOTE};
use super::names::{HEARD, HEARD_LEAVES, HEARD_UPLINKS};
use super::pins::Pins;
use super::shapes::Shape;
use super::{Dataplane, FabricDataplane, KernelError};

/// Where the program finds each map of the fabric.
const PLACES: [(&str, &str); 2] = [(HEARD, REMOTE), (HEARD_LEAVES, LEAVES)];

/// The maps that a program has been given, by the kernel's numbers of the map they are in and of themselves. Putting
/// one there has the kernel wait for all programs, and only privileged processes may ask what is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeardMaps([Option<(u32, u32)>; PLACES.len()]);

impl Dataplane {
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
        let bpffs = self.pins().bpffs();
        Pins::new(bpffs, directory).check_readable()?;
        let fabric = FabricDataplane::open(bpffs, directory);
        let Some(fabric) = fabric.filter(|it| it.role() == FabricRole::Leaf) else {
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
