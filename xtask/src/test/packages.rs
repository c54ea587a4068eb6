//! Packages as a registry would get them, with the oldest compiler that they promise to work with,
//! and the `no_std` crates on targets that have no operating system.

use anyhow::{Context, Result};
use serde::Deserialize;

use super::libtest::Tally;
use crate::{
    command,
    project::Project,
    setup::{BARE_TARGETS, MINIMUM_VERSION, MinimumToolchain},
};

/// Crates that need no operating system, and where they are to build. The policy counts in atomic
/// numbers of 64 bits, which the smallest processors lack.
const WITHOUT_STD: [(&str, &[&str]); 3] = [
    ("cloudburst-code", &BARE_TARGETS),
    ("flow-balance", &["x86_64-unknown-none"]),
    ("splitter-policy", &["x86_64-unknown-none"]),
];

/// Packs every package that is to be published, and builds each from what is in its archive: together,
/// so that those which need one another find it, and with the oldest compiler if that is here.
pub(super) fn verify(project: &Project) -> Result<Tally> {
    let published = published(project)?;
    let mut cargo = command::cargo()
        .args(["package", "--locked", "--allow-dirty"])
        .args(published.iter().map(|name| format!("--package={name}")))
        // Debug information is for debuggers, and these are only built.
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_TARGET_DIR", project.target.join("packages"))
        .current_dir(&project.root);
    let mut tally = Tally::default();
    match MinimumToolchain::find() {
        Ok(toolchain) => cargo = cargo.env("RUSTC", toolchain.rustc()),
        Err(reason) => {
            let name = format!("packages build with Rust {MINIMUM_VERSION}");
            tally.add(Tally::skip(&name, &format!("{reason:#}")));
        }
    }
    cargo.run()?;
    for _ in published {
        tally.add(Tally::success());
    }
    Ok(tally)
}

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

/// Names of the workspace's packages that are to be published.
fn published(project: &Project) -> Result<Vec<String>> {
    let metadata = command::cargo()
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .current_dir(&project.root);
    let metadata: Metadata = serde_json::from_str(&metadata.read()?)
        .context("cannot read the output of `cargo metadata`")?;
    // `publish = false` is an empty list of registries.
    let packages = metadata.packages.into_iter();
    Ok(packages
        .filter(|package| package.publish.as_ref().is_none_or(|list| !list.is_empty()))
        .map(|package| package.name)
        .collect())
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    publish: Option<Vec<String>>,
}
