//! `vm-test`: the kernel programs and the agent on other kernels, in virtual machines.
//!
//! Each kernel of [`kernels::SERIES`] boots under qemu with one statically linked program in its
//! memory (`lab/vm-guest`), which loads and attaches every program, sends
//! packets through them, runs the agent and reports on the console how that went.

mod archive;
mod guest;
mod kernels;
mod libraries;
mod record;
mod report;

use std::process::ExitCode;

use anyhow::{Result, bail};

use self::{guest::Guest, kernels::Kernel, record::Record, report::Outcome};
pub(crate) use self::{guest::Programs, report::table};
use crate::{
    project::{Project, find_program},
    setup::{self, Purpose},
};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// Accept how many instructions the verifiers look at now, and record that.
    #[arg(long)]
    bless: bool,
}

/// What came of it.
pub(crate) struct Report {
    pub(crate) outcomes: Vec<Outcome>,
    /// Kernels that were not tried, and why.
    pub(crate) skipped: Vec<(String, String)>,
}

pub(crate) fn task(project: &Project, arguments: &Arguments) -> Result<ExitCode> {
    if let setup::Outcome::Incomplete(reason) = setup::ensure(&[Purpose::Vm])? {
        bail!(reason);
    }
    let mut report = run(project, Programs::Apart)?;
    if arguments.bless {
        let mut record = Record::read(project)?;
        record.accept(&report.outcomes);
        record.write(project)?;
        for outcome in &mut report.outcomes {
            record.compare(outcome);
        }
    }
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&report.outcomes)?);
    } else {
        print!("{}", table(&report.outcomes));
    }
    for (kernel, reason) in &report.skipped {
        eprintln!("SKIPPED {kernel}: {reason}");
    }
    let passed = report.outcomes.iter().all(Outcome::passed);
    Ok(if passed && report.skipped.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Tries every kernel that is to be had, two at a time.
pub(crate) fn run(project: &Project, source: Programs) -> Result<Report> {
    let mut report = Report {
        outcomes: Vec::new(),
        skipped: Vec::new(),
    };
    if let Some(reason) = lacking() {
        let all = kernels::SERIES.map(|series| (format!("Linux {series}"), reason.clone()));
        report.skipped.extend(all);
        return Ok(report);
    }
    let directory = project.target.join("vm-test");
    let mut found = Vec::new();
    for series in kernels::SERIES {
        match kernels::fetch(&directory, series) {
            Ok(kernel) => found.push(kernel),
            Err(error) => report
                .skipped
                .push((format!("Linux {series}"), format!("{error:#}"))),
        }
    }
    if found.is_empty() {
        return Ok(report);
    }
    let guest = Guest::build(project, source)?;
    let record = Record::read(project)?;
    for outcomes in try_all(&guest, &found)? {
        report.outcomes.extend(outcomes);
    }
    for outcome in &mut report.outcomes {
        record.compare(outcome);
    }
    Ok(report)
}

/// All at once: each machine has one processor.
fn try_all(guest: &Guest, kernels: &[Kernel]) -> Result<Vec<Vec<Outcome>>> {
    std::thread::scope(|scope| {
        let running: Vec<_> = kernels
            .iter()
            .map(|kernel| scope.spawn(|| guest.try_on(kernel)))
            .collect();
        let ended = running.into_iter().map(|machine| {
            machine
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        ended.collect()
    })
}

/// Why no kernel can be tried here, if so.
fn lacking() -> Option<String> {
    if std::env::consts::ARCH != "x86_64" {
        return Some(format!(
            "the kernels are for x86_64, and this is {}",
            std::env::consts::ARCH
        ));
    }
    let programs = [
        guest::QEMU,
        "apt-get",
        "dpkg-deb",
        "tar",
        "xz",
        "timeout",
        "strip",
    ];
    let missing = programs
        .into_iter()
        .find(|program| find_program(program).is_none())?;
    Some(format!(
        "lacks the program {missing}; `cargo xtask setup --only vm` installs what is needed, on Debian"
    ))
}
