//! Whose pins those of a name are: a BPF file system may be shared by instances whose states are in
//! different directories, and by network namespaces.

use std::io;
use std::path::{Path, PathBuf};

use splitter_config::Config;
use splitter_datapath::Pins;

use crate::files::FileError;
use crate::state::current_network;
use crate::{InstanceError, State};

/// A symbolic link in the pins' directory, since a BPF file system takes no files. It leads nowhere:
/// what it says is where it would lead.
const NOTE: &str = "owner";

/// An instance, as its pins name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PinOwner {
    /// The number of its network namespace.
    network: Option<u64>,
    /// The directory of its state.
    pub(crate) directory: PathBuf,
}

impl PinOwner {
    /// The instance whose state is in a directory, seen from here.
    pub(crate) fn here(directory: &Path) -> Self {
        Self {
            network: current_network(),
            directory: directory.to_owned(),
        }
    }

    /// The instance that has these pins; none where a version that did not note it has made them.
    pub(crate) fn of(pins: &Path) -> Option<Self> {
        let note = std::fs::read_link(pins.join(NOTE)).ok()?;
        let note = note.to_str()?;
        let (network, directory) = note.strip_prefix("net:")?.split_once(':')?;
        Some(Self {
            network: network.parse().ok(),
            directory: PathBuf::from(directory),
        })
    }

    /// Notes on pins that they are this instance's.
    pub(crate) fn note(&self, pins: &Pins) -> Result<(), FileError> {
        let path = pins.root().join(NOTE);
        if Self::of(pins.root()).as_ref() == Some(self) {
            return Ok(());
        }
        let failed = |source| FileError::new("note whose pins these are as", &path, source);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        std::os::unix::fs::symlink(self.text(), &path).map_err(failed)
    }

    fn text(&self) -> String {
        let network = self
            .network
            .map_or_else(|| "?".to_owned(), |it| it.to_string());
        format!("net:{network}:{}", self.directory.display())
    }

    /// Whether that is in the network namespace of this thread, as far as it is known.
    pub(crate) fn is_here(&self) -> bool {
        self.network.is_none() || self.network == current_network()
    }
}

/// Refuses pins of another instance with the same name. Those that are attached to nothing any more,
/// because their devices have gone with their namespace, are free.
pub(crate) fn check(pins: &Pins, directory: &Path) -> Result<(), InstanceError> {
    let own = PinOwner::here(directory);
    match PinOwner::of(pins.root()) {
        Some(other) if other != own && pins.are_in_use() => Err(InstanceError::PinsTaken {
            pins: pins.root().to_owned(),
            place: match other.is_here() {
                true => "in this network namespace",
                false => "in another network namespace",
            },
            directory: other.directory,
        }),
        _ => Ok(()),
    }
}

/// The directories of the states of all instances of this network namespace that have pins beside
/// those of a configuration.
pub(crate) fn beside(config: &Config) -> Vec<PathBuf> {
    let pin_dir = config.pin_dir();
    let entries = pin_dir.parent().and_then(|it| std::fs::read_dir(it).ok());
    let owners = entries.into_iter().flatten().filter_map(|entry| {
        let owner = PinOwner::of(&entry.ok()?.path())?;
        let has_state = matches!(State::read(&owner.directory), Ok(Some(_)));
        (owner.is_here() && has_state).then_some(owner.directory)
    });
    owners.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn note_is_read_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let pins = Pins::new(directory.path(), directory.path());
        assert_eq!(PinOwner::of(pins.root()), None);
        for place in ["/run/splitter/default", "/srv/a:b/west"] {
            let owner = PinOwner::here(Path::new(place));
            owner.note(&pins).unwrap();
            owner.note(&pins).unwrap();
            assert_eq!(PinOwner::of(pins.root()), Some(owner.clone()));
            assert!(owner.is_here());
        }
        let elsewhere = PinOwner {
            network: Some(1),
            directory: "/x".into(),
        };
        assert!(!elsewhere.is_here());
        elsewhere.note(&pins).unwrap();
        assert_eq!(PinOwner::of(pins.root()), Some(elsewhere));
    }
}
