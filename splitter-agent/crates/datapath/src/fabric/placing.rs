//! How a role comes to a machine's ports, makes room for another build, and goes.
//!
//! What one leaf has written only another restores. So whatever ends, what writes ends first, and what
//! restores stays as long as it can: until somebody takes the role off the machine.

use std::path::{Path, PathBuf};

use aya::programs::SchedClassifier;
use aya::{Ebpf, EbpfLoader};
use splitter_config::{Fabric, FabricRole};
use splitter_netlink::Interfaces;

use super::super::load::load_error;
use super::super::{KernelError, Pins, TcSide, chain};
use super::{FabricDataplane, KEPT, MAPS, fabric_object, fabric_programs, make_note, program_pin};

impl FabricDataplane {
    /// Puts the programs of a configuration in place on the ports that there are, or goes on with those of
    /// the same build that are there. What was there of another build or role is replaced, and goes on
    /// where the kernel does not take the new one.
    ///
    /// # Errors
    /// Of the kernel. A port whose device is not there is none of them: it is attached to by another call.
    pub fn up(
        bpffs: &Path,
        directory: &Path,
        fabric: &Fabric,
        interfaces: &Interfaces,
    ) -> Result<Self, KernelError> {
        let pins = Pins::new(bpffs, directory);
        pins.prepare()?;
        let object = fabric_object().map_err(|source| KernelError::Pin {
            path: directory.to_owned(),
            source,
        })?;
        let note = build_note(&pins, &object, fabric.role);
        let plane = match Self::open(bpffs, directory) {
            Some(plane) if plane.role == fabric.role && note.exists() => plane,
            _ => {
                let role = fabric.role;
                // Before anything is touched: the kernel may refuse it.
                let mut loaded = load(&object, role)?;
                set_aside(&pins)?;
                pins.prepare()?;
                pin(&mut loaded, &pins, role)?;
                make_note(&note)?;
                Self { pins, role }
            }
        };
        plane.configure(fabric, interfaces)?;
        plane.attach(fabric, interfaces)?;
        take_down(&plane.pins.earlier())?;
        Ok(plane)
    }

    /// Ends what a role writes: of a leaf what restores stays at the ports, for other leaves' ACKs are
    /// under way; of a spine nothing stays.
    ///
    /// # Errors
    /// When something cannot be detached or removed.
    pub fn cease(bpffs: &Path, directory: &Path, role: FabricRole) -> Result<(), KernelError> {
        let pins = Pins::new(bpffs, directory);
        match role {
            FabricRole::Leaf => {
                detach_writers(&pins.earlier())?;
                detach_writers(&pins)
            }
            FabricRole::Spine => Self::down(bpffs, directory),
        }
    }

    /// Takes everything in `directory` back; nothing there is no error. What is written is restored to
    /// the last: a leaf ceases to write first.
    ///
    /// # Errors
    /// When something cannot be detached or removed.
    pub fn down(bpffs: &Path, directory: &Path) -> Result<(), KernelError> {
        let pins = Pins::new(bpffs, directory);
        detach_writers(&pins)?;
        take_down(&pins.earlier())?;
        take_down(&pins)
    }

    /// Attaches to each port what is not there yet; on a leaf what restores first, and nothing else where it
    /// only restores. Lets ports go that are of the configuration no more.
    fn attach(&self, fabric: &Fabric, interfaces: &Interfaces) -> Result<(), KernelError> {
        for (side, devices) in attached_devices(&self.pins) {
            let is_port = |it: &String| fabric.ports.iter().any(|port| port.device.as_str() == it);
            for device in devices.iter().filter(|it| !is_port(it)) {
                chain::detach(&self.pins, side, device)?;
            }
        }
        for port in self.port_states(fabric, interfaces)? {
            let sides = [(TcSide::Ingress, true), (TcSide::Egress, port.is_writer)];
            let programs = fabric_programs(self.role).into_iter();
            for (((side, is_wanted), name), mode) in
                sides.into_iter().zip(programs).zip(port.attached)
            {
                if !is_wanted {
                    chain::detach(&self.pins, side, &port.device)?;
                } else if mode.is_none() {
                    chain::detach(&self.pins, side, &port.device)?;
                    let (_, mut program) = self.program(name)?;
                    chain::attach(&mut program, &self.pins, side, &port.device, port.index)?;
                }
            }
        }
        Ok(())
    }
}

