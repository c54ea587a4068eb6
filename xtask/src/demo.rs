//! `demo`, `fct` and `playground`: build the agent and the demonstration, which measures it, or keeps it running, on
//! this machine.

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
    /// Passed on to `splitter-demo`; `--help` lists what there is.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    passed_on: Vec<OsString>,
}

pub(crate) fn task(project: &Project, arguments: &Arguments) -> Result<ExitCode> {
    run(project, Pages::Without, arguments.passed_on.clone())
}

/// Keeps the demonstration's sites running, with the pages that people look at.
pub(crate) fn playground(project: &Project, arguments: &Arguments) -> Result<ExitCode> {
    let mut passed_on = vec![OsString::from("playground")];
    passed_on.extend(arguments.passed_on.iter().cloned());
    run(project, Pages::With, passed_on)
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
    /// Measure transfers that start together instead, as iperf3 -P starts them: how many, such as
    /// 1,2,4,8.
    #[arg(long, value_name = "N,...", conflicts_with_all = ["load", "seeds", "rates", "queue_behind"])]
    parallel: Option<String>,
    /// Their round trips without queues, in milliseconds [default: 0.2,22].
    #[arg(long, value_name = "MS,...", requires = "parallel")]
    rtt_ms: Option<String>,
    /// Only cells of such transfers whose name contains this.
    #[arg(long, value_name = "NAME", requires = "parallel")]
    cell: Option<String>,
    /// Take over the cells that were measured before, and measure the rest.
    #[arg(long, requires = "parallel")]
    resume: bool,
    /// Three repetitions and a choice of cells, in ten minutes at the most.
    #[arg(long, requires = "parallel")]
    quick: bool,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// Compares the splitter's policies with ECMP.
pub(crate) fn fct(project: &Project, arguments: &FctArguments) -> Result<ExitCode> {
    let given = |flag: &str, value: &dyn std::fmt::Display| format!("--{flag}={value}");
    let mut passed_on = match &arguments.parallel {
        Some(parallel) => vec![given("parallel", parallel)],
        None => vec![
            given("load", &arguments.load),
            given("seeds", &arguments.seeds),
            given("rates", &arguments.rates),
        ],
    };
    for (flag, value) in [("rtt-ms", &arguments.rtt_ms), ("cell", &arguments.cell)] {
        passed_on.extend(value.as_ref().map(|it| given(flag, it)));
    }
    for (flag, is_given) in [
        ("--queue-behind", arguments.queue_behind),
        ("--resume", arguments.resume),
        ("--quick", arguments.quick),
        ("--json", arguments.json),
    ] {
        passed_on.extend(is_given.then(|| flag.to_owned()));
    }
    let passed_on = passed_on.into_iter().map(OsString::from).collect();
    run(project, Pages::Without, passed_on)
}

/// How both are compiled; see the workspace's manifest. Cargo names the directory after it.
const PROFILE: &str = "demo";

/// Whether the agent is built with what only people look at: the terminal view and the status page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pages {
    With,
    Without,
}

fn run(project: &Project, pages: Pages, passed_on: Vec<OsString>) -> Result<ExitCode> {
    if let Outcome::Incomplete(reason) = setup::ensure(&[Purpose::Demo])? {
        bail!(reason);
    }
    command::cargo()
        .args(["build", "--profile", PROFILE])
        .args((pages == Pages::Without).then_some("--no-default-features"))
        .args(["--package", "splitter-agent", "--package", "splitter-demo"])
        .current_dir(&project.root)
        .run()?;
    let demo = project.target.join(PROFILE).join("splitter-demo");
    let run = if is_root() {
        Run::new(demo)
    } else {
        eprintln!("The demo makes network namespaces, which needs root: calling sudo.");
        Run::new("sudo").arg(demo)
    };
    // From the caller's directory, so that a file it writes lands there.
    Err(run.args(passed_on).replace())
}
