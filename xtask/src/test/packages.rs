//! The `no_std` crates on targets that have no operating system.

use anyhow::Result;

use super::libtest::Tally;
use crate::{
    project::Project,
    setup::{BARE_TARGETS, MinimumToolchain},
};

/// Crates that need no operating system, and where they are to build. The policy counts in atomic
/// numbers of 64 bits, which the smallest processors lack.
const WITHOUT_STD: [(&str, &[&str]); 3] = [
    ("cloudburst-code", &BARE_TARGETS),
    ("flow-balance", &["x86_64-unknown-none"]),
    ("splitter-policy", &["x86_64-unknown-none"]),
];

/// Checks each of these crates for its targets.
pub(super) fn check_bare_targets(project: &Project) -> Result<Tally> {
    let mut tally = Tally::default();
    let toolchain = MinimumToolchain::find();
    for (package, targets) in WITHOUT_STD {
        for target in targets {
            tally.add(match &toolchain {
                Err(reason) => {
                    Tally::skip(&format!("{package} for {target}"), &format!("{reason:#}"))
                }
                Ok(toolchain) => {
                    check(project, toolchain, package, target)?;
                    Tally::success()
                }
            });
        }
    }
    Ok(tally)
}

fn check(
    project: &Project,
    toolchain: &MinimumToolchain,
    package: &str,
    target: &str,
) -> Result<()> {
    toolchain
        .cargo()
        .args(["check", "--locked", "--no-default-features"])
        .args(["--package", package, "--target", target])
        .env("CARGO_TARGET_DIR", project.target.join("bare-targets"))
        .current_dir(&project.root)
        .run()
}
