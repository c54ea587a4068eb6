//! Roles by their pins: also that of a file which is not at hand, or not there any more.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use splitter_config::FabricConfig;
use splitter_datapath::{FabricRemains, KernelError, Pins};

use super::FabricError;
use crate::files::FileError;
use crate::pin_owner::{self, PinOwner};
use crate::{InstanceError, Lock};

/// The directory of all roles' pins on a BPF file system.
const ROLES: &str = "splitter-fabric";
/// The note of the file that a role is of.
const FILE: &str = "file";

/// A role where it is pinned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedRole {
    bpffs: PathBuf,
    pins: PathBuf,
    /// That of its lock.
    directory: PathBuf,
}

impl PinnedRole {
    /// The role of a configuration, whether it is in place or not.
    #[must_use]
    pub fn of(config: &FabricConfig) -> Self {
        Self {
            bpffs: config.bpffs.clone(),
            pins: config.pin_dir(),
            directory: config.instance_dir(),
        }
    }

    /// Lists the roles that are pinned on all BPF file systems that are mounted here, by name; those of other network
    /// namespaces as well.
    ///
    /// # Errors
    /// When a directory that is there cannot be listed.
    pub fn all() -> Result<Vec<Self>, FabricError> {
        let failed =
            |path: &Path, source| InstanceError::from(FileError::new("list", path, source));
        let mounts = Path::new("/proc/self/mounts");
        let text = fs::read(mounts).map_err(|source| failed(mounts, source))?;
        let (mut all, mut seen) = (Vec::new(), HashSet::new());
        for bpffs in bpf_file_systems(&text) {
            let roles = bpffs.join(ROLES);
            let entries = match fs::read_dir(&roles) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    let action = "look into the BPF file system";
                    return Err(KernelError::NotPermitted { action }.into());
                }
                entries => entries.map_err(|source| failed(&roles, source))?,
            };
            for entry in entries {
                let pins = entry.map_err(|source| failed(&roles, source))?.path();
                // A file system may be mounted twice; and one that goes meanwhile is none.
                let Ok(found) = fs::metadata(&pins) else {
                    continue;
                };
                if found.is_dir() && seen.insert((found.dev(), found.ino())) {
                    all.push(Self::pinned(&bpffs, pins));
                }
            }
        }
        all.sort_by(|a, b| a.pins.cmp(&b.pins));
        Ok(all)
    }

    /// Where nobody has noted whose it is, its lock lies where it is by default.
    fn pinned(bpffs: &Path, pins: PathBuf) -> Self {
        let noted = PinOwner::of(&pins).map(|it| it.directory);
        let by_default = || {
            let below = pins.strip_prefix("/").unwrap_or(&pins);
            Path::new(FabricConfig::DEFAULT_RUNTIME_DIR).join(below)
        };
        Self {
            bpffs: bpffs.to_owned(),
            directory: noted.unwrap_or_else(by_default),
            pins,
        }
    }

    /// Returns the name of the role.
    #[must_use]
    pub fn name(&self) -> String {
        let name = self.pins.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// Returns the directory of its pins.
    #[must_use]
    pub fn pins(&self) -> &Path {
        &self.pins
    }

    /// Returns the file of which it was put in place last, as far as that was noted.
    #[must_use]
    pub fn file(&self) -> Option<PathBuf> {
        self.as_pins().noted(FILE)
    }

    /// Returns what is pinned of it.
    #[must_use]
    pub fn remains(&self) -> FabricRemains {
        FabricRemains::new(&self.bpffs, &self.pins)
    }

    /// Tells if it is of this network namespace. One of which nobody has noted that is, if something is attached.
    #[must_use]
    pub fn is_here(&self) -> bool {
        match PinOwner::of(&self.pins) {
            Some(owner) => owner.is_here(),
            None => !self.remains().devices().is_empty(),
        }
    }

    /// Takes the role for this process, for as long as the result lives; refuses one that another process holds,
    /// or whose pins are of another network namespace.
    ///
    /// # Errors
    /// [`FabricError::Held`] with who holds it, and [`FabricError::Instance`].
    pub fn hold(&self) -> Result<Lock, FabricError> {
        let lock = Lock::acquire(&self.directory).map_err(|error| match error {
            InstanceError::Running { holder } => FabricError::Held {
                name: self.name(),
                holder,
            },
            error => error.into(),
        })?;
        pin_owner::check(&self.as_pins(), &self.directory)?;
        Ok(lock)
    }

    /// Notes whose it is and of which file: before anything is attached, so that it is never nobody's.
    pub(super) fn note(&self, file: &Path) -> Result<(), FabricError> {
        let pins = self.as_pins();
        let owner = PinOwner::here(&self.directory);
        owner.note(&pins).map_err(InstanceError::from)?;
        let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        Ok(pins.note(FILE, &file)?)
    }

    pub(super) fn bpffs(&self) -> &Path {
        &self.bpffs
    }

    pub(super) fn as_pins(&self) -> Pins {
        Pins::new(&self.bpffs, &self.pins)
    }
}

