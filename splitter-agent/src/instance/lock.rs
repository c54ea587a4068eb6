//! One agent at a time may change an instance.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::InstanceError;

/// Held for as long as the value lives; the kernel releases it when the
/// process dies.
#[derive(Debug)]
pub struct Lock {
    _file: Flock<File>,
}

impl Lock {
    /// Takes the lock in `directory`, which is made if need be.
    pub(super) fn acquire(directory: &Path) -> Result<Self, InstanceError> {
        let failed = |action, path: &Path| {
            let path = path.to_owned();
            move |source| InstanceError::File {
                action,
                path,
                source,
            }
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(directory)
            .map_err(failed("make the directory", directory))?;
        let path = directory.join("lock");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o644)
            .open(&path)
            .map_err(failed("open the lock", &path))?;
        let mut holder = String::new();
        let _ = file.read_to_string(&mut holder);
        let mut locked = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(locked) => locked,
            Err((_, Errno::EWOULDBLOCK)) => {
                return Err(InstanceError::Running {
                    pid: holder.trim().to_owned(),
                });
            }
            Err((_, errno)) => return Err(failed("lock", &path)(errno.into())),
        };
        // For the message above only; the lock itself is the kernel's.
        let note = |file: &mut File| {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())
        };
        note(&mut locked).map_err(failed("write the lock", &path))?;
        Ok(Self { _file: locked })
    }
}
