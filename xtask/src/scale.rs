//! `scale`: builds the measurement of many peers and many messages, and runs it.

use std::process::ExitCode;

use anyhow::Result;

use crate::{
    command::{self, Run},
    project::Project,
    reproduction::Arguments,
};

pub(crate) fn task(project: &Project, arguments: &Arguments) -> Result<ExitCode> {
    command::cargo()
        .args(["build", "--release", "--package", "scale"])
        .current_dir(&project.root)
        .run()?;
    let binary = Run::new(project.target.join("release/scale"));
    Err(binary.args(&arguments.passed_on).replace())
}
