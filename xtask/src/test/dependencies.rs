//! What dependencies bring: licences, sources, bans and known vulnerabilities (`deny.toml`).

use anyhow::Result;

use super::libtest::Tally;
use crate::{command::Run, project::Project, setup::CARGO_DENY};

/// What of `deny.toml` can be checked without a database.
const OFFLINE: [&str; 3] = ["licenses", "bans", "sources"];

/// Checks every package of the workspace and all that they depend on.
pub(super) fn check(project: &Project) -> Result<Tally> {
    let program = CARGO_DENY.program()?;
    if !program.is_file() {
        let reason = "cargo-deny is not there; `cargo xtask setup` builds it";
        return Ok(Tally::skip("licences, bans and sources", reason));
    }
    let deny = || {
        Run::new(&program)
            .arg("--locked")
            .current_dir(&project.root)
    };
    deny()
        .args(["check", "--hide-inclusion-graph"])
        .args(OFFLINE)
        .run()?;
    let mut tally = Tally::success();
    // Fetching and judging are apart: a machine that cannot fetch is no vulnerability.
    if deny().args(["fetch", "db"]).succeeds() {
        deny().args(["check", "advisories"]).run()?;
        tally.add(Tally::success());
    } else {
        let reason = "the database of advisories cannot be fetched from here";
        tally.add(Tally::skip("known vulnerabilities", reason));
    }
    Ok(tally)
}
