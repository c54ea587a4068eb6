//! `demo`: builds the agent and lets it measure itself on this machine.

use std::{ffi::OsString, process::ExitCode};

use anyhow::{Result, bail};

use crate::{
    command::{self, Run},
    project::{Project, is_root},
    setup::{self, Outcome, Purpose},
};

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Arguments {
    /// Passed on to `splitter demo`, `--seconds N` and `--json` among them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    passed_on: Vec<OsString>,
}

pub(crate) fn task(project: &Project, arguments: &Arguments) -> Result<ExitCode> {
    if let Outcome::Incomplete(reason) = setup::ensure(&[Purpose::Demo])? {
        bail!(reason);
    }
    command::cargo()
        .args(["build", "--release", "--package", "splitter-agent"])
        .current_dir(&project.root)
        .run()?;
    let splitter = project.target.join("release/splitter");
    let run = if is_root() {
        Run::new(splitter)
    } else {
        eprintln!("The demo makes network namespaces, which needs root: calling sudo.");
        Run::new("sudo").arg(splitter)
    };
    // From the caller's directory, so that a file it writes lands there.
    Err(run.arg("demo").args(&arguments.passed_on).replace())
}
