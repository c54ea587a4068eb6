//! The numbers of ports, by which reports are kept: a device has that of its place in the list.

use std::path::PathBuf;

use aya::maps::{HashMap, Map};
use splitter_config::Fabric;
use splitter_netlink::Interfaces;

use super::super::error::{map_error, typed};
use super::super::{KernelError, Pins};
use super::{FabricDataplane, PORT_NUMBERS, unless_gone};

/// The note of which device each number was given to at last.
const NUMBERED: &str = "numbered";
/// Separator of the names of devices, which none has in its own.
const SEPARATOR: &str = "/";

impl FabricDataplane {
    /// Lists the ports that there are, as their devices' numbers with their own.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub(crate) fn port_numbers(&self) -> Result<Vec<(u32, u32)>, KernelError> {
        let map = Map::HashMap(self.map(PORT_NUMBERS)?);
        let numbers: HashMap<_, u32, u32> = typed(PORT_NUMBERS, HashMap::try_from(map))?;
        let read: Result<_, _> = numbers.iter().collect();
        read.map_err(map_error(PORT_NUMBERS))
    }

    /// Tells if the programs know the ports that there are now, and no others: a device that has gone leaves its number
    /// behind, which another one may be given, and one that is made anew has another.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn knows_ports(
        &self,
        fabric: &Fabric,
        interfaces: &Interfaces,
    ) -> Result<bool, KernelError> {
        let mut known = self.port_numbers()?;
        let mut wanted = wanted(fabric, interfaces);
        known.sort_unstable();
        wanted.sort_unstable();
        Ok(known == wanted)
    }

    pub(super) fn set_port_numbers(
        &self,
        fabric: &Fabric,
        interfaces: &Interfaces,
    ) -> Result<(), KernelError> {
        let map = Map::HashMap(self.map(PORT_NUMBERS)?);
        let mut numbers: HashMap<_, u32, u32> = typed(PORT_NUMBERS, HashMap::try_from(map))?;
        let wanted = wanted(fabric, interfaces);
        let known: Vec<u32> = numbers.keys().filter_map(Result::ok).collect();
        for device in known {
            if !wanted.iter().any(|(index, _)| *index == device) {
                unless_gone(numbers.remove(&device)).map_err(map_error(PORT_NUMBERS))?;
            }
        }
        for (device, number) in wanted {
            let inserted = numbers.insert(device, number, 0);
            inserted.map_err(map_error(PORT_NUMBERS))?;
        }
        self.pins.note(NUMBERED, &numbered(&self.pins, fabric))
    }
}

/// The ports of a configuration that there are, as their devices' numbers with their own.
fn wanted(fabric: &Fabric, interfaces: &Interfaces) -> Vec<(u32, u32)> {
    let ports = (0..).zip(&fabric.ports);
    let there = ports.filter_map(|(number, port)| {
        let interface = interfaces.named(&port.device).ok()?;
        Some((interface.index, number))
    });
    there.collect()
}

fn devices_of(fabric: &Fabric) -> PathBuf {
    let devices: Vec<_> = fabric.ports.iter().map(|it| it.device.as_str()).collect();
    devices.join(SEPARATOR).into()
}

/// The devices that have a number, or had one last: a number that is free may still be known of another device.
fn numbered(pins: &Pins, fabric: &Fabric) -> PathBuf {
    let before = pins.noted(NUMBERED).unwrap_or_default();
    let before = before.to_string_lossy();
    let gone = before.split(SEPARATOR).skip(fabric.ports.len());
    let now = fabric.ports.iter().map(|it| it.device.as_str());
    now.chain(gone).collect::<Vec<_>>().join(SEPARATOR).into()
}

/// Tells if a number has gone from one device to another. What was reported under it is of another spine then, and who
/// goes by the map of reports knows the numbers as they were: an instance that splits, whose agent may not run.
pub(super) fn are_others(pins: &Pins, fabric: &Fabric) -> bool {
    let Some(before) = pins.noted(NUMBERED) else {
        return false;
    };
    let now = devices_of(fabric);
    let (before, now) = (before.to_string_lossy(), now.to_string_lossy());
    let mut pairs = before.split(SEPARATOR).zip(now.split(SEPARATOR));
    pairs.any(|(before, now)| before != now)
}

#[cfg(test)]
mod tests {
    use splitter_config::FabricConfig;

    use super::*;

    #[test]
    fn numbers_are_others_when_a_device_has_that_of_another() {
        let directory = tempfile::tempdir().unwrap();
        let pins = Pins::new(directory.path(), directory.path());
        let fabric = |devices: &[&str]| {
            let port = |it: &&str| format!("[[fabric.ports]]\ndevice = '{it}'\nrate_mbit = 1\n");
            let ports: String = devices.iter().map(port).collect();
            let text = format!("[fabric]\nrole = 'spine'\ndscp = 41\n{ports}");
            FabricConfig::parse(&text, "f").unwrap().fabric
        };
        // Nothing was numbered.
        assert!(!are_others(&pins, &fabric(&["a", "b"])));
        pins.note(NUMBERED, &devices_of(&fabric(&["a", "b"])))
            .unwrap();
        for same in [&["a", "b"][..], &["a", "b", "c"], &["a"]] {
            assert!(!are_others(&pins, &fabric(same)), "{same:?}");
        }
        // A number that is free is not another device's either.
        pins.note(NUMBERED, &numbered(&pins, &fabric(&["a"])))
            .unwrap();
        assert!(are_others(&pins, &fabric(&["a", "c"])));
        assert!(!are_others(&pins, &fabric(&["a", "b"])));
        for other in [&["b", "a"][..], &["b"], &["a", "c"], &["a", "c", "b"]] {
            assert!(are_others(&pins, &fabric(other)), "{other:?}");
        }
    }
}