/// The devices at which something of ours may be attached: what writes before what restores.
fn attached_devices(pins: &Pins) -> [(TcSide, Vec<String>); 2] {
    [
        (TcSide::Egress, pins.counted_devices().unwrap_or_default()),
        (
            TcSide::Ingress,
            pins.linked_interfaces().unwrap_or_default(),
        ),
    ]
}

fn detach_writers(pins: &Pins) -> Result<(), KernelError> {
    for device in pins.counted_devices().unwrap_or_default() {
        chain::detach(pins, TcSide::Egress, &device)?;
    }
    Ok(())
}

fn take_down(pins: &Pins) -> Result<(), KernelError> {
    for (side, devices) in attached_devices(pins) {
        for device in devices {
            chain::detach(pins, side, &device)?;
        }
    }
    pins.remove()
}

/// Moves what is pinned aside, where what restores stays attached until its successor is: two of them do
/// no harm, for the second finds nothing to restore. Of two that write the second would take the first
/// one's mark for a host's, so that goes at once. The note that it is to stay stays.
fn set_aside(pins: &Pins) -> Result<(), KernelError> {
    let earlier = pins.earlier();
    // Of one who was killed here.
    take_down(&earlier)?;
    detach_writers(pins)?;
    make_note(earlier.root())?;
    let failed = |source| KernelError::Pin {
        path: pins.root().to_owned(),
        source,
    };
    // All of them first: they move.
    let entries = std::fs::read_dir(pins.root()).map_err(failed)?;
    let names = entries.map(|it| Ok(it?.file_name()));
    let names = names.collect::<std::io::Result<Vec<_>>>().map_err(failed)?;
    for name in names {
        let (from, to) = (pins.root().join(&name), earlier.root().join(&name));
        if name != KEPT && from != earlier.root() {
            std::fs::rename(&from, to).map_err(failed)?;
        }
    }
    Ok(())
}

/// A note by its name alone, which the file system of pins has directories for.
fn build_note(pins: &Pins, object: &[u8], role: FabricRole) -> PathBuf {
    let digest = blake3::hash(object).to_hex();
    pins.root().join(format!("build-{role}-{}", &digest[..16]))
}

/// Loads the programs of a role.
fn load(object: &[u8], role: FabricRole) -> Result<Ebpf, KernelError> {
    let mut ebpf = EbpfLoader::new().load(object)?;
    for name in MAPS {
        let kind = "map";
        ebpf.map(name).ok_or(KernelError::Missing { kind, name })?;
    }
    for name in fabric_programs(role) {
        let program = program_in(&mut ebpf, name)?;
        program.load().map_err(load_error(name))?;
    }
    Ok(ebpf)
}

/// Pins what was loaded: all maps, and the programs of a role.
fn pin(ebpf: &mut Ebpf, pins: &Pins, role: FabricRole) -> Result<(), KernelError> {
    for name in MAPS {
        let (path, kind) = (pins.map(name), "map");
        let map = ebpf
            .map_mut(name)
            .ok_or(KernelError::Missing { kind, name })?;
        map.pin(&path)
            .map_err(|source| KernelError::PinObject { path, source })?;
    }
    for name in fabric_programs(role) {
        let path = program_pin(pins, name);
        program_in(ebpf, name)?
            .pin(&path)
            .map_err(|source| KernelError::PinObject { path, source })?;
    }
    Ok(())
}

fn program_in<'a>(
    ebpf: &'a mut Ebpf,
    name: &'static str,
) -> Result<&'a mut SchedClassifier, KernelError> {
    let kind = "program";
    let program = ebpf.program_mut(name).and_then(|it| it.try_into().ok());
    program.ok_or(KernelError::Missing { kind, name })
}
