//! Where an instance's kernel objects are pinned.

use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use nix::sys::statfs::{BPF_FS_MAGIC, statfs};

use super::KernelError;

/// Paths below `<bpffs>/splitter/<instance>`.
#[derive(Clone, Debug)]
pub struct Pins {
    bpffs: PathBuf,
    root: PathBuf,
}

impl Pins {
    /// The pins of the instance whose directory is `root`, on the BPF file
    /// system mounted at `bpffs`. Touches nothing.
    pub fn new(bpffs: &Path, root: &Path) -> Self {
        Self {
            bpffs: bpffs.to_owned(),
            root: root.to_owned(),
        }
    }

    /// The directory that holds all of them.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The split program.
    pub fn program(&self) -> PathBuf {
        self.root.join("split")
    }

    /// A map by the name that it has in the object.
    pub fn map(&self, name: &str) -> PathBuf {
        self.root.join("maps").join(name)
    }

    /// The link that attaches the program to an interface.
    pub fn link(&self, interface: &str) -> PathBuf {
        self.links().join(interface)
    }

    /// The interfaces that have a pinned link.
    pub fn linked_interfaces(&self) -> io::Result<Vec<String>> {
        let entries = match std::fs::read_dir(self.links()) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut names = entries
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<io::Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    }

    /// Whether the instance has a program pinned.
    pub fn exist(&self) -> bool {
        self.program().exists()
    }

    /// Whether the caller may look for pins. Without the right to, none would
    /// seem to be there.
    ///
    /// # Errors
    /// When a directory above them may not be searched.
    pub fn check_readable(&self) -> Result<(), KernelError> {
        match self.program().try_exists() {
            Err(source) if source.kind() == io::ErrorKind::PermissionDenied => {
                Err(KernelError::NotPermitted {
                    action: "look into the BPF file system",
                })
            }
            _ => Ok(()),
        }
    }

    /// Makes the directories, readable by their owner alone.
    ///
    /// # Errors
    /// When `bpffs` is not a BPF file system, or may not be written to.
    pub fn prepare(&self) -> Result<(), KernelError> {
        let is_bpffs = statfs(&self.bpffs).is_ok_and(|info| info.filesystem_type() == BPF_FS_MAGIC);
        if !is_bpffs {
            return Err(KernelError::NoBpffs {
                path: self.bpffs.clone(),
            });
        }
        for directory in [self.root.join("maps"), self.links()] {
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&directory)
                .map_err(|source| KernelError::Pin {
                    path: directory,
                    source,
                })?;
        }
        Ok(())
    }

    /// Where the pins of what is to come lie until they take the place of these.
    pub(super) fn staged(&self) -> Self {
        Self {
            bpffs: self.bpffs.clone(),
            root: self.root.join("next"),
        }
    }

    /// Removes these pins, and nothing above them.
    pub(super) fn discard(&self) -> Result<(), KernelError> {
        remove_all(&self.root)
    }

    /// Puts the program and the maps of `staged` in the place of these; links stay.
    ///
    /// # Errors
    /// When a pin cannot be moved.
    pub(super) fn adopt(&self, staged: &Self) -> Result<(), KernelError> {
        let (maps, earlier) = (self.root.join("maps"), self.root.join("earlier"));
        remove_all(&earlier)?;
        rename(&maps, &earlier)?;
        rename(&staged.root.join("maps"), &maps)?;
        rename(&staged.program(), &self.program())?;
        remove_all(&earlier)?;
        staged.discard()
    }

    /// Removes every pin; what is attached only through them is detached.
    ///
    /// # Errors
    /// When a pin cannot be removed. No pins at all is not an error.
    pub fn remove(&self) -> Result<(), KernelError> {
        remove_all(&self.root)?;
        // Shared with other instances; it stays as long as one of them is up.
        if let Some(shared) = self.root.parent() {
            let _ = std::fs::remove_dir(shared);
        }
        Ok(())
    }

    fn links(&self) -> PathBuf {
        self.root.join("links")
    }
}

/// Removes a directory with all that is in it, if it is there.
fn remove_all(path: &Path) -> Result<(), KernelError> {
    match std::fs::remove_dir_all(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(KernelError::Pin {
            path: path.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}

fn rename(from: &Path, to: &Path) -> Result<(), KernelError> {
    std::fs::rename(from, to).map_err(|source| KernelError::Pin {
        path: from.to_owned(),
        source,
    })
}
