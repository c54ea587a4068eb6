//! `demo` and `fct`: build the agent and the demonstration, which measures it on this machine.

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
    /// Passed on to `splitter-demo`, `--seconds N` and `--json` among them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    passed_on: Vec<OsString>,
}

pub(crate) fn task(project: &Project, arguments: &Arguments) -> Result<ExitCode> {
    run(project, arguments.passed_on.clone())
}

/// Arguments of `fct`.
#[derive(clap::Args)]
pub(crate) struct FctArguments {
    /// Background load, in percent of both tunnels, its packets' headers included.
    #[arg(long, value_name = "PERCENT", default_value_t = 40)]
    load: u8,
    /// How many rounds, each with a seed of its own; the modes take turns in each.
    #[arg(long, value_name = "N", default_value_t = 5)]
    seeds: u32,
    /// Rates of the two tunnels, in Mbit/s.
    #[arg(long, value_name = "N,N", default_value = "100,100")]
    rates: String,
    /// Put the tunnels' queues behind the borders, which then shape shared tunnels to 97 %.
    #[arg(long)]
    queue_behind: bool,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// Compares the splitter's policies with ECMP.
pub(crate) fn fct(project: &Project, arguments: &FctArguments) -> Result<ExitCode> {
    let FctArguments {
        load, seeds, rates, ..
    } = arguments;
    let mut passed_on = vec![
        format!("--load={load}"),
        format!("--seeds={seeds}"),
        format!("--rates={rates}"),
    ];
    for (flag, is_given) in [
        ("--queue-behind", arguments.queue_behind),
        ("--json", arguments.json),
    ] {
        passed_on.extend(is_given.then(|| flag.to_owned()));
    }
    run(project, passed_on.into_iter().map(OsString::from).collect())
}

fn run(project: &Project, passed_on: Vec<OsString>) -> Result<ExitCode> {
    if let Outcome::Incomplete(reason) = setup::ensure(&[Purpose::Demo])? {
        bail!(reason);
    }
    command::cargo()
        .args(["build", "--release", "--package", "splitter-agent"])
        .args(["--package", "splitter-demo"])
        .current_dir(&project.root)
        .run()?;
    let demo = project.target.join("release/splitter-demo");
    let run = if is_root() {
        Run::new(demo)
    } else {
        eprintln!("The demo makes network namespaces, which needs root: calling sudo.");
        Run::new("sudo").arg(demo)
    };
    // From the caller's directory, so that a file it writes lands there.
    Err(run.args(passed_on).replace())
}
