//! How a role comes to a machine's ports, makes room for another build, and goes.
//!
//! What one leaf has written only another restores. So whatever ends, what writes ends first, and what
//! restores stays as long as it can: until somebody takes the role off the machine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use aya::programs::SchedClassifier;
use aya::{Ebpf, EbpfLoader};
use splitter_config::{Fabric, FabricRole};
use splitter_netlink::Interfaces;

use super::super::load::load_error;
use super::super::undisturbed::Undisturbed;
use super::super::{KernelError, Pins, TcSide, chain};
use super::{
    FabricDataplane, FabricRemains, KEPT, MAPS, fabric_object, fabric_programs, make_note, numbers,
    program_pin,
};

impl FabricDataplane {
    /// Puts the programs of a configuration in place on the ports that there are, or goes on with those of
    /// the same build that are there. What was there of another build or role is replaced, and goes on
    /// where the kernel does not take the new one; so is what has numbered the ports otherwise.
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
            Some(plane)
                if plane.role == fabric.role
                    && note.exists()
                    && !numbers::are_others(&pins, fabric) =>
            {
                plane
            }
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
        match role {
            FabricRole::Leaf => FabricRemains::new(bpffs, directory).cease(),
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
        FabricRemains::new(bpffs, directory).cease()?;
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

pub(super) fn detach_writers(pins: &Pins) -> Result<(), KernelError> {
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
/// one's mark for a host's, so that goes at once. The notes stay, that it is to stay and whose it is.
fn set_aside(pins: &Pins) -> Result<(), KernelError> {
    let earlier = pins.earlier();
    detach_writers(&earlier)?;
    detach_writers(pins)?;
    // Somebody was killed between two builds: the one stays that restores at more ports, the other goes.
    let restores_at = |it: &Pins| it.linked_interfaces().map_or(0, |it| it.len());
    if restores_at(&earlier) > 0 && restores_at(&earlier) >= restores_at(pins) {
        return take_down_newer(pins);
    }
    take_down(&earlier)?;
    make_note(earlier.root())?;
    for name in entries_of_a_build(pins)? {
        let (from, to) = (pins.root().join(&name), earlier.root().join(&name));
        std::fs::rename(&from, to).map_err(|source| KernelError::Pin { path: from, source })?;
    }
    Ok(())
}

/// Takes down what is pinned, and neither the notes nor the build before.
fn take_down_newer(pins: &Pins) -> Result<(), KernelError> {
    for (side, devices) in attached_devices(pins) {
        for device in devices {
            chain::detach(pins, side, &device)?;
        }
    }
    for name in entries_of_a_build(pins)? {
        let path = pins.root().join(name);
        let removed = match path.is_dir() {
            true => std::fs::remove_dir_all(&path),
            false => std::fs::remove_file(&path),
        };
        removed.map_err(|source| KernelError::Pin { path, source })?;
    }
    Ok(())
}

/// Lists the pins of a build, without the build before and without the notes: that it is to stay, and symbolic links.
fn entries_of_a_build(pins: &Pins) -> Result<Vec<OsString>, KernelError> {
    let earlier = pins.earlier();
    let list = || -> std::io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(pins.root())? {
            let entry = entry?;
            let is_note = entry.file_type()?.is_symlink() || entry.file_name() == KEPT;
            if !is_note && entry.path() != earlier.root() {
                names.push(entry.file_name());
            }
        }
        Ok(names)
    };
    list().map_err(|source| KernelError::Pin {
        path: pins.root().to_owned(),
        source,
    })
}

/// A note by its name alone, which the file system of pins has directories for.
fn build_note(pins: &Pins, object: &[u8], role: FabricRole) -> PathBuf {
    let digest = blake3::hash(object).to_hex();
    pins.root().join(format!("build-{role}-{}", &digest[..16]))
}

/// Loads the programs of a role.
fn load(object: &[u8], role: FabricRole) -> Result<Ebpf, KernelError> {
    let _undisturbed = Undisturbed::begin();
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
