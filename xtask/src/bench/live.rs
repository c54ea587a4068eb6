//! `bench-datapath --live`: builds the measurement of live frames and runs it.

use std::process::ExitCode;

use anyhow::Result;

use super::DatapathArguments;
use crate::{
    command::{self, Run},
    project::Project,
};

pub(crate) fn task(project: &Project, arguments: &DatapathArguments) -> Result<ExitCode> {
    // Unoptimised: the kernel does the work.
    command::cargo()
        .args(["build", "--package", "live-frames"])
        .current_dir(&project.root)
        .run()?;
    let mut binary = Run::new(project.target.join("debug/live-frames"));
    for (flag, given) in [
        ("--json", arguments.common.json),
        ("--latency", arguments.latency),
        ("--quick", arguments.quick),
    ] {
        binary = binary.args(given.then_some(flag));
    }
    if !arguments.only.is_empty() {
        binary = binary.args(["--only", &arguments.only.join(",")]);
    }
    Err(binary.replace())
}
