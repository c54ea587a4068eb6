//! What dependencies bring: licences, sources, bans and known vulnerabilities (`deny.toml`).

use std::path::Path;

use anyhow::{Context, Result};

use super::libtest::Tally;
use crate::{
    command::Run,
    project::{self, Project},
    setup::CARGO_DENY,
};

/// What of `deny.toml` can be checked without a database.
const OFFLINE: [&str; 3] = ["licenses", "bans", "sources"];

/// Checks every package of every workspace, examples and fuzz targets among them, and all that they depend on.
pub(super) fn check(project: &Project) -> Result<Tally> {
    let program = CARGO_DENY.program()?;
    if !program.is_file() {
        let reason = "cargo-deny is not there; `cargo xtask setup` builds it";
        return Ok(Tally::skip("licences, bans and sources", reason));
    }
    let workspaces = project::workspaces(&project.root)?;
    let deny = |workspace: &Path| {
        Run::new(&program)
            .arg("--locked")
            .arg("--manifest-path")
            .arg(workspace.join("Cargo.toml"))
            .arg("--config")
            .arg(project.root.join("deny.toml"))
            .current_dir(&project.root)
    };
    let mut tally = Tally::default();
    for workspace in &workspaces {
        // One list serves all, and none but the whole has use for all of it.
        let unused: &[&str] = match *workspace == project.root {
            true => &["--allow=license-exception-not-encountered"],
            false => &[
                "--allow=license-exception-not-encountered",
                "--allow=license-not-encountered",
            ],
        };
        deny(workspace)
            .args(["check", "--hide-inclusion-graph"])
            .args(unused)
            .args(OFFLINE)
            .run()
            .with_context(|| format!("dependencies of {}", workspace.display()))?;
        tally.add(Tally::success());
    }
    // Fetching and judging are apart: a machine that cannot fetch is no vulnerability.
    if !deny(&project.root).args(["fetch", "db"]).succeeds() {
        let reason = "the database of advisories cannot be fetched from here";
        tally.add(Tally::skip("known vulnerabilities", reason));
        return Ok(tally);
    }
    for workspace in &workspaces {
        deny(workspace)
            .args(["check", "advisories"])
            .run()
            .with_context(|| format!("dependencies of {}", workspace.display()))?;
        tally.add(Tally::success());
    }
    Ok(tally)
}
