//! The objects whose programs are counted.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

/// An object that ships.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// The programs of a border router.
    Splitter,
    /// Those of a leaf and of a spine.
    Fabric,
}

impl Object {
    /// Its file, within the tree.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::Splitter => "splitter-agent/crates/datapath/bpf/splitter.o",
            Self::Fabric => "splitter-agent/crates/datapath/bpf/fabric.o",
        }
    }
}

/// The bytes of all of them.
#[derive(Clone, Debug)]
pub struct Objects {
    splitter: Vec<u8>,
    fabric: Vec<u8>,
}

impl Objects {
    /// Reads the committed ones of the tree at `root`.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn read(root: &Path) -> Result<Self> {
        Ok(Self {
            splitter: read(&root.join(Object::Splitter.path()))?,
            fabric: read(&root.join(Object::Fabric.path()))?,
        })
    }

    /// Puts a file in the place of the one of its name; one of another name is a border router's.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn replace(&mut self, file: &Path) -> Result<()> {
        let replaced = match file.file_name().and_then(|it| it.to_str()) {
            Some("fabric.o") => &mut self.fabric,
            _ => &mut self.splitter,
        };
        *replaced = read(file)?;
        Ok(())
    }

    /// Returns the bytes of one of them.
    #[must_use]
    pub fn of(&self, object: Object) -> &[u8] {
        match object {
            Object::Splitter => &self.splitter,
            Object::Fabric => &self.fabric,
        }
    }
}

fn read(file: &Path) -> Result<Vec<u8>> {
    fs::read(file).with_context(|| format!("cannot read {}", file.display()))
}
