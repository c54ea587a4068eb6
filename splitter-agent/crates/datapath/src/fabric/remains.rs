//! Roles known by their pins alone, whole or as somebody left them who was killed.

use std::path::Path;
use std::time::Duration;

use aya::maps::{Array, Map};
use splitter_config::FabricRole;
use splitter_policy::fabric::{Agreement, FabricStep};

use super::super::error::{map_error, typed};
use super::super::shapes::Shape;
use super::super::{KernelError, Pins};
use super::{AGREEMENT, COUNTERS, FabricDataplane, fabric_programs, map_at, program_pin};

/// The pins of a role, and those of the build before, which stay until their successors are at the ports. Who is killed
/// between two builds leaves both, each of them whole or not.
#[derive(Debug)]
pub struct FabricRemains {
    builds: [Pins; 2],
}

impl FabricRemains {
    /// Knows the pins in `directory`. Touches nothing.
    #[must_use]
    pub fn new(bpffs: &Path, directory: &Path) -> Self {
        let pins = Pins::new(bpffs, directory);
        let earlier = pins.earlier();
        Self {
            builds: [pins, earlier],
        }
    }

    /// Returns the role of which a program is pinned; a leaf where there are two, for it is the one to be careful with.
    #[must_use]
    pub fn role(&self) -> Option<FabricRole> {
        let has = |role: &FabricRole| {
            let programs = fabric_programs(*role);
            let mut pins = self
                .builds
                .iter()
                .flat_map(|it| programs.map(|name| program_pin(it, name)));
            pins.any(|it| it.exists())
        };
        [FabricRole::Leaf, FabricRole::Spine].into_iter().find(has)
    }

    /// Lists the devices at which something of either build is attached.
    #[must_use]
    pub fn devices(&self) -> Vec<String> {
        let attached = self.builds.iter().filter(|it| it.are_in_use());
        let mut devices: Vec<_> = attached
            .flat_map(|it| [it.linked_interfaces(), it.counted_devices()])
            .flat_map(Result::unwrap_or_default)
            .collect();
        devices.sort();
        devices.dedup();
        devices
    }

    /// Returns how many ACKs both builds have restored.
    ///
    /// # Errors
    /// When counters that are there cannot be read.
    pub fn restored(&self) -> Result<u64, KernelError> {
        let mut sum = 0;
        for pins in self.builds.iter().filter(|it| it.map(COUNTERS).exists()) {
            let counters = FabricDataplane::counters_at(pins)?;
            let steps = [FabricStep::Read, FabricStep::Restored, FabricStep::Unread];
            sum += steps.into_iter().map(|it| counters.done(it)).sum::<u64>();
        }
        Ok(sum)
    }

    /// Returns as long as full queues hold an ACK at most, by what either build goes by; 0 where neither says.
    ///
    /// # Errors
    /// When an agreement that is there cannot be read.
    pub fn longest_wait(&self) -> Result<Duration, KernelError> {
        let mut longest_ns = 0;
        for pins in self.builds.iter().filter(|it| it.map(AGREEMENT).exists()) {
            let map = Map::Array(map_at(pins, AGREEMENT)?);
            let agreement: Array<_, Shape<Agreement>> = typed(AGREEMENT, Array::try_from(map))?;
            let agreement = agreement.get(&0, 0).map_err(map_error(AGREEMENT))?.0;
            longest_ns = longest_ns.max(agreement.longest_wait_ns());
        }
        Ok(Duration::from_nanos(longest_ns))
    }

    /// Ends what either build writes.
    ///
    /// # Errors
    /// When something cannot be detached.
    pub fn cease(&self) -> Result<(), KernelError> {
        self.builds
            .iter()
            .rev()
            .try_for_each(super::placing::detach_writers)
    }
}
