//! A file, what it says and where it is.

use std::path::{Path, PathBuf};

use super::{Config, ConfigError};

/// A configuration that was read from a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFile {
    /// Where it is, from the root: a daemon may be in another directory later.
    pub path: PathBuf,
    /// What it says.
    pub text: String,
    /// What that means.
    pub config: Config,
}

impl ConfigFile {
    /// Reads and parses the file at `path`.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let unreadable = |source| ConfigError::Unreadable {
            path: path.to_owned(),
            source,
        };
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        Ok(Self {
            config: Config::parse(&text, &path.display().to_string())?,
            path: std::path::absolute(path).map_err(unreadable)?,
            text,
        })
    }
}
