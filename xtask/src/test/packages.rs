//! Packages as a registry would get them, with the oldest compiler that they promise to work with,
//! the `no_std` crates on targets that have no operating system, and libraries on systems of others.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::libtest::Tally;
use crate::{
    command,
    project::{Project, cargo_home},
    setup::{BARE_TARGETS, MINIMUM_VERSION, MinimumToolchain, PLATFORM_TARGETS},
};

/// Crates that need no operating system, and where they are to build. The policy counts in atomic
/// numbers of 64 bits, which the smallest processors lack.
const WITHOUT_STD: [(&str, &[&str]); 3] = [
    ("cloudburst-code", &BARE_TARGETS),
    ("flow-balance", &["x86_64-unknown-none"]),
    ("splitter-policy", &["x86_64-unknown-none"]),
];

/// Libraries for systems that nothing here runs on: that they compile is all that is known. The page on
/// platforms says what each lacks.
const ELSEWHERE: [(&str, &[&str]); 3] = [
    ("cloudburst-fec", &PLATFORM_TARGETS),
    ("cloudburst-ffi", &PLATFORM_TARGETS),
    ("cloudburst-proto", &["wasm32-unknown-unknown"]),
];

/// Packs every package that is to be published, and builds each from what is in its archive: together,
/// so that those which need one another find it, and with the oldest compiler if that is here.
pub(super) fn verify(project: &Project) -> Result<Tally> {
    let published = published(project)?;
    let place = Place::new(project)?;
    let mut cargo = command::cargo()
        .args(["package", "--locked", "--allow-dirty"])
        .args(published.iter().map(|name| format!("--package={name}")))
        // Debug information is for debuggers, and these are only built.
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_TARGET_DIR", &place.directory)
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

/// A target directory that no run has used before, removed in the end.
///
/// To cargo, what comes from a registry never changes, and the archives are a registry to it, named
/// by its path: in a place that it knows it would build what it unpacked there earlier.
struct Place {
    directory: PathBuf,
    /// Where cargo unpacks registries, and what was there before.
    unpacked: PathBuf,
    before: BTreeSet<OsString>,
}

impl Place {
    fn new(project: &Project) -> Result<Self> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        let parent = project.target.join("packages");
        if parent.exists() {
            // What an interrupted run has left.
            fs::remove_dir_all(&parent)
                .with_context(|| format!("cannot remove {}", parent.display()))?;
        }
        let unpacked = cargo_home()?.join("registry/src");
        Ok(Self {
            directory: parent.join(now.as_nanos().to_string()),
            before: names(&unpacked),
            unpacked,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
        // A registry without a host has a name that begins with the dash before its digest.
        for name in names(&self.unpacked).difference(&self.before) {
            if name.to_string_lossy().starts_with('-') {
                let _ = fs::remove_dir_all(self.unpacked.join(name));
            }
        }
    }
}

fn names(directory: &Path) -> BTreeSet<OsString> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name()).collect()
}

/// Checks each of these crates for its targets.
pub(super) fn check_targets(project: &Project) -> Result<Tally> {
    let mut tally = Tally::default();
    let toolchain = MinimumToolchain::find();
    let bare = WITHOUT_STD.map(|it| (it, &["--no-default-features"][..]));
    let elsewhere = ELSEWHERE.map(|it| (it, &[][..]));
    for ((package, targets), features) in bare.into_iter().chain(elsewhere) {
        let names = targets.iter().map(|it| format!("{package} for {it}"));
        match &toolchain {
            Err(reason) => names
                .map(|name| Tally::skip(&name, &format!("{reason:#}")))
                .for_each(|skip| tally.add(skip)),
            Ok(toolchain) => {
                check(project, toolchain, (package, targets), features)?;
                names.for_each(|_| tally.add(Tally::success()));
            }
        }
    }
    Ok(tally)
}

/// For all targets at once: one after the other would leave all processors but one idle.
fn check(
    project: &Project,
    toolchain: &MinimumToolchain,
    (package, targets): (&str, &[&str]),
    features: &[&str],
) -> Result<()> {
    toolchain
        .cargo()
        .args(["check", "--locked"])
        .args(features)
        .args(["--package", package])
        .args(targets.iter().flat_map(|target| ["--target", target]))
        .env("CARGO_TARGET_DIR", project.target.join("bare-targets"))
        // Nothing is linked: what dependencies have in C needs no compiler for the target.
        .env("TARGET_CC", "true")
        .env("TARGET_AR", "true")
        .current_dir(&project.root)
        .run()
}

/// Names of the workspace's packages that are to be published.
fn published(project: &Project) -> Result<Vec<String>> {
    // `publish = false` is an empty list of registries.
    let packages = Metadata::of(project)?.packages.into_iter();
    Ok(packages
        .filter(|package| package.publish.as_ref().is_none_or(|list| !list.is_empty()))
        .map(|package| package.name)
        .collect())
}

/// Names of these packages, and of all in the workspace that they are built from.
pub(super) fn with_what_they_need(project: &Project, names: &[&str]) -> Result<BTreeSet<String>> {
    Ok(Metadata::of(project)?.closure(names))
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    publish: Option<Vec<String>>,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    /// `dev` or `build`; nothing for what the package itself is built from.
    kind: Option<String>,
    /// Where it lies, if that is in this workspace.
    path: Option<PathBuf>,
}

impl Metadata {
    fn of(project: &Project) -> Result<Self> {
        let metadata = command::cargo()
            .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
            .current_dir(&project.root);
        serde_json::from_str(&metadata.read()?)
            .context("cannot read the output of `cargo metadata`")
    }

    fn closure(&self, names: &[&str]) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut open: Vec<&str> = names.to_vec();
        while let Some(name) = open.pop() {
            if !found.insert(name.to_owned()) {
                continue;
            }
            let package = self.packages.iter().find(|it| it.name == name);
            let needed = package.into_iter().flat_map(|it| &it.dependencies);
            open.extend(
                needed
                    .filter(|it| it.path.is_some() && it.kind.as_deref() != Some("dev"))
                    .map(|it| it.name.as_str()),
            );
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_come_with_all_of_the_workspace_that_they_are_built_from() {
        let package = |name: &str, needs: &[(&str, Option<&str>)]| {
            let needs = needs.iter().map(
                |(name, kind)| serde_json::json!({ "name": name, "kind": kind, "path": "/here" }),
            );
            let fetched = serde_json::json!({ "name": "tokio", "kind": null, "path": null });
            let dependencies: Vec<_> = needs.chain([fetched]).collect();
            serde_json::json!({ "name": name, "publish": null, "dependencies": dependencies })
        };
        let packages = [
            package("library", &[("protocol", None), ("testbed", Some("dev"))]),
            package("protocol", &[("balance", None), ("codes", Some("build"))]),
            package("balance", &[]),
            package("codes", &[]),
            package("testbed", &[]),
            package("other", &[("library", None)]),
        ];
        let metadata = serde_json::json!({ "packages": packages });
        let metadata: Metadata = serde_json::from_value(metadata).unwrap();
        let found = metadata.closure(&["library"]);
        let found: Vec<&str> = found.iter().map(String::as_str).collect();
        assert_eq!(found, ["balance", "codes", "library", "protocol"]);
    }
}
