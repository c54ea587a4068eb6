//! One agent at a time may change an instance.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::InstanceError;
use crate::files::{FileError, PRIVATE};

/// Held for as long as the value lives; the kernel releases it when the
/// process dies.
#[derive(Debug)]
pub struct Lock {
    _file: Flock<File>,
}

impl Lock {
    /// Takes the lock in `directory`, which is made if need be.
    pub(crate) fn acquire(directory: &Path) -> Result<Self, InstanceError> {
        let failed = |action, path: &Path| {
            let path = path.to_owned();
            move |source| FileError::new(action, path, source)
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
            .mode(PRIVATE)
            .open(&path)
            .map_err(failed("open the lock", &path))?;
        // Also one that an earlier version has made.
        file.set_permissions(Permissions::from_mode(PRIVATE))
            .map_err(failed("close the lock to others", &path))?;
        let mut pid = String::new();
        let _ = file.read_to_string(&mut pid);
        let mut locked = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(locked) => locked,
            Err((_, Errno::EWOULDBLOCK)) => {
                return Err(InstanceError::Running {
                    holder: describe_process(pid.trim()),
                });
            }
            Err((_, errno)) => return Err(failed("lock", &path)(errno.into()).into()),
        };
        // For the message above only; the lock itself is the kernel's. A full disk must not keep
        // anybody from taking the instance down.
        let note = |file: &mut File| {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())
        };
        if let Err(error) = note(&mut locked) {
            tracing::warn!(event = "lock_note_failed", path = %path.display(), %error, "cannot note who holds the instance");
        }
        Ok(Self { _file: locked })
    }
}

/// The process of that id, with its command line while it is there.
fn describe_process(pid: &str) -> String {
    if pid.is_empty() {
        return "another process".to_owned();
    }
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&line);
    let words: Vec<_> = line.split('\0').filter(|word| !word.is_empty()).collect();
    match words.as_slice() {
        [] => format!("the process {pid}"),
        words => format!("the process {pid} (`{}`)", words.join(" ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holder_is_named_with_its_command_line() {
        let own = std::process::id().to_string();
        let reported = describe_process(&own);
        let program = std::env::args().next().unwrap();
        assert!(
            reported.starts_with(&format!("the process {own} (`{program}")),
            "{reported}"
        );
        assert_eq!(describe_process("4194305"), "the process 4194305");
        assert_eq!(describe_process(""), "another process");
    }

    #[test]
    fn lock_is_closed_to_others_also_an_existing_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        drop(Lock::acquire(directory.path()).unwrap());
        assert_eq!(mode(), 0o600);
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        drop(Lock::acquire(directory.path()).unwrap());
        assert_eq!(mode(), 0o600);
    }
}
