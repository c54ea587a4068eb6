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
    fn help_of(&self, name: &str) -> Option<&'static str> {
        let is_asked_for = |it: &OsString| it == "--help" || it == "-h";
        if !self.passed_on.iter().any(is_asked_for) {
            return None;
        }
        HELP.iter().find(|(task, _)| *task == name).map(|it| it.1)
    }

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

/// What the program answers to `--help`, so that nothing is built for that; its own test compares.
const HELP: [(&str, &str); 3] = [
    ("reproduce", include_str!("../help/reproduce.txt")),
    ("codec-overhead", include_str!("../help/codec-overhead.txt")),
    ("ns3", include_str!("../help/ns3.txt")),
];

pub(crate) fn task(project: &Project, name: &str, arguments: &Arguments) -> Result<ExitCode> {
    if let Some(help) = arguments.help_of(name) {
        print!("{help}");
        return Ok(ExitCode::SUCCESS);
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_there_without_the_program() {
        let asked = |words: &[&str]| Arguments {
            passed_on: words.iter().map(OsString::from).collect(),
        };
        for (name, text) in HELP {
            assert!(text.contains(&format!("cargo xtask {name} ")), "{name}");
            assert_eq!(asked(&["S1", "--help"]).help_of(name), Some(text));
            assert_eq!(asked(&["-h"]).help_of(name), Some(text));
            assert_eq!(asked(&["S1", "--quick"]).help_of(name), None);
        }
    }
}
