//! Another text in the place of a file, in one step.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

/// A text that lies ready beside a file whose place it is to take. It goes when it is dropped.
#[derive(Debug)]
pub struct Replacement {
    target: PathBuf,
    new: PathBuf,
    is_committed: bool,
}

/// The error for a file that cannot be replaced.
#[derive(Debug, thiserror::Error)]
#[error("cannot replace {}: {source}; what it said stays", target.display())]
pub struct ReplaceError {
    target: PathBuf,
    source: io::Error,
}

impl Replacement {
    /// Writes `text` beside the file at `path`, with that one's owner and mode. A symbolic link is
    /// followed: what it leads to is replaced.
    ///
    /// # Errors
    /// When the directory cannot be written to, or the owner cannot be kept.
    pub fn prepare(path: &Path, text: &str) -> Result<Self, ReplaceError> {
        let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let failed = |source| ReplaceError {
            target: target.clone(),
            source,
        };
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let new = target.with_file_name(format!(".{name}.{}.new", std::process::id()));
        // One that a process of that number has left when it was killed.
        let _ = std::fs::remove_file(&new);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)
            .map_err(failed)?;
        // From here on it is removed on any error.
        let replacement = Self {
            target: target.clone(),
            new,
            is_committed: false,
        };
        resemble(&file, &target).map_err(failed)?;
        file.write_all(text.as_bytes()).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        Ok(replacement)
    }

    /// Puts the text in the place of the file: who opens it finds the old or the new, also after a
    /// loss of power.
    ///
    /// # Errors
    /// When it cannot be renamed; the old one is there then.
    pub fn commit(mut self) -> Result<(), ReplaceError> {
        let failed = |source| ReplaceError {
            target: self.target.clone(),
            source,
        };
        std::fs::rename(&self.new, &self.target).map_err(failed)?;
        self.is_committed = true;
        if let Some(directory) = self.target.parent() {
            // A file system that cannot sync a directory has renamed all the same.
            let _ = File::open(directory).and_then(|it| it.sync_all());
        }
        Ok(())
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if !self.is_committed {
            let _ = std::fs::remove_file(&self.new);
        }
    }
}

/// Gives `new` the owner and the mode of the file at `old`. A file that is not there any more was for
/// everybody to read, as configurations are.
fn resemble(new: &File, old: &Path) -> io::Result<()> {
    let Ok(old) = std::fs::metadata(old) else {
        return new.set_permissions(std::fs::Permissions::from_mode(0o644));
    };
    let own = new.metadata()?;
    if (own.uid(), own.gid()) != (old.uid(), old.gid()) {
        fchown(new, Some(old.uid()), Some(old.gid()))?;
    }
    new.set_permissions(old.permissions())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn replacement_keeps_mode_and_follows_links() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name| directory.path().join(name);
        fs::write(path("real.toml"), "old").unwrap();
        fs::set_permissions(path("real.toml"), fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("real.toml", path("splitter.toml")).unwrap();
        let replacement = Replacement::prepare(&path("splitter.toml"), "new").unwrap();
        assert_eq!(fs::read_to_string(path("real.toml")).unwrap(), "old");
        replacement.commit().unwrap();
        assert_eq!(fs::read_to_string(path("real.toml")).unwrap(), "new");
        assert!(path("splitter.toml").is_symlink());
        let mode = fs::metadata(path("real.toml"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o640);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    #[test]
    fn replacement_that_is_not_committed_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("splitter.toml");
        fs::write(&path, "old").unwrap();
        drop(Replacement::prepare(&path, "new").unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        let error = Replacement::prepare(Path::new("/nowhere/splitter.toml"), "new");
        let error = error.unwrap_err().to_string();
        assert!(
            error.starts_with("cannot replace /nowhere/splitter.toml: "),
            "{error}"
        );
    }
}
