//! Tar archives, compressed: `PREFIX/bin/...` for who installs without a package manager, and the
//! parts of debs.

use anyhow::Result;
use tar::{Builder, EntryType, Header};

use crate::{File, Release, file::gzip};

/// Where packages have programs.
pub(crate) const PROGRAMS: &str = "/usr/bin";

/// A tarball of files, each under `prefix` and without its `/usr`.
///
/// # Errors
/// When a path is too long for an archive.
pub fn write(release: &Release, prefix: &str, files: &[File]) -> Result<Vec<u8>> {
    let mut archive = Archive::new(release);
    let below = |path: &str| {
        let path = path.strip_prefix("/usr").unwrap_or(path);
        format!("{prefix}{path}")
    };
    for file in files {
        archive.add(&below(&file.path), file.mode, &file.content)?;
    }
    archive.finish()
}

/// An archive in the making. Directories are added with the first file in each.
pub(crate) struct Archive<'r> {
    release: &'r Release,
    builder: Builder<Vec<u8>>,
    directories: Vec<String>,
}

impl<'r> Archive<'r> {
    pub(crate) fn new(release: &'r Release) -> Self {
        Self {
            release,
            builder: Builder::new(Vec::new()),
            directories: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, path: &str, mode: u32, content: &[u8]) -> Result<()> {
        for (end, _) in path.match_indices('/') {
            let directory = &path[..=end];
            if !self.directories.iter().any(|it| it == directory) {
                self.append(directory, EntryType::Directory, 0o755, &[])?;
                self.directories.push(directory.to_owned());
            }
        }
        self.append(path, EntryType::Regular, mode, content)
    }

    fn append(&mut self, path: &str, kind: EntryType, mode: u32, content: &[u8]) -> Result<()> {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(content.len() as u64);
        header.set_mtime(self.release.source_date.into());
        header.set_uid(0);
        header.set_gid(0);
        header.set_username("root")?;
        header.set_groupname("root")?;
        Ok(self.builder.append_data(&mut header, path, content)?)
    }

    /// The archive without compression.
    pub(crate) fn finish_plain(self) -> Result<Vec<u8>> {
        Ok(self.builder.into_inner()?)
    }

    pub(crate) fn finish(self) -> Result<Vec<u8>> {
        gzip(&self.builder.into_inner()?, self.release.compression)
    }
}
