//! What the committed objects were built with, kept next to them.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::pair::Identity;

/// The contents of `toolchain.json`.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) toolchain: Identity,
    /// BLAKE3 hash of each object by its path in the tree.
    blake3: BTreeMap<String, String>,
}

impl Record {
    pub(super) fn new(toolchain: &Identity) -> Self {
        Self {
            toolchain: toolchain.clone(),
            blake3: BTreeMap::new(),
        }
    }

    pub(super) fn add(&mut self, path: &str, object: &[u8]) {
        self.blake3
            .insert(path.to_owned(), blake3::hash(object).to_string());
    }

    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| {
            format!(
                "cannot read {}, which says what the committed objects were built with; `cargo xtask build-ebpf` writes it",
                path.display()
            )
        })?;
        serde_json::from_str(&text)
            .with_context(|| format!("{} is not a record of build-ebpf", path.display()))
    }

    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let mut text = serde_json::to_string_pretty(self).context("cannot encode the record")?;
        text.push('\n');
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Whether the objects in the tree are those that the record is about.
    pub(super) fn verify(&self, root: &Path) -> Result<()> {
        for (path, recorded) in &self.blake3 {
            let object = fs::read(root.join(path))
                .with_context(|| format!("cannot read the committed object {path}"))?;
            if blake3::hash(&object).to_string() != *recorded {
                bail!(
                    "{path} is not the object that its record is about; run `cargo xtask build-ebpf` and commit objects and record together"
                );
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::pair::Pair, *};

    #[test]
    fn comes_back_as_written_and_notices_a_changed_object() {
        let directory = tempfile::tempdir().unwrap();
        let mut record = Record::new(&Identity {
            pair: Pair::Debian,
            rustc: "rustc 1.96.0".to_owned(),
            bpf_linker: "bpf-linker 0.13.0".to_owned(),
        });
        record.add("a.o", b"object");
        let path = directory.path().join("toolchain.json");
        record.write(&path).unwrap();
        assert_eq!(Record::read(&path).unwrap(), record);

        fs::write(directory.path().join("a.o"), b"object").unwrap();
        record.verify(directory.path()).unwrap();
        fs::write(directory.path().join("a.o"), b"another").unwrap();
        let error = record.verify(directory.path()).unwrap_err();
        assert!(error.to_string().contains("a.o is not the object"));
    }
}
