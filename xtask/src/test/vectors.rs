//! Test vectors of Cloudburst's handshake by another implementation, in Python.

use anyhow::Result;

use super::libtest::Tally;
use crate::{command::Run, project::Project, setup::vectors_python};

const SCRIPT: &str = "lab/vectors/handshake.py";

/// Compares the vectors in the book with those that the other implementation makes.
pub(super) fn check(project: &Project) -> Result<Tally> {
    let Some(python) = vectors_python() else {
        let reason = "Python or its modules blake3, cryptography, noiseprotocol and xxhash are not there; \
                      `cargo xtask setup --only test` installs them";
        return Ok(Tally::skip("handshake.py --check", reason));
    };
    Run::new(python)
        .arg(project.root.join(SCRIPT))
        .arg("--check")
        .run()?;
    Ok(Tally::success())
}
