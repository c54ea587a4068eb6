//! The workspace's packages and what they depend on.

use std::{
    collections::BTreeMap,
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// All packages of the workspace.
#[derive(Debug)]
pub struct Workspace {
    /// The directory of the workspace's manifest.
    pub root: PathBuf,
    /// Packages by name.
    pub packages: BTreeMap<String, Package>,
}

/// One package of the workspace.
#[derive(Debug)]
pub struct Package {
    /// The package's name, which need not be its library's.
    pub name: String,
    /// The package's directory, relative to the workspace's.
    pub directory: PathBuf,
    /// True where the package may be published to a registry.
    pub is_published: bool,
    /// Root files of its library and of its programs, relative to the workspace.
    pub roots: Vec<PathBuf>,
    /// The name by which programs use its library, if it has one.
    pub library: Option<String>,
    /// Everything that the manifest lists.
    pub dependencies: Vec<Dependency>,
    /// Fields of the manifest that a registry shows.
    pub manifest: Manifest,
}

/// Fields of a manifest that a registry shows.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Manifest {
    /// One line about the package.
    pub description: Option<String>,
    /// The licence expression.
    pub license: Option<String>,
    /// The place of the source.
    pub repository: Option<String>,
    /// The place of the documentation.
    pub documentation: Option<String>,
    /// The path of the README in the package.
    pub readme: Option<String>,
    /// At most five words to find it by.
    pub keywords: Vec<String>,
    /// Categories of the registry.
    pub categories: Vec<String>,
    /// The oldest compiler.
    pub rust_version: Option<String>,
    /// Tables for other tools.
    pub metadata: Option<serde_json::Value>,
}

/// A dependency as a manifest lists it.
#[derive(Clone, Debug)]
pub struct Dependency {
    /// The name of the package that is depended on.
    pub name: String,
    /// The table of the manifest that it stands in.
    pub kind: Kind,
    /// True where a feature switches it on.
    pub is_optional: bool,
}

/// The table of a manifest that a dependency stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `[dependencies]`.
    Normal,
    /// `[build-dependencies]`.
    Build,
    /// `[dev-dependencies]`.
    Development,
}

impl Workspace {
    /// Reads the workspace that this crate was compiled in.
    ///
    /// # Errors
    ///
    /// Fails when cargo does, or prints what it did not use to.
    pub fn read() -> Result<Self> {
        let text = cargo(&["metadata", "--no-deps", "--offline", "--format-version=1"])?;
        let metadata: Metadata =
            serde_json::from_str(&text).context("cannot read the output of `cargo metadata`")?;
        let root = metadata.workspace_root;
        let packages = metadata.packages.into_iter();
        let packages = packages.map(|package| {
            let package = package.relative_to(&root)?;
            Ok((package.name.clone(), package))
        });
        Ok(Self {
            packages: packages.collect::<Result<_>>()?,
            root,
        })
    }

    /// The packages that may be published.
    pub fn published(&self) -> impl Iterator<Item = &Package> {
        self.packages
            .values()
            .filter(|package| package.is_published)
    }
}

impl Package {
    /// True for what lies under `lab/`: proofs, which no product links.
    #[must_use]
    pub fn is_of_the_lab(&self) -> bool {
        self.directory.starts_with("lab")
    }

    /// The packages that it is compiled with when somebody else depends on it.
    pub fn linked(&self) -> impl Iterator<Item = &str> {
        let linked = self.dependencies.iter();
        linked
            .filter(|dependency| dependency.kind != Kind::Development)
            .map(|dependency| dependency.name.as_str())
    }
}

/// Runs the cargo that runs the tests, in this workspace, and returns what it prints.
///
/// # Errors
///
/// Fails when cargo cannot be run or does not succeed.
pub fn cargo(arguments: &[&str]) -> Result<String> {
    let program = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(program)
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .context("cannot run cargo")?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("`cargo {}` failed: {stderr}", arguments.join(" "));
    }
    String::from_utf8(output.stdout).context("cargo printed what is not UTF-8")
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<RawPackage>,
    workspace_root: PathBuf,
}

#[derive(Deserialize)]
struct RawPackage {
    name: String,
    manifest_path: PathBuf,
    publish: Option<Vec<String>>,
    targets: Vec<RawTarget>,
    dependencies: Vec<RawDependency>,
    #[serde(flatten)]
    manifest: Manifest,
}

#[derive(Deserialize)]
struct RawTarget {
    name: String,
    kind: Vec<String>,
    src_path: PathBuf,
}

#[derive(Deserialize)]
struct RawDependency {
    name: String,
    kind: Option<String>,
    optional: bool,
}

impl RawPackage {
    fn relative_to(self, root: &Path) -> Result<Package> {
        let relative = |path: &Path| {
            path.strip_prefix(root)
                .map(Path::to_owned)
                .with_context(|| format!("{} lies outside the workspace", path.display()))
        };
        let directory = self.manifest_path.parent().unwrap_or(root);
        let is = |target: &RawTarget, kind: &str| target.kind.iter().any(|own| own == kind);
        let roots = self.targets.iter();
        let roots = roots.filter(|target| is(target, "lib") || is(target, "bin"));
        let library = self.targets.iter().find(|target| is(target, "lib"));
        let dependencies = self.dependencies.iter().map(|dependency| Dependency {
            name: dependency.name.clone(),
            kind: match dependency.kind.as_deref() {
                Some("dev") => Kind::Development,
                Some("build") => Kind::Build,
                _ => Kind::Normal,
            },
            is_optional: dependency.optional,
        });
        Ok(Package {
            directory: relative(directory)?,
            // `publish = false` is an empty list of registries.
            is_published: self.publish.is_none_or(|registries| !registries.is_empty()),
            roots: roots
                .map(|target| relative(&target.src_path))
                .collect::<Result<_>>()?,
            library: library.map(|target| target.name.replace('-', "_")),
            dependencies: dependencies.collect(),
            manifest: self.manifest,
            name: self.name,
        })
    }
}
