//! Where the project and what is built from it lie.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::command;

/// The directories that tasks work in.
#[derive(Clone, Debug)]
pub(crate) struct Project {
    /// The root of the source tree.
    pub(crate) root: PathBuf,
    /// Cargo's target directory, wherever the user has put it.
    pub(crate) target: PathBuf,
}

impl Project {
    /// Finds the tree that this binary was compiled in, whatever the current
    /// directory.
    pub(crate) fn locate() -> Result<Self> {
        let root = root()?;
        let metadata = command::cargo()
            .args([
                "metadata",
                "--no-deps",
                "--offline",
                "--format-version",
                "1",
            ])
            .current_dir(&root);
        let metadata: Metadata = serde_json::from_str(&metadata.read()?)
            .context("cannot read the output of `cargo metadata`")?;
        Ok(Self {
            root,
            target: metadata.target_directory,
        })
    }
}

/// The root of the tree that this binary was compiled in.
pub(crate) fn root() -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let root = root.context("xtask does not lie in a workspace")?;
    Ok(root.to_owned())
}

/// Finds the workspaces of a tree, which have a `Cargo.lock` each, sorted: what cargo is asked about one of
/// them says nothing of the others.
pub(crate) fn workspaces(tree: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut directories = vec![tree.to_owned()];
    while let Some(directory) = directories.pop() {
        let entries = fs::read_dir(&directory);
        let entries = entries.with_context(|| format!("cannot read {}", directory.display()))?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let is_built = name == "target" || name.to_string_lossy().starts_with('.');
            if entry.file_type()?.is_dir() && !is_built {
                directories.push(entry.path());
            } else if name == "Cargo.lock" {
                found.push(directory.clone());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Where cargo keeps registries and tools.
pub(crate) fn cargo_home() -> Result<PathBuf> {
    match env::var_os("CARGO_HOME") {
        Some(directory) => Ok(directory.into()),
        None => Ok(home()?.join(".cargo")),
    }
}

/// Where tools that `setup` builds are kept: outside the tree, so that a second
/// clone or `cargo clean` does not build them again.
pub(crate) fn tool_cache() -> Result<PathBuf> {
    let cache = match env::var_os("XDG_CACHE_HOME") {
        Some(directory) => PathBuf::from(directory),
        None => home()?.join(".cache"),
    };
    Ok(cache.join("flow-prioritisation"))
}

/// Finds `program` in `PATH` and where system administration programs lie, which
/// an ordinary user's `PATH` leaves out.
pub(crate) fn find_program(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file())
}

/// Whether this process may do everything.
pub(crate) fn is_root() -> bool {
    // The owner of /proc/self is the effective user: no library needed.
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}

fn home() -> Result<PathBuf> {
    env::var_os("HOME")
        .map(PathBuf::from)
        .context("the environment variable HOME is not set; set it to your home directory")
}

#[derive(Deserialize)]
struct Metadata {
    target_directory: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workspaces_are_those_with_a_lock_and_not_those_of_builds() {
        let tree = tempfile::tempdir().unwrap();
        for directory in ["", "b/c", "a", "b/target/package", ".git/d"] {
            let directory = tree.path().join(directory);
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("Cargo.lock"), "").unwrap();
        }
        let found = workspaces(tree.path()).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|it| it.strip_prefix(tree.path()).unwrap().to_str().unwrap())
            .collect();
        assert_eq!(found, ["", "a", "b/c"]);
    }

    #[test]
    fn examples_with_a_lock_of_their_own_are_among_the_workspaces() {
        let root = root().unwrap();
        let found = workspaces(&root).unwrap();
        for workspace in ["", "cloudburst/crates/code/examples/browser", "lab/fuzz"] {
            assert!(found.contains(&root.join(workspace)), "{found:?}");
        }
    }
}
