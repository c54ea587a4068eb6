//! `setup`: what the other tasks need, from the distribution.

mod apt;
mod crates;
mod needs;
mod os_release;
mod plan;
mod python;
mod rust;

use std::process::ExitCode;

use anyhow::{Context, Result};

use self::{
    needs::{BPF_LINKER_VERSION, Kind, NEEDS, Need},
    os_release::OsRelease,
    plan::{Availability, Plan},
};
pub(crate) use self::{
    needs::{LLVM_VERSION, Purpose},
    python::vectors_python,
    rust::{
        BARE_TARGETS, CARGO_DENY, CBINDGEN, MDBOOK, MINIMUM_VERSION, MinimumToolchain,
        PLATFORM_TARGETS,
    },
};
use crate::{
    command::{self, Run},
    ebpf::{self, Pair},
    project::{find_program, tool_cache},
};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Show what would be installed, and why, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Only what these tasks need; without it, everything.
    #[arg(long, value_enum, value_name = "TASK", value_delimiter = ',')]
    only: Vec<Purpose>,
}

/// How far `setup` came.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Everything is there.
    Ready,
    /// Some of it cannot be had here; the reason says what and what to do.
    Incomplete(String),
}

pub(crate) fn task(arguments: &Arguments) -> Result<ExitCode> {
    let purposes: &[Purpose] = match arguments.only.as_slice() {
        [] => &Purpose::ALL,
        only => only,
    };
    if arguments.dry_run {
        let missing = missing(purposes);
        let availability = availability();
        let plan = Plan::new(&missing, &availability);
        print!("{}", plan::table(purposes, &missing));
        println!("\n{plan}");
        if matches!(&availability, Availability::Apt(apt) if apt.would_refresh(&missing)) {
            println!(
                "The package lists of this system are missing, old or lack something needed. \
                 Setup fetches them first; what is said above of packages may change then."
            );
        }
        return Ok(ExitCode::SUCCESS);
    }
    match ensure(purposes)? {
        Outcome::Ready => {
            eprintln!("Everything is there.");
            Ok(ExitCode::SUCCESS)
        }
        Outcome::Incomplete(reason) => {
            eprintln!("error: {reason}");
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Installs what is missing for `purposes`; silent when nothing is. Everything
/// is said on standard error.
pub(crate) fn ensure(purposes: &[Purpose]) -> Result<Outcome> {
    let needed = missing(purposes);
    if needed.is_empty() {
        return Ok(Outcome::Ready);
    }
    eprint!("{}", plan::table(purposes, &needed));
    let mut availability = availability();
    if let Availability::Apt(apt) = &mut availability {
        apt.refresh_if_needed(&needed)?;
    }
    let plan = Plan::new(&needed, &availability);
    eprintln!("\n{plan}");
    if let Availability::Apt(apt) = &mut availability {
        if !plan.packages.is_empty() {
            match apt::elevation() {
                Ok(elevation) => apt.install(&plan.packages, elevation)?,
                Err(reason) => return Ok(Outcome::Incomplete(reason)),
            }
        }
        add_components(&plan)?;
        if plan.bpf_linker {
            build_bpf_linker()?;
        }
    }
    from_registries(&plan);
    Ok(verdict(&missing(purposes), &plan))
}

/// Fetches the package lists, where that is allowed.
pub(crate) fn refresh_package_lists() -> Result<()> {
    match apt::elevation() {
        Ok(elevation) => apt::Apt::new().update(elevation),
        Err(reason) => anyhow::bail!(reason),
    }
}

/// The directory in which the linker that `setup` built lies.
pub(crate) fn bpf_linker_directory() -> Result<std::path::PathBuf> {
    Ok(bpf_linker_root()?.join("bin"))
}

fn verdict(still_missing: &[&Need], plan: &Plan) -> Outcome {
    if still_missing.is_empty() {
        return Outcome::Ready;
    }
    let names: Vec<_> = still_missing.iter().map(|need| need.name()).collect();
    let mut reason = format!("still missing: {}.", names.join(", "));
    if let Some(remedy) = &plan.by_hand {
        reason.push(' ');
        reason.push_str(remedy);
    }
    Outcome::Incomplete(reason)
}

/// What of the needs is not met.
fn missing(purposes: &[Purpose]) -> Vec<&'static Need> {
    // The nightly pair needs none of the distribution's compiler packages.
    let has_nightly = Pair::Nightly.is_present();
    NEEDS
        .iter()
        .filter(|need| need.serves(purposes))
        .filter(|need| !(has_nightly && need.serves(&[Purpose::Ebpf])))
        .filter(|need| !is_met(need))
        .collect()
}

fn is_met(need: &Need) -> bool {
    match need.kind {
        Kind::Program { program, .. } => find_program(program).is_some(),
        Kind::Package(package) => apt::is_installed(package),
        Kind::PythonModule { module, .. } => has_python_module(module),
        Kind::RustComponent { subcommand, .. } => {
            command::cargo().args([subcommand, "--version"]).succeeds()
        }
        Kind::MinimumToolchain => MinimumToolchain::find().is_ok(),
        Kind::PythonEnvironment => vectors_python().is_some(),
        Kind::CargoTool(ref tool) => tool.program().is_ok_and(|program| program.is_file()),
        Kind::Crates => crates::are_there(),
        Kind::BpfLinker => bpf_linker_directory().is_ok_and(|directory| {
            ebpf::bpf_linker_version(&directory.join("bpf-linker"))
                .is_ok_and(|version| version.ends_with(BPF_LINKER_VERSION))
        }),
    }
}

fn has_python_module(module: &str) -> bool {
    let import = format!("import {module}");
    Run::new("python3").args(["-c", &import]).succeeds()
}

fn availability() -> Availability {
    let release = OsRelease::of_this_system();
    if release.is_debian_like() && find_program("apt-get").is_some() {
        Availability::Apt(apt::Apt::new())
    } else {
        Availability::Unknown(release.name)
    }
}

fn add_components(plan: &Plan) -> Result<()> {
    for component in &plan.rust_components {
        eprintln!("Adding the Rust component {component}");
        Run::new("rustup")
            .args(["component", "add", component])
            .run()
            .with_context(|| {
                format!(
                    "cannot add the Rust component {component}; without rustup, install it the way this Rust was installed"
                )
            })?;
    }
    Ok(())
}

/// Installs what rustup, cargo and pip have. Where they cannot, the verdict says what is missing, and what
/// needs it is skipped.
fn from_registries(plan: &Plan) {
    let toolchain = plan.minimum_toolchain.then(MinimumToolchain::install);
    let tools = plan.cargo_tools.iter().map(|tool| tool.install());
    let python = plan.python_environment.then(python::install);
    let crates = plan.crates.then(crates::fetch);
    let others = python.into_iter().chain(crates);
    for result in toolchain.into_iter().chain(tools).chain(others) {
        if let Err(error) = result {
            eprintln!("warning: {error:#}");
        }
    }
}

fn build_bpf_linker() -> Result<()> {
    eprintln!("Building bpf-linker {BPF_LINKER_VERSION} (about a minute)");
    command::cargo()
        .args(["install", "bpf-linker", "--version", BPF_LINKER_VERSION])
        .args(["--locked", "--force", "--no-default-features"])
        .arg(format!("--features=llvm-{LLVM_VERSION}"))
        .arg("--root")
        .arg(bpf_linker_root()?)
        .env("LLVM_PREFIX", format!("/usr/lib/llvm-{LLVM_VERSION}"))
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_TARGET_DIR")
        .run()
        .context("cannot build the linker for BPF")
}

/// One directory per version: a newer one does not disturb an older checkout.
fn bpf_linker_root() -> Result<std::path::PathBuf> {
    Ok(tool_cache()?.join(format!(
        "bpf-linker-{BPF_LINKER_VERSION}-llvm-{LLVM_VERSION}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_python_without_the_module_does_not_do() {
        assert!(!has_python_module("no_such_module"));
        if find_program("python3").is_some() {
            assert!(has_python_module("sys"));
        }
    }
}
