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

impl Arguments {
    /// Whether anything is measured, by the splitter and as root: not for help, nor for what is simulated alone.
    fn measures(&self) -> bool {
        let does_not = ["--help", "-h", "--predict"];
        !self
            .passed_on
            .iter()
            .any(|it| does_not.iter().any(|word| it == word))
    }
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
    let build = command::cargo().args(["build", "--profile", PROFILE, "--no-default-features"]);
    let build = build.args(["--package", package]);
    let build = if arguments.measures() {
        // What is missing may be for a part of it: the program says which, or what it cannot do without.
        if let Outcome::Incomplete(reason) = setup::ensure(&[purpose])? {
            eprintln!("{reason}");
        }
        // Without what only people look at: the terminal view and the status page.
        let called = ["splitter-agent"].iter().chain(others);
        called.fold(build, |build, it| build.args(["--package", it]))
    } else {
        build
    };
    build.current_dir(&project.root).run()?;
    let program = project.target.join(PROFILE).join(package);
    let run = if is_root() || !arguments.measures() {
        Run::new(program)
    } else {
        eprintln!("The measurement makes network namespaces, which needs root: calling sudo.");
        Run::new("sudo").arg(program)
    };
    // From the caller's directory, so that `--out` is where the caller thinks.
    Err(run.args(&arguments.passed_on).replace())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_and_predictions_take_no_root_and_no_splitter() {
        let measures = |words: &[&str]| {
            let passed_on = words.iter().map(OsString::from).collect();
            Arguments { passed_on }.measures()
        };
        assert!(measures(&["--quick", "--json"]) && measures(&[]));
        assert!(!measures(&["--quick", "--predict"]) && !measures(&["-h"]));
    }
}
