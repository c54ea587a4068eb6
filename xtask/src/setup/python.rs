//! A virtual environment of Python with what the laboratory's scripts import.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::{command::Run, project::tool_cache};

/// What the script that makes test vectors needs.
const REQUIREMENTS: &str = include_str!("../../../lab/vectors/requirements.txt");
const IMPORTS: &str = "import blake3, cryptography, noise, xxhash";

/// Finds the Python that has all of it, where `setup` puts it.
pub(crate) fn vectors_python() -> Option<PathBuf> {
    let python = directory().ok()?.join("bin/python");
    let is_whole = Run::new(&python).args(["-c", IMPORTS]).succeeds();
    is_whole.then_some(python)
}

/// Makes the environment anew.
pub(super) fn install() -> Result<()> {
    eprintln!("Installing Python's modules for test vectors");
    let directory = directory()?;
    Run::new("python3")
        .args(["-m", "venv", "--clear"])
        .arg(&directory)
        .run()
        .context("cannot make a virtual environment of Python")?;
    let requirements = REQUIREMENTS.lines().filter(|line| !line.starts_with('#'));
    Run::new(directory.join("bin/python"))
        .args(["-m", "pip", "install", "--quiet"])
        .arg("--disable-pip-version-check")
        .args(requirements)
        .run()
        .context("cannot install Python's modules for test vectors")
}

fn directory() -> Result<PathBuf> {
    Ok(tool_cache()?.join("vectors"))
}
