//! `bond`: builds the agent and the measurement of bonding, and runs that.

use std::{ffi::OsString, process::ExitCode};

use anyhow::Result;

use crate::{
    command::{self, Run},
    project::{Project, is_root},
    setup::{self, Outcome, Purpose},
};

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Arguments {
    /// Passed on; `--help` lists what there is.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    passed_on: Vec<OsString>,
}

/// How both are compiled, as for `demo`: packets are the kernel's work.
const PROFILE: &str = "demo";

pub(crate) fn task(project: &Project, arguments: &Arguments) -> Result<ExitCode> {
    // What is missing may be one scheme's: the program says which, or what it cannot do without.
    if let Outcome::Incomplete(reason) = setup::ensure(&[Purpose::Bond])? {
        eprintln!("{reason}");
    }
    // Without what only people look at: the terminal view and the status page.
    command::cargo()
        .args(["build", "--profile", PROFILE, "--no-default-features"])
        .args(["--package", "splitter-agent", "--package", "bond"])
        .current_dir(&project.root)
        .run()?;
    let bond = project.target.join(PROFILE).join("bond");
    let asks_for_help = |it: &OsString| it == "--help" || it == "-h";
    let run = if is_root() || arguments.passed_on.iter().any(asks_for_help) {
        Run::new(bond)
    } else {
        eprintln!("The measurement makes network namespaces, which needs root: calling sudo.");
        Run::new("sudo").arg(bond)
    };
    // From the caller's directory, so that `--out` is where the caller thinks.
    Err(run.args(&arguments.passed_on).replace())
}
