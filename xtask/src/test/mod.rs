//! `test`: everything that continuous integration checks.

mod fuzz;
mod libtest;
mod skips;

use std::{
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use self::{
    libtest::Tally,
    skips::{SKIPS_VARIABLE, Skip},
};
use crate::{
    command::{self, Run},
    ebpf::{self, Verdict},
    project::{Project, is_root},
    setup::{self, Outcome, Purpose},
    vm_test,
};

/// Nothing to leave checks out: a check that can be left out is one that is.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How long to run the fuzzer on each target.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    fuzz_seconds: u32,
}

pub(crate) fn task(project: &Project, arguments: &Arguments) -> Result<ExitCode> {
    let mut session = Session::default();
    for step in steps(project, arguments) {
        session.run(step);
    }
    Ok(session.conclude())
}

/// One thing to check.
struct Step {
    name: String,
    check: Box<dyn FnOnce() -> Result<Tally>>,
}

/// What all steps so far came to.
#[derive(Default)]
struct Session {
    total: Tally,
    took: Vec<(String, Duration)>,
}

impl Session {
    fn run(&mut self, step: Step) {
        eprintln!("\n== {}", step.name);
        let started = Instant::now();
        let tally = (step.check)().unwrap_or_else(|error| {
            eprintln!("error: {error:#}");
            Tally::failure(&step.name)
        });
        let took = started.elapsed();
        let outcome = if tally.failed() > 0 { "FAILED" } else { "ok" };
        eprintln!("== {}: {outcome} in {}", step.name, seconds(took));
        self.took.push((step.name, took));
        self.total.add(tally);
    }

    /// Prints the summary, its last line for machines to read.
    fn conclude(self) -> ExitCode {
        println!("\nTime taken:");
        for (name, took) in &self.took {
            println!("  {:>8}  {name}", seconds(*took));
        }
        if !self.total.skips.is_empty() {
            println!("\nSkipped:");
            for skip in &self.total.skips {
                println!("  {}: {}", skip.test, skip.reason);
            }
        }
        if !self.total.failures.is_empty() {
            println!("\nFailed:");
            for failure in &self.total.failures {
                println!("  {failure}");
                for line in self.total.last_words.get(failure).into_iter().flatten() {
                    println!("      {line}");
                }
            }
        }
        println!("\n{} tests and checks were run.", self.total.run());
        println!("{}", self.total);
        if self.total.failed() > 0 {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        }
    }
}

fn steps(project: &Project, arguments: &Arguments) -> Vec<Step> {
    let root = project.root.clone();
    let mut steps = vec![step("setup", install)];
    for (name, manifest) in [
        ("format: workspace", "Cargo.toml"),
        ("format: kernel programs", "splitter-ebpf/Cargo.toml"),
        ("format: fuzz targets", "lab/fuzz/Cargo.toml"),
    ] {
        let manifest = root.join(manifest);
        // The fuzz targets are a workspace of their own, which may not be there.
        if manifest.exists() {
            let format = command::cargo()
                .args(["fmt", "--all", "--check", "--manifest-path"])
                .arg(manifest);
            steps.push(command_step(name, format));
        }
    }
    let cargo = || command::cargo().current_dir(&root);
    steps.push(command_step(
        "lints",
        cargo().args([
            "clippy",
            "--workspace",
            "--all-targets",
            // The command's, which the library does without by default.
            "--features=cloudburst-fec/cli",
            "--locked",
            "--",
            "-Dwarnings",
        ]),
    ));
    // Features of a workspace are built together: only by itself is it without `std`.
    steps.push(command_step(
        "lints: Cloudburst's code without std",
        cargo().args([
            "clippy",
            "--package=cloudburst-fec",
            "--no-default-features",
            "--locked",
            "--",
            "-Dwarnings",
        ]),
    ));
    steps.push(command_step(
        "documentation",
        cargo()
            .args([
                "doc",
                "--workspace",
                "--features=cloudburst-fec/cli",
                "--no-deps",
                "--locked",
            ])
            .env("RUSTDOCFLAGS", "-Dwarnings"),
    ));
    let skips = project.target.join("test-skips");
    let tests = cargo().args([
        "test",
        "--workspace",
        "--features=cloudburst-fec/cli",
        "--locked",
        "--no-fail-fast",
    ]);
    steps.push(step("tests", move || run_tests(tests, skips)));
    // What takes a course of calls is fuzzed by hand, for hours; its corpus is replayed here.
    let targets = ["decoder", "packet"];
    for target in targets {
        let fuzz = fuzz::Fuzz::new(project, target, arguments.fuzz_seconds);
        steps.push(step(fuzz.name(), move || fuzz.check()));
    }
    let (root, target) = (project.root.clone(), project.target.clone());
    steps.push(step("other kernels", move || {
        try_other_kernels(&Project { root, target })
    }));
    let (root, target) = (project.root.clone(), project.target.clone());
    steps.push(step(
        "kernel programs are what the source makes",
        move || check_ebpf(&Project { root, target }),
    ));
    steps
}

fn step(name: impl Into<String>, check: impl FnOnce() -> Result<Tally> + 'static) -> Step {
    Step {
        name: name.into(),
        check: Box::new(check),
    }
}

fn command_step(name: &str, command: Run) -> Step {
    step(name, move || {
        command.run()?;
        Ok(Tally::success())
    })
}

/// What is missing makes tests skip rather than fail, so that a machine that
/// cannot have everything still tests what it can.
fn install() -> Result<Tally> {
    Ok(match setup::ensure(&Purpose::ALL)? {
        Outcome::Ready => Tally::success(),
        Outcome::Incomplete(reason) => {
            eprintln!("warning: {reason}");
            Tally::skip("setup", &reason)
        }
    })
}

fn run_tests(tests: Run, skips: PathBuf) -> Result<Tally> {
    if !is_root() {
        eprintln!(
            "warning: this is not root. Tests that load programs into the kernel or make\n\
             network namespaces will be SKIPPED; run `sudo -E cargo xtask test` for all of them."
        );
    }
    skips::clear(&skips)?;
    let mut tests = tests.env(SKIPS_VARIABLE, &skips);
    let mut tally = Tally::default();
    let mut reader = libtest::Reader::default();
    let status = tests.stream(|line| {
        println!("{line}");
        reader.read(line, &mut tally);
    })?;
    let skipped = skips::read(&skips).context("cannot read which tests were skipped")?;
    tally.mark_skipped(skipped);
    if !status.success() && tally.failed() == 0 {
        // Did not compile, or died without a result.
        tally.add(Tally::failure("cargo test ended without success"));
    }
    Ok(tally)
}

/// What cannot be tried for want of qemu or a kernel is skipped.
fn try_other_kernels(project: &Project) -> Result<Tally> {
    let report = vm_test::run(project)?;
    println!("{}", vm_test::table(&report.outcomes));
    let mut tally = Tally::default();
    for outcome in &report.outcomes {
        tally.add(match outcome.passed() {
            true => Tally::success(),
            false => Tally::failure(&outcome.name()),
        });
    }
    for (kernel, reason) in &report.skipped {
        tally.add(Tally::skip(kernel, reason));
    }
    Ok(tally)
}

fn check_ebpf(project: &Project) -> Result<Tally> {
    Ok(match ebpf::check(project, None)? {
        Verdict::Fresh => Tally::success(),
        Verdict::Loads(how) => {
            eprintln!("{how}");
            Tally::success()
        }
        Verdict::NoCompilers(reason) => Tally::skip("build-ebpf --check", &reason),
    })
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}
