//! The two pairs of compiler and core library that can build for BPF.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::{
    command::Run,
    project::find_program,
    setup::{LLVM_VERSION, bpf_linker_directory},
};

/// A compiler whose core library comes with its source: that library has to be
/// compiled for BPF, and only the one it was released with will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Pair {
    /// Debian's rustc-web and rust-web-src.
    Debian,
    /// A rustup nightly with rust-src.
    Nightly,
}

/// What exactly objects are built with. The same identity and the same source
/// make the same bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    pub(super) pair: Pair,
    pub(super) rustc: String,
    pub(super) bpf_linker: String,
}

/// A pair that is there, and the programs it works with.
#[derive(Debug)]
pub(super) struct Tools {
    identity: Identity,
    linker: PathBuf,
    pub(super) strip: PathBuf,
    pub(super) sysroot: PathBuf,
}

impl Pair {
    /// In the order of preference: the first is the one that setup installs.
    pub(crate) const ALL: [Pair; 2] = [Pair::Debian, Pair::Nightly];

    /// Whether compiler, library source, linker and strip are all there.
    pub(crate) fn is_present(self) -> bool {
        self.tools().is_ok() && self.fits()
    }

    /// Looks its programs up.
    ///
    /// # Errors
    /// With what is missing.
    pub(super) fn tools(self) -> Result<Tools> {
        let linker = self.linker()?;
        let sysroot = PathBuf::from(self.rustc().args(["--print", "sysroot"]).read()?.trim());
        let library = sysroot.join("lib/rustlib/src/rust/library/core");
        anyhow::ensure!(
            library.is_dir(),
            "there is no source of the core library in {}",
            library.display()
        );
        Ok(Tools {
            identity: Identity {
                pair: self,
                rustc: self.rustc().arg("--version").read()?.trim().to_owned(),
                bpf_linker: bpf_linker_version(&linker)?,
            },
            linker,
            strip: strip_program(&sysroot)?,
            sysroot,
        })
    }

    /// How to get it.
    pub(super) fn remedy(self) -> &'static str {
        match self {
            Pair::Debian => "On Debian, `cargo xtask setup --only ebpf` installs it.",
            Pair::Nightly => {
                "Get it with `rustup toolchain install nightly --component rust-src --component llvm-tools` and `cargo install bpf-linker`."
            }
        }
    }

    /// Debian's name for its other compiler is the same, and that is older than
    /// the linker's LLVM.
    fn fits(self) -> bool {
        let version = self.rustc().arg("-vV").read();
        match self {
            Pair::Debian => version.is_ok_and(|version| llvm_major(&version) == Some(LLVM_VERSION)),
            Pair::Nightly => version.is_ok(),
        }
    }

    fn rustc(self) -> Run {
        match self {
            Pair::Debian => unbound(Run::new(DEBIAN_RUSTC)),
            Pair::Nightly => nightly("rustc"),
        }
    }

    fn linker(self) -> Result<PathBuf> {
        let in_path = || find_program("bpf-linker");
        let from_setup = || {
            let linker = bpf_linker_directory().ok()?.join("bpf-linker");
            linker.is_file().then_some(linker)
        };
        // The one that setup builds reads the bitcode of Debian's LLVM; the user's
        // own is the one for the user's nightly.
        let found = match self {
            Pair::Debian => from_setup().or_else(in_path),
            Pair::Nightly => in_path().or_else(from_setup),
        };
        found.context("there is no bpf-linker in PATH")
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Pair::Debian => "Debian's rustc-web",
            Pair::Nightly => "the rustup nightly",
        })
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {})", self.pair, self.rustc, self.bpf_linker)
    }
}

impl Tools {
    pub(super) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The pair's cargo, free of what the user set for the host's compiler.
    pub(super) fn cargo(&self) -> Run {
        let linker_directory = self.linker.parent().unwrap_or(Path::new("/"));
        let path = |rest: &str| format!("{}:{rest}", linker_directory.display());
        match self.identity.pair {
            // Without rustup's directory: its proxies would take over.
            Pair::Debian => unbound(Run::new("/usr/bin/cargo"))
                .env("PATH", path("/usr/bin:/bin"))
                .env("RUSTC", DEBIAN_RUSTC)
                .env("RUSTC_BOOTSTRAP", "1"),
            Pair::Nightly => {
                let user = std::env::var("PATH").unwrap_or_default();
                nightly("cargo").env("PATH", path(&user))
            }
        }
    }
}

/// What a given linker calls itself, `bpf-linker 0.13.0`.
pub(crate) fn bpf_linker_version(linker: &Path) -> Result<String> {
    let version = Run::new(linker).arg("--version").read()?;
    Ok(version.trim().to_owned())
}

/// What to do when neither pair is there.
pub(super) fn no_compilers() -> String {
    let remedies: Vec<_> = Pair::ALL.iter().map(|pair| pair.remedy()).collect();
    format!(
        "building the kernel programs needs a compiler with the source of its core library, and there is none. {}",
        remedies.join(" Elsewhere: ")
    )
}

fn nightly(program: &str) -> Run {
    unbound(Run::new("rustup").args(["run", "nightly", program]))
}

/// `cargo xtask` passes down its own toolchain; another one must not see it.
fn unbound(run: Run) -> Run {
    [
        "CARGO",
        "CARGO_BUILD_TARGET",
        "CARGO_TARGET_DIR",
        "LD_LIBRARY_PATH",
        "RUSTC",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTFLAGS",
        "RUSTUP_TOOLCHAIN",
    ]
    .into_iter()
    .fold(run, Run::env_remove)
}

/// `llvm-strip` of any version that reads BPF, the toolchain's own last.
fn strip_program(sysroot: &Path) -> Result<PathBuf> {
    let own = || {
        let targets = sysroot.join("lib/rustlib").read_dir().ok()?;
        targets
            .flatten()
            .map(|target| target.path().join("bin/llvm-strip"))
            .find(|candidate| candidate.is_file())
    };
    find_program(&format!("llvm-strip-{LLVM_VERSION}"))
        .or_else(|| find_program("llvm-strip"))
        .or_else(own)
        .context("there is no llvm-strip in PATH")
}

fn llvm_major(rustc_version: &str) -> Option<&str> {
    rustc_version
        .lines()
        .find_map(|line| line.strip_prefix("LLVM version: "))?
        .split('.')
        .next()
}

const DEBIAN_RUSTC: &str = "/usr/bin/rustc";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_major_version_of_llvm() {
        let version = "rustc 1.96.0\nbinary: rustc\nLLVM version: 22.1.8\n";
        assert_eq!(llvm_major(version), Some("22"));
        assert_eq!(llvm_major("rustc 1.0.0\n"), None);
    }
}
