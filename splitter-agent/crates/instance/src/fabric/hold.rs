//! One agent at a time has a role, and one role at a time has a port.

use std::fs;
use std::path::{Path, PathBuf};

use splitter_config::FabricConfig;
use splitter_datapath::Pins;

use super::FabricError;
use crate::pin_owner::{self, PinOwner};
use crate::{InstanceError, Lock};

/// Takes a role for this process, for as long as the result lives; refuses one that another process holds,
/// or whose pins are of another network namespace.
///
/// # Errors
/// [`FabricError::Instance`] with who holds it.
pub fn hold(config: &FabricConfig) -> Result<Lock, FabricError> {
    let (directory, pins) = (config.instance_dir(), pins_of(config));
    let lock = Lock::acquire(&directory)?;
    pin_owner::check(&pins, &directory)?;
    Ok(lock)
}

/// Notes on what is pinned that it is this role's.
pub(super) fn note_owner(config: &FabricConfig) -> Result<(), FabricError> {
    let owner = PinOwner::here(&config.instance_dir());
    Ok(owner.note(&pins_of(config)).map_err(InstanceError::from)?)
}

fn pins_of(config: &FabricConfig) -> Pins {
    Pins::new(&config.bpffs, &config.pin_dir())
}

/// Refuses a port of the configuration at which the programs of another role are. One in another network
/// namespace is not in the way, and has devices of its own under the same names.
pub(super) fn check_ports(config: &FabricConfig) -> Result<(), FabricError> {
    let own = config.pin_dir();
    let others = beside(&own).filter(|it| *it != own);
    let mut here = others.filter(|it| PinOwner::of(it).is_some_and(|owner| owner.is_here()));
    let taken = here.find_map(|other| {
        let devices = devices_of(&config.bpffs, &other);
        let ports = config.fabric.ports.iter();
        let mut taken = ports.filter(|it| devices.iter().any(|of| of == it.device.as_str()));
        Some(FabricError::PortTaken {
            port: taken.next()?.device.to_string(),
            name: other.file_name()?.to_string_lossy().into_owned(),
        })
    });
    taken.map_or(Ok(()), Err)
}

/// All directories of pins in the one that these are in.
fn beside(own: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = own.parent().and_then(|it| fs::read_dir(it).ok());
    let entries = entries.into_iter().flatten().filter_map(Result::ok);
    entries.map(|it| it.path())
}

/// The devices at which something that is pinned there is attached.
fn devices_of(bpffs: &Path, directory: &Path) -> Vec<String> {
    let pins = Pins::new(bpffs, directory);
    if !pins.are_in_use() {
        return Vec::new();
    }
    let mut devices = pins.linked_interfaces().unwrap_or_default();
    devices.extend(pins.counted_devices().unwrap_or_default());
    devices
}
