//! Private files, written in one step, and what to do when that fails.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// The mode of files for their owner alone: anyone who may open a file may lock it, and so keep the
/// agent from starting.
pub(crate) const PRIVATE: u32 = 0o600;

/// The error for a file or directory of an instance that could not be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}{}", path.display(), remedy(source))]
pub struct FileError {
    /// What was tried.
    pub action: &'static str,
    /// On which file.
    pub path: PathBuf,
    /// The reason.
    pub source: io::Error,
}

impl FileError {
    pub(crate) fn new(action: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self {
            action,
            path: path.into(),
            source,
        }
    }
}

/// Writes a value into a file that its owner alone may read, in one step. What it says already is
/// not written again, so that a full disk does not hinder reconciling.
///
/// # Errors
/// [`FileError`] when it cannot be written; what was there stays then.
pub fn write_private(path: &Path, value: &impl Serialize) -> Result<(), FileError> {
    let new = path.with_extension("json.new");
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| FileError::new("write", path, source)
    };
    let text = serde_json::to_vec_pretty(value).map_err(|error| failed(path)(error.into()))?;
    if std::fs::read(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    let write = || {
        // One that a crash has left keeps its mode.
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(PRIVATE)
            .open(&new)?
            .write_all(&text)
    };
    write().map_err(|source| {
        // Half of it is of no use, and takes room.
        let _ = std::fs::remove_file(&new);
        failed(&new)(source)
    })?;
    std::fs::rename(&new, path).map_err(failed(path))
}

/// Removes a file; one that is not there counts as removed.
pub(crate) fn remove_if_there(path: &Path) -> Result<(), FileError> {
    match std::fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(FileError::new("remove", path, source))
        }
        _ => Ok(()),
    }
}

/// What is to be done where the system's message alone does not say it.
fn remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            "; run this as the user to whom that belongs, or set `runtime_dir` to a directory that you may write to"
        }
        io::ErrorKind::StorageFull => {
            "; free some space there, or set `runtime_dir` to another file system"
        }
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::NotADirectory => {
            "; set `runtime_dir` to a directory that can be written to, such as /run/splitter"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_that_may_not_be_written_is_named_with_the_remedy() {
        let reported = |kind: io::ErrorKind| {
            let error = FileError::new("make the directory", "/run/splitter/default", kind.into());
            error.to_string()
        };
        let denied = reported(io::ErrorKind::PermissionDenied);
        assert_eq!(
            denied,
            "cannot make the directory /run/splitter/default: permission denied; run this as the \
             user to whom that belongs, or set `runtime_dir` to a directory that you may write to"
        );
        assert!(reported(io::ErrorKind::StorageFull).ends_with("to another file system"));
        assert!(reported(io::ErrorKind::Interrupted).ends_with("operation interrupted"));
    }

    #[test]
    fn removing_a_file_twice_is_no_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.json");
        write_private(&path, &1).unwrap();
        remove_if_there(&path).unwrap();
        remove_if_there(&path).unwrap();
    }
}
