//! Where the project and what is built from it lie.

use std::{
    env,
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
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .context("xtask does not lie in a workspace")?
            .to_owned();
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
    std::fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
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
