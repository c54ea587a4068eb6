//! Measurements in network namespaces: what they call is built, then they run as root.

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

/// How all are compiled, as for `demo`: packets are the kernel's work.
const PROFILE: &str = "demo";

/// Builds the splitter, the measurement's package and what else it calls, and replaces this process by the
/// program of the package's name.
pub(crate) fn task(
    project: &Project,
    purpose: Purpose,
    package: &str,
    others: &[&str],
    arguments: &Arguments,
) -> Result<ExitCode> {
    // What is missing may be for a part of it: the program says which, or what it cannot do without.
    if let Outcome::Incomplete(reason) = setup::ensure(&[purpose])? {
        eprintln!("{reason}");
    }
    // Without what only people look at: the terminal view and the status page.
    let build = command::cargo()
        .args(["build", "--profile", PROFILE, "--no-default-features"])
        .args(["--package", "splitter-agent", "--package", package]);
    let build = others
        .iter()
        .fold(build, |build, it| build.args(["--package", it]));
    build.current_dir(&project.root).run()?;
    let program = project.target.join(PROFILE).join(package);
    let asks_for_help = |it: &OsString| it == "--help" || it == "-h";
    let run = if is_root() || arguments.passed_on.iter().any(asks_for_help) {
        Run::new(program)
    } else {
        eprintln!("The measurement makes network namespaces, which needs root: calling sudo.");
        Run::new("sudo").arg(program)
    };
    // From the caller's directory, so that `--out` is where the caller thinks.
    Err(run.args(&arguments.passed_on).replace())
}
