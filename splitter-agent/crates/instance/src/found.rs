//! Instances of which something is on this machine, found without their configurations.

use std::io;
use std::path::{Path, PathBuf};

use splitter_config::{Config, Location};
use splitter_control::control_socket;

use crate::files::FileError;
use crate::{InstanceError, State};

/// Directories in which instances are looked for by their state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Search {
    runtime_dirs: Vec<PathBuf>,
}

impl Search {
    /// Looks where instances are by default, where a file says that its instance is, as far as that
    /// can be read, and where agents of this network namespace listen now.
    #[must_use]
    pub fn everywhere(file: &Location) -> Self {
        let mut search = Self::default();
        let of_file = file.directory.parent().map(Path::to_owned);
        let sockets = std::fs::read_to_string("/proc/thread-self/net/unix").unwrap_or_default();
        let all = of_file
            .into_iter()
            .chain([Config::DEFAULT_RUNTIME_DIR.into()]);
        for directory in all.chain(directories_of_sockets(&sockets)) {
            search.add(directory);
        }
        search
    }

    /// Looks below a single directory.
    pub(crate) fn under(runtime_dir: &Path) -> Self {
        let runtime_dirs = vec![runtime_dir.to_owned()];
        Self { runtime_dirs }
    }

    /// Looks in this directory, too.
    fn add(&mut self, runtime_dir: PathBuf) {
        if !self.runtime_dirs.contains(&runtime_dir) {
            self.runtime_dirs.push(runtime_dir);
        }
    }

    /// Finds the instances that have a directory of their own there, also those that are down.
    ///
    /// # Errors
    /// When a directory that is there cannot be listed.
    pub fn instances(&self) -> Result<Vec<FoundInstance>, InstanceError> {
        let mut found = Vec::new();
        for runtime_dir in &self.runtime_dirs {
            let failed = |source| FileError::new("list", runtime_dir, source);
            let entries = match std::fs::read_dir(runtime_dir) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                entries => entries.map_err(failed)?,
            };
            for entry in entries {
                let directory = entry.map_err(failed)?.path();
                if is_of_an_instance(&directory) {
                    let state = State::read(&directory);
                    found.push(FoundInstance { directory, state });
                }
            }
        }
        found.sort_by(|a, b| a.directory.cmp(&b.directory));
        Ok(found)
    }
}

/// An instance that has a directory for its state.
#[derive(Debug)]
pub struct FoundInstance {
    /// The directory.
    pub directory: PathBuf,
    /// Its state; none where it is down, and an error where that cannot be read.
    pub state: Result<Option<State>, InstanceError>,
}

impl FoundInstance {
    /// Returns the name of the instance.
    #[must_use]
    pub fn name(&self) -> String {
        let name = self.directory.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// Returns its state, if it has one that can be read.
    #[must_use]
    pub fn known_state(&self) -> Option<&State> {
        self.state.as_ref().ok()?.as_ref()
    }
}

/// Finds the configuration of the instance that a file is about in the instance's state, for a file
/// that cannot be used.
///
/// That is the instance that was brought up with this file, or else the one that the file names. A
/// file that is not there names none, so that a mistyped path never means another instance.
#[must_use]
pub fn recover(file: &Path) -> Option<Config> {
    let location = Location::in_file(file);
    let instances = Search::everywhere(&location).instances().ok()?;
    let path = std::path::absolute(file).ok()?;
    let is_of_file = |it: &&FoundInstance| {
        let noted = it.known_state().and_then(|state| state.file.as_ref());
        noted == Some(&path)
    };
    let is_named = |it: &&FoundInstance| it.directory == location.directory && path.exists();
    let mut of_file = instances.iter().filter(is_of_file);
    let found = match (of_file.next(), of_file.next()) {
        (Some(only), None) => only,
        _ => instances.iter().find(is_named)?,
    };
    let config = found.known_state()?.config_in_force()?;
    (config.instance_dir() == found.directory).then_some(config)
}

/// Whether a directory holds what instances keep, and not somebody else's files.
fn is_of_an_instance(directory: &Path) -> bool {
    let kept = ["lock", "state.json"].map(|name| directory.join(name));
    kept.iter().any(|it| it.is_file())
}

/// The directories above those in which control sockets of ours are bound, from the kernel's list of
/// Unix sockets. A socket of that name is not enough: it lies next to a lock.
fn directories_of_sockets(list: &str) -> Vec<PathBuf> {
    let name = control_socket(Path::new(""));
    let paths = list.lines().skip(1).filter_map(|line| {
        // Num RefCount Protocol Flags Type St Inode Path
        let path = Path::new(&line[line.find(" /")? + 1..]);
        path.ends_with(&name).then_some(path)
    });
    let instances = paths.filter_map(Path::parent);
    let instances = instances.filter(|it| it.join("lock").is_file());
    let above = instances.filter_map(Path::parent).map(Path::to_owned);
    above.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_of_agents_tell_where_their_instances_are() {
        let directory = tempfile::tempdir().unwrap();
        let instance = directory.path().join("west");
        std::fs::create_dir(&instance).unwrap();
        let list = format!(
            "Num       RefCount Protocol Flags    Type St Inode Path\n\
             0000000000000000: 00000002 00000000 00010000 0001 01 19182 /run/systemd/notify\n\
             0000000000000000: 00000002 00000000 00010000 0001 01  9182 {}/west/control.sock\n\
             0000000000000000: 00000003 00000000 00000000 0001 03 19183\n",
            directory.path().display()
        );
        assert!(directories_of_sockets(&list).is_empty(), "somebody else's");
        std::fs::write(instance.join("lock"), "").unwrap();
        assert_eq!(directories_of_sockets(&list), [directory.path()]);
    }

    #[test]
    fn directories_of_others_are_no_instances() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["west", "notes"] {
            std::fs::create_dir(directory.path().join(name)).unwrap();
        }
        for file in ["west/lock", "notes/todo", "lock"] {
            std::fs::write(directory.path().join(file), "").unwrap();
        }
        let mut search = Search::default();
        search.add(directory.path().to_owned());
        search.add(directory.path().join("nowhere"));
        let found = search.instances().unwrap();
        let names: Vec<_> = found.iter().map(FoundInstance::name).collect();
        assert_eq!(names, ["west"]);
        assert!(found[0].known_state().is_none());
    }
}
