//! One file of a package, whatever the format.

use std::io::Write as _;

use anyhow::Result;
use flate2::{Compression, GzBuilder};

/// A regular file that a package installs for root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Absolute path on the system that it is installed on.
    pub path: String,
    /// Permissions, such as 0o644.
    pub mode: u32,
    /// All of its bytes.
    pub content: Vec<u8>,
    /// How packages treat it.
    pub kind: Kind,
}

/// How packages treat a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The package's own: replaced by the next version.
    Plain,
    /// The administrator's: what was changed stays.
    Config,
    /// Documentation, which installations may leave out.
    Doc,
    /// The text of a licence.
    Licence,
}

impl File {
    /// A file that anybody may read.
    pub fn new(path: impl Into<String>, content: impl Into<Vec<u8>>) -> Self {
        let path = path.into();
        let is_doc = ["/usr/share/doc/", "/usr/share/man/"]
            .iter()
            .any(|it| path.starts_with(it));
        Self {
            mode: 0o644,
            content: content.into(),
            kind: if is_doc { Kind::Doc } else { Kind::Plain },
            path,
        }
    }

    /// A program that anybody may run.
    pub fn program(path: impl Into<String>, content: impl Into<Vec<u8>>) -> Self {
        Self {
            mode: 0o755,
            ..Self::new(path, content)
        }
    }

    /// Returns this file with another kind.
    pub fn with_kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }
}

/// Compresses with neither name nor date inside, so that equal contents give equal bytes.
///
/// # Errors
/// None that memory does not have.
pub fn gzip(content: &[u8], level: u32) -> Result<Vec<u8>> {
    let mut writer = GzBuilder::new().write(Vec::new(), Compression::new(level));
    writer.write_all(content)?;
    Ok(writer.finish()?)
}
