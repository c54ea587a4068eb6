//! What rustup and cargo install next to the toolchain in use: the oldest compiler that the packages
//! promise to work with, with the targets that they promise, and programs that check dependencies.
//!
//! All of it lies in the tools' cache and leaves the user's own toolchains alone.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result, bail};

use crate::{
    command::{self, Run},
    project::tool_cache,
};

/// The workspace's `rust-version`.
pub(crate) const MINIMUM_VERSION: &str = env!("CARGO_PKG_RUST_VERSION");

/// Targets without an operating system on which the `no_std` crates are to build.
pub(crate) const BARE_TARGETS: [&str; 4] = [
    "thumbv7em-none-eabihf",
    "riscv32imac-unknown-none-elf",
    "wasm32-unknown-unknown",
    "x86_64-unknown-none",
];

/// Systems that nothing here runs on, and for which Cloudburst's library is to compile.
pub(crate) const PLATFORM_TARGETS: [&str; 3] = [
    "aarch64-apple-darwin",
    "x86_64-pc-windows-gnu",
    "x86_64-unknown-freebsd",
];

/// All targets that the oldest compiler is installed with.
fn targets() -> impl Iterator<Item = &'static str> {
    BARE_TARGETS.into_iter().chain(PLATFORM_TARGETS)
}

/// The oldest compiler that the packages promise to work with.
pub(crate) struct MinimumToolchain {
    directory: PathBuf,
}

impl MinimumToolchain {
    /// Finds it, whole, where `setup` puts it.
    pub(crate) fn find() -> Result<Self> {
        let toolchains = rustup_home()?.join("toolchains");
        let of_version = |name: &str| {
            name.strip_prefix(MINIMUM_VERSION)
                .is_some_and(|rest| rest.starts_with(['.', '-']))
        };
        let directory = fs::read_dir(&toolchains)
            .into_iter()
            .flatten()
            .flatten()
            .find(|entry| of_version(&entry.file_name().to_string_lossy()))
            .map(|entry| entry.path())
            .with_context(|| format!("Rust {MINIMUM_VERSION} is not there; `cargo xtask setup` installs it where rustup can download it"))?;
        let rustlib = directory.join("lib/rustlib");
        if let Some(target) = targets().find(|target| !rustlib.join(target).join("lib").is_dir()) {
            bail!("Rust {MINIMUM_VERSION} lacks the target {target}; `cargo xtask setup` adds it");
        }
        Ok(Self { directory })
    }

    pub(crate) fn rustc(&self) -> PathBuf {
        self.directory.join("bin/rustc")
    }

    /// Its own cargo with its own compiler.
    pub(crate) fn cargo(&self) -> Run {
        Run::new(self.directory.join("bin/cargo"))
            .env("RUSTC", self.rustc())
            .env_remove("RUSTUP_TOOLCHAIN")
    }

    /// Installs it with its targets.
    pub(super) fn install() -> Result<()> {
        eprintln!(
            "Installing Rust {MINIMUM_VERSION}, the oldest that the packages promise to work with"
        );
        Run::new("rustup")
            .args(["toolchain", "install", MINIMUM_VERSION, "--profile=minimal"])
            .arg("--no-self-update")
            .arg(format!(
                "--target={}",
                targets().collect::<Vec<_>>().join(",")
            ))
            .env("RUSTUP_HOME", rustup_home()?)
            .env_remove("RUSTUP_TOOLCHAIN")
            .run()
            .with_context(|| format!("cannot install Rust {MINIMUM_VERSION}"))
    }
}

fn rustup_home() -> Result<PathBuf> {
    Ok(tool_cache()?.join("rustup"))
}

/// A program from the registry that checks dependencies.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CargoTool {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    /// Features of it that are used, separated by commas.
    features: &'static str,
}

pub(crate) const CARGO_DENY: CargoTool = CargoTool {
    name: "cargo-deny",
    version: "0.20.2",
    features: "",
};

/// With the program, which is one of its features.
pub(crate) const CBINDGEN: CargoTool = CargoTool {
    name: "cbindgen",
    version: "0.29.4",
    features: "clap",
};

/// Without a server of its own, which would double the time to build it.
pub(crate) const MDBOOK: CargoTool = CargoTool {
    name: "mdbook",
    version: "0.5.4",
    features: "search",
};

impl CargoTool {
    /// Where `setup` puts it: one directory for each version.
    pub(crate) fn program(&self) -> Result<PathBuf> {
        Ok(self.root()?.join("bin").join(self.name))
    }

    /// Builds it without optimisation, which takes a third of the time; it runs for seconds.
    pub(super) fn install(&self) -> Result<()> {
        let Self {
            name,
            version,
            features,
        } = self;
        eprintln!("Building {name} {version} (about a minute)");
        command::cargo()
            .args(["install", name, "--version", version, "--locked", "--force"])
            .args(["--debug", "--no-default-features", "--features", features])
            .arg("--root")
            .arg(self.root()?)
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_TARGET_DIR")
            .run()
            .with_context(|| format!("cannot build {name}"))
    }

    fn root(&self) -> Result<PathBuf> {
        Ok(tool_cache()?.join(format!("{}-{}", self.name, self.version)))
    }
}
