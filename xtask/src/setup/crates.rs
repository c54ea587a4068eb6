//! Crates of the workspaces that have a lock file of their own: examples, fuzz targets and kernel programs. What
//! cargo downloads to build the other packages lacks some of them, and tests build these as well.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::{
    command::{self, Run},
    project,
};

/// Whether all of them are there, so that tests need no network.
pub(super) fn are_there() -> bool {
    let are_there = |workspaces: Vec<PathBuf>| {
        let mut workspaces = workspaces.iter();
        workspaces.all(|it| fetch_of(it).arg("--offline").succeeds())
    };
    others().is_ok_and(are_there)
}

/// Downloads them into cargo's own cache.
pub(super) fn fetch() -> Result<()> {
    for workspace in others()? {
        eprintln!("Fetching crates for {}", workspace.display());
        fetch_of(&workspace)
            .run()
            .with_context(|| format!("cannot fetch the crates of {}", workspace.display()))?;
    }
    Ok(())
}

/// All workspaces of the tree but the one of the products.
fn others() -> Result<Vec<PathBuf>> {
    let root = project::root()?;
    let mut workspaces = project::workspaces(&root)?;
    workspaces.retain(|it| *it != root);
    Ok(workspaces)
}

fn fetch_of(workspace: &Path) -> Run {
    command::cargo()
        .args(["fetch", "--locked", "--manifest-path"])
        .arg(workspace.join("Cargo.toml"))
}
