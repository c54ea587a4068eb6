//! The first and only process of a virtual machine that `cargo xtask vm-test` starts on another
//! kernel: loads every program, attaches it, sends packets through it, runs the agent itself, and
//! reports on the console how that went, a line of JSON for each thing tried. Then it switches off.

mod agent;
mod bond;
mod fabric;
mod network;
mod programs;
mod qdiscs;
mod queues;
mod tenant;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use network::Network;
use nix::kmod::init_module;
use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};
use serde::Serialize;

/// What a line of results begins with, among whatever else lands on the console.
const MARKER: &str = "VM-TEST ";

/// One thing that was tried.
#[derive(Serialize)]
struct Row {
    /// The program, or what the agent was made to do.
    name: String,
    /// The object that a program comes from.
    object: Option<&'static str>,
    /// Every way in which it was attached.
    attached: Vec<&'static str>,
    /// How many instructions the verifier looked at until it was convinced.
    verified_instructions: Option<u32>,
    passed: bool,
    /// Why it did not pass.
    problem: Option<String>,
}

impl Row {
    /// Of what the agent was made to do, and how it attached its program.
    fn of_agent(name: &str, outcome: Result<Vec<&'static str>>) -> Self {
        let problem = outcome.as_ref().err();
        let problem = problem.map(|error| last_lines(&format!("{error:#}")));
        Self {
            name: name.to_owned(),
            object: None,
            passed: outcome.is_ok(),
            attached: outcome.unwrap_or_default(),
            verified_instructions: None,
            problem,
        }
    }
}

/// The verifier's whole log has a line for each instruction; the reason stands at its end.
fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}

fn main() -> ExitCode {
    if std::process::id() != 1 {
        eprintln!(
            "this is the first process of a virtual machine, which `cargo xtask vm-test` starts"
        );
        return ExitCode::FAILURE;
    }
    // The kernel panics when this process ends, which looks the same as a crash of its own.
    match std::panic::catch_unwind(run) {
        Ok(Ok(())) => report("{\"done\": true}"),
        Ok(Err(error)) => tell_json(&serde_json::json!({ "failed": format!("{error:#}") })),
        Err(_) => report("{\"failed\": \"the guest panicked; its message is above\"}"),
    }
    let Err(error) = reboot(RebootMode::RB_POWER_OFF);
    eprintln!("cannot switch off: {error}");
    ExitCode::FAILURE
}

fn run() -> Result<()> {
    mount_all()?;
    load_modules(Path::new("/modules"))?;
    let network = Network::build().context("cannot build the network")?;
    programs::try_all(&network, |row| tell_json(&row))?;
    agent::try_all(&network, |row| tell_json(&row))
}

fn mount_all() -> Result<()> {
    for (kind, path) in [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("tmpfs", "/run"),
        ("tmpfs", "/tmp"),
        ("bpf", "/sys/fs/bpf"),
    ] {
        mount(Some(kind), path, Some(kind), MsFlags::empty(), None::<&str>)
            .with_context(|| format!("cannot mount {kind} at {path}"))?;
    }
    Ok(())
}

/// In the order of their names, which is the one they need each other in.
fn load_modules(directory: &Path) -> Result<()> {
    let entries = directory.read_dir().context("cannot list the modules")?;
    let mut paths = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        let context = || format!("cannot load {}", path.display());
        let module = std::fs::read(&path).with_context(context)?;
        init_module(&module, c"").with_context(context)?;
    }
    Ok(())
}

fn tell_json(value: &impl Serialize) {
    report(&serde_json::to_string(value).expect("strings and numbers"));
}

fn report(line: &str) {
    println!("{MARKER}{line}");
}
