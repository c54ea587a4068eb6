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

impl Arguments {
    /// Whether one of the splitter's items is asked for, by name or with all others.
    fn runs_agent(&self) -> bool {
        let words = self
            .passed_on
            .iter()
            .map(|it| it.to_string_lossy().to_ascii_uppercase());
        // A value of an option is no item, which at worst builds the agent for nothing.
        let mut words = words.filter(|it| !it.starts_with('-')).peekable();
        words.peek().is_none() || words.any(|it| it.starts_with('S') || it == "ALL")
    }
}

pub(crate) fn task(project: &Project, name: &str, arguments: &Arguments) -> Result<ExitCode> {
    command::cargo()
        .args(["build", "--release", "--package", "reproduction"])
        .current_dir(&project.root)
        .run()?;
    if name == "reproduce" && arguments.runs_agent() {
        // Without what only people look at: the terminal view and the status page.
        command::cargo()
            .args(["build", "--release", "--no-default-features"])
            .args(["--package", "splitter-agent"])
            .current_dir(&project.root)
            .run()?;
    }
    // From the caller's directory, so that `--out` is where the caller thinks.
    let binary = Run::new(project.target.join("release/reproduction"));
    Err(binary.arg(name).args(&arguments.passed_on).replace())
}
