//! `congestion`: builds the measurement of congestion control and runs it.

use std::process::ExitCode;

use anyhow::Result;

use crate::{
    command::{self, Run},
    project::Project,
    reproduction::Arguments,
};

pub(crate) fn task(project: &Project, arguments: &Arguments) -> Result<ExitCode> {
    let given = |flag: &str| arguments.passed_on.iter().any(|it| it == flag);
    let mut build = command::cargo().args(["build", "--release", "--package", "congestion"]);
    if given("--namespaces") && !given("--cloudburst") {
        // The command that is measured, which is looked for next to the program that measures.
        build = build.args(["--package", "cloudburst-cli"]);
    }
    build.current_dir(&project.root).run()?;
    // From the caller's directory, so that `--out` is where the caller thinks.
    let binary = Run::new(project.target.join("release/congestion"));
    Err(binary.args(&arguments.passed_on).replace())
}
