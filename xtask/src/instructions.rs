//! `count-instructions`: builds what counts the kernel programs' instructions and runs it.

use std::process::ExitCode;

use anyhow::Result;

use crate::{
    command::{self, Run},
    project::Project,
    reproduction::Arguments,
};

pub(crate) fn task(project: &Project, arguments: &Arguments) -> Result<ExitCode> {
    command::cargo()
        .args(["build", "--package", "instructions"])
        .current_dir(&project.root)
        .run()?;
    // From the caller's directory, where files that are named lie.
    let binary = Run::new(project.target.join("debug/instructions"));
    Err(binary.args(&arguments.passed_on).replace())
}
