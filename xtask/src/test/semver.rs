//! What libraries promise, compared with the last release.

use anyhow::Result;

use super::libtest::Tally;
use crate::{
    command::{self, Run},
    project::Project,
};

const NAME: &str = "semantic versioning";

/// Compares the libraries with the newest release, by its tag, as soon as there is one.
pub(super) fn check(project: &Project) -> Result<Tally> {
    let tags = Run::new("git")
        .args(["tag", "--list", "v[0-9]*", "--sort=-version:refname"])
        .current_dir(&project.root)
        .read()?;
    let Some(release) = tags.lines().next() else {
        return Ok(Tally::skip(NAME, "there is no release to compare with"));
    };
    let is_there = command::cargo()
        .args(["semver-checks", "--version"])
        .succeeds();
    if !is_there {
        let reason = "cargo-semver-checks is not there; `cargo install cargo-semver-checks --locked` builds it";
        return Ok(Tally::skip(NAME, reason));
    }
    command::cargo()
        .args(["semver-checks", "--workspace", "--baseline-rev", release])
        .current_dir(&project.root)
        .run()?;
    Ok(Tally::success())
}
