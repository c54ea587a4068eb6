//! Packages of the products' programs: deb, rpm, OCI images, tarballs, bills of materials and checksums.
//!
//! What a package has is listed once ([`contents`]), and each format is written from that list. All bytes
//! come from the programs, the source tree and one date, so that the same programs make the same
//! packages wherever and whenever they are packed.

pub mod contents;
pub mod deb;
pub mod file;
pub mod oci;
pub mod pages;
pub mod rpm;
pub mod sbom;
pub mod tarball;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    str::FromStr,
};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

pub use contents::Package;
pub use file::{File, Kind};

/// Programs of one target, and all that the packages of a release are made of.
#[derive(Clone, Debug)]
pub struct Release {
    /// The root of the source tree.
    pub root: PathBuf,
    /// Directory of the stripped programs and of their `.debug` files.
    pub programs: PathBuf,
    /// What the programs were built for.
    pub target: Target,
    /// Program that runs programs of the target; without it they run by themselves.
    pub runner: Option<PathBuf>,
    /// Seconds since 1970 that all files are dated with.
    pub source_date: u32,
    /// Level of gzip, 0 to 9: the higher, the smaller and the slower.
    pub compression: u32,
    /// Crates that programs may name without being made of them: of a build with which tests were
    /// built, whose features programs have then, too. None for what is released.
    pub named_by_tests: &'static [&'static str],
}

impl Release {
    /// Writes everything into a directory and returns the files with their sizes in bytes.
    ///
    /// # Errors
    /// When a program is missing or does not run, a bill of materials is not plausible, or a file
    /// cannot be written.
    pub fn write(&self, out: &Path) -> Result<Vec<(PathBuf, u64)>> {
        fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
        let mut written = Vec::new();
        for package in contents::packages(self)? {
            let stem = format!(
                "{}-{}-{}",
                package.name, package.version, self.target.triple
            );
            let bill = sbom::of(self, &package)?;
            sbom::check(self, &package, &bill)?;
            let bill = serde_json::to_vec_pretty(&bill)?;
            written.push((format!("{stem}.cdx.json"), bill));
            let tarball = tarball::write(self, &stem, &package.files)?;
            written.push((format!("{stem}.tar.gz"), tarball));
            let debug = tarball::write(self, &stem, &package.debug)?;
            written.push((format!("{stem}-debug.tar.gz"), debug));
            if package.has_packages {
                written.push((deb::name(self, &package), deb::write(self, &package)?));
                written.push((rpm::name(self, &package), rpm::write(self, &package)?));
                written.push((oci::name(self, &package), oci::write(self, &package)?));
            }
        }
        let sums: String = written
            .iter()
            .map(|(name, content)| format!("{:x}  {name}\n", Sha256::digest(content)))
            .collect();
        let sums_of = format!("SHA256SUMS-{}", self.target.triple);
        written.push((sums_of, sums.into_bytes()));
        let mut files = Vec::new();
        for (name, content) in written {
            let path = out.join(name);
            fs::write(&path, &content)
                .with_context(|| format!("cannot write {}", path.display()))?;
            files.push((path, content.len() as u64));
        }
        Ok(files)
    }

    /// Reads a file of the source tree.
    pub(crate) fn source(&self, path: &str) -> Result<Vec<u8>> {
        fs::read(self.root.join(path)).with_context(|| format!("cannot read {path}"))
    }

    /// Writes the date as `date` formats it, in UTC and English.
    pub(crate) fn date(&self, format: &str) -> Result<String> {
        let mut date = Command::new("date");
        date.env("LC_ALL", "C").args(["-u", "-d"]);
        let text = output(date.arg(format!("@{}", self.source_date)).arg(format))?;
        Ok(text.trim().to_owned())
    }
}

/// A target, and what packages call its processors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// As rustc calls it.
    pub triple: String,
    /// As Debian calls the processors.
    pub debian: &'static str,
    /// As rpm calls the processors.
    pub rpm: &'static str,
}

impl FromStr for Target {
    type Err = anyhow::Error;

    fn from_str(triple: &str) -> Result<Self> {
        let (debian, rpm) = match triple.split('-').next() {
            Some("x86_64") => ("amd64", "x86_64"),
            Some("aarch64") => ("arm64", "aarch64"),
            _ => bail!("no packages are made for {triple}; take one of x86_64 or aarch64"),
        };
        Ok(Self {
            triple: triple.to_owned(),
            debian,
            rpm,
        })
    }
}

/// Finds the date that packages carry: `SOURCE_DATE_EPOCH`, or that of the last commit, in seconds since 1970.
///
/// # Errors
/// When there is neither.
pub fn source_date(root: &Path) -> Result<u32> {
    let text = match env::var("SOURCE_DATE_EPOCH") {
        Ok(seconds) => seconds,
        Err(_) => {
            output(
                Command::new("git")
                    .arg("-C")
                    .arg(root)
                    .args(["log", "-1", "--format=%ct"]),
            )
            .context("set SOURCE_DATE_EPOCH where there is no repository")?
        }
    };
    let text = text.trim();
    text.parse()
        .with_context(|| format!("{text} is not a number of seconds since 1970"))
}

/// Runs a program and returns what it printed.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        bail!(
            "{command:?} failed with {}: {}",
            output.status,
            error.trim()
        );
    }
    String::from_utf8(output.stdout).with_context(|| format!("{command:?} printed no UTF-8"))
}
