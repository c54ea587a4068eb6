//! `msgbench`: builds the agent and the benchmark of messages, and runs that.

use std::{ffi::OsString, process::ExitCode};

use anyhow::Result;

use crate::{
    command::{self, Run},
    project::{Project, is_root},
};

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Arguments {
    /// Passed on; `--help` lists what there is.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    passed_on: Vec<OsString>,
}

pub(crate) fn task(project: &Project, arguments: &Arguments) -> Result<ExitCode> {
    // Without what only people look at: the terminal view and the status page.
    command::cargo()
        .args(["build", "--release", "--no-default-features"])
        .args(["--package", "splitter-agent", "--package", "msgbench"])
        .current_dir(&project.root)
        .run()?;
    let msgbench = project.target.join("release/msgbench");
    let asks_for_help = |it: &OsString| it == "--help" || it == "-h";
    let run = if is_root() || arguments.passed_on.iter().any(asks_for_help) {
        Run::new(msgbench)
    } else {
        eprintln!("The benchmark makes network namespaces, which needs root: calling sudo.");
        Run::new("sudo").arg(msgbench)
    };
    // From the caller's directory, so that `--out` is where the caller thinks.
    Err(run.args(&arguments.passed_on).replace())
}
