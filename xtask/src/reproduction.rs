//! `reproduce`, `codec-overhead` and `ns3`: build the reproduction and let it measure.

use std::{ffi::OsString, process::ExitCode};

use anyhow::Result;

use crate::{
    command::{self, Run},
    project::Project,
};

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Arguments {
    /// Passed on; `--help` lists what there is.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) passed_on: Vec<OsString>,
}

pub(crate) fn task(project: &Project, name: &str, arguments: &Arguments) -> Result<ExitCode> {
    command::cargo()
        .args(["build", "--release", "--package", "reproduction"])
        .current_dir(&project.root)
        .run()?;
    // From the caller's directory, so that `--out` is where the caller thinks.
    let binary = Run::new(project.target.join("release/reproduction"));
    Err(binary.arg(name).args(&arguments.passed_on).replace())
}
