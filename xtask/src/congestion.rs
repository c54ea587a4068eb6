//! `congestion`: builds the measurement of congestion control and runs it.

use std::process::ExitCode;

use anyhow::Result;

use crate::{
    command::{self, Run},
    project::Project,
    reproduction::Arguments,
};

pub(crate) fn task(project: &Project, arguments: &Arguments) -> Result<ExitCode> {
    command::cargo()
        .args(["build", "--release", "--package", "congestion"])
        .current_dir(&project.root)
        .run()?;
    // From the caller's directory, so that `--out` is where the caller thinks.
    let binary = Run::new(project.target.join("release/congestion"));
    Err(binary.args(&arguments.passed_on).replace())
}