/// The BPF file systems among mounts, where they have the directory of all roles: a service may have been given that
/// directory alone.
fn bpf_file_systems(mounts: &[u8]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in mounts.split(|it| *it == b'\n') {
        let mut fields = line.split(|it| *it == b' ').skip(1);
        let (Some(place), Some(b"bpf")) = (fields.next(), fields.next()) else {
            continue;
        };
        let mut place = PathBuf::from(std::ffi::OsString::from_vec(unescaped(place)));
        if place.file_name() == Some(OsStr::new(ROLES)) {
            place.pop();
        }
        if !found.contains(&place) {
            found.push(place);
        }
    }
    found
}

/// What is written as a backslash and three octal digits: blanks, line breaks and backslashes (proc(5)).
fn unescaped(field: &[u8]) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), field);
    while let Some((first, after)) = rest.split_first() {
        let digits = after.first_chunk::<3>().filter(|_| *first == b'\\');
        let code = digits.and_then(|it| u8::from_str_radix(std::str::from_utf8(it).ok()?, 8).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_are_found_by_their_type() {
        let mounts = b"proc /proc proc rw 0 0\nbpf /sys/fs/bpf bpf rw,mode=700 0 0\n\
            none /srv/a\\040b\\134c bpf rw 0 0\nbpf /sys/fs/bpf/splitter-fabric bpf rw 0 0\n\
            bpf /bpf ext4 rw 0 0\nshort\n";
        let found = bpf_file_systems(mounts);
        assert_eq!(found, [Path::new("/sys/fs/bpf"), Path::new("/srv/a b\\c")]);
        // What is no code stays as it is.
        for odd in [&b"a\\"[..], b"\\12", b"\\9zz", b"\\777"] {
            assert_eq!(unescaped(odd), odd);
        }
    }

    #[test]
    fn role_that_nobody_has_noted_has_its_lock_where_it_is_by_default() {
        let directory = tempfile::tempdir().unwrap();
        let pins = directory.path().join(ROLES).join("a");
        fs::create_dir_all(&pins).unwrap();
        let role = PinnedRole::pinned(directory.path(), pins.clone());
        assert_eq!(role.name(), "a");
        assert_eq!(role.file(), None);
        assert!(role.directory.starts_with("/run/splitter-fabric"));
        assert!(role.directory.ends_with("splitter-fabric/a"));
        // And nothing is attached.
        assert!(!role.is_here());
        let noted = PinnedRole {
            directory: "/srv/run".into(),
            ..role
        };
        noted.note(Path::new("/etc/f.toml")).unwrap();
        let role = PinnedRole::pinned(directory.path(), pins);
        assert_eq!(role, noted);
        assert_eq!(role.file().as_deref(), Some(Path::new("/etc/f.toml")));
        assert!(role.is_here());
    }
}
