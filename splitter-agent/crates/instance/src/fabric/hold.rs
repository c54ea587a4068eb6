//! One role at a time has a port.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use splitter_config::FabricConfig;
use splitter_datapath::{FabricRemains, Pins};
use tokio::time::sleep;

use super::FabricError;
use crate::InstanceError;
use crate::files::FileError;
use crate::pin_owner::PinOwner;

/// Another one attaches its programs within milliseconds where nobody holds the kernel's lock of all devices, and within
/// seconds where somebody does.
const PATIENCE: Duration = Duration::from_secs(30);
/// From one try to the next.
const TRY_INTERVAL: Duration = Duration::from_millis(5);

/// The turn of one role among all those of a BPF file system to look who has which port, and to take some; for as long
/// as the value lives.
#[derive(Debug)]
pub(super) struct Turn {
    _directory: Flock<File>,
}

impl Turn {
    /// Waits for the turn. The directories of the role's pins are there then.
    pub(super) async fn take(pins: &Pins) -> Result<Self, FabricError> {
        let shared = pins.root().parent().unwrap_or(pins.root());
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            // First, so that nobody removes the one above any more because it is empty.
            pins.prepare()?;
            match locked(shared) {
                Ok(Some(directory)) => {
                    return Ok(Self {
                        _directory: directory,
                    });
                }
                Ok(None) => sleep(TRY_INTERVAL).await,
                Err(source) => {
                    return Err(InstanceError::from(FileError::new("lock", shared, source)).into());
                }
            }
        }
        Err(FabricError::NoTurn {
            directory: shared.to_owned(),
            seconds: PATIENCE.as_secs(),
        })
    }
}

/// The lock of a directory; none while another one has it, or where it is another directory by now.
fn locked(shared: &Path) -> io::Result<Option<Flock<File>>> {
    let directory = match Flock::lock(File::open(shared)?, FlockArg::LockExclusiveNonblock) {
        Ok(locked) => locked,
        Err((_, Errno::EWOULDBLOCK)) => return Ok(None),
        Err((_, errno)) => return Err(errno.into()),
    };
    let (locked, there) = (directory.metadata()?, fs::metadata(shared)?);
    let is_there = (locked.dev(), locked.ino()) == (there.dev(), there.ino());
    Ok(is_there.then_some(directory))
}

/// Refuses a port of the configuration at which the programs of another role are. One in another network
/// namespace is not in the way, and has devices of its own under the same names.
pub(super) fn check_ports(config: &FabricConfig, _turn: &Turn) -> Result<(), FabricError> {
    let own = config.pin_dir();
    let others = beside(&own).filter(|it| *it != own);
    let mut here = others.filter(|it| PinOwner::of(it).is_some_and(|owner| owner.is_here()));
    let taken = here.find_map(|other| {
        let devices = FabricRemains::new(&config.bpffs, &other).devices();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_is_locked_by_one_and_only_while_it_is_there() {
        let above = tempfile::tempdir().unwrap();
        let shared = above.path().join("roles");
        assert!(locked(&shared).is_err());
        fs::create_dir(&shared).unwrap();
        let first = locked(&shared).unwrap();
        assert!(first.is_some());
        assert!(locked(&shared).unwrap().is_none());
        // Removed and made again it is another one.
        fs::remove_dir(&shared).unwrap();
        fs::create_dir(&shared).unwrap();
        assert!(locked(&shared).unwrap().is_some());
        drop(first);
        assert!(locked(&shared).unwrap().is_some());
    }
}
