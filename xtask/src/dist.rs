//! `dist`: the products' programs as they are shipped, each with its line tables in a file next to it.
//!
//! `cargo build --release` drops them. Compilers can put most of what debuggers read into a file of
//! its own (`split-debuginfo`), but never the line tables, so `objcopy` takes them out here. The
//! stripped program names that file, and a backtrace finds it in its own directory or in
//! /usr/lib/debug.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, bail};

use crate::{
    command::{self, Run},
    elf,
    project::Project,
};

/// Packages with a program for users, and the program.
const PROGRAMS: [(&str, &str); 3] = [
    ("splitter-agent", "splitter"),
    ("cloudburst-cli", "cloudburst"),
    ("flow-netsim", "netsim"),
];

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Directory that the programs are written to; without it `dist` in the target directory.
    #[arg(long, value_name = "DIRECTORY")]
    out: Option<PathBuf>,
}

pub(crate) fn task(project: &Project, arguments: &Arguments) -> Result<ExitCode> {
    let own = || project.target.join("dist/programs");
    let out = arguments.out.clone().unwrap_or_else(own);
    for program in build(project, &out)? {
        println!("{program}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds all programs into a directory and returns a line about each.
pub(crate) fn build(project: &Project, out: &Path) -> Result<Vec<String>> {
    command::cargo()
        .args(["build", "--profile=dist", "--locked"])
        .args(PROGRAMS.map(|(package, _)| format!("--package={package}")))
        .args(PROGRAMS.map(|(_, program)| format!("--bin={program}")))
        .current_dir(&project.root)
        .run()?;
    fs::create_dir_all(out)
        .with_context(|| format!("cannot make the directory {}", out.display()))?;
    let built = project.target.join("dist");
    PROGRAMS
        .iter()
        .map(|(_, program)| split(&built.join(program), &out.join(program)))
        .collect()
}

/// Writes a program without debug information, and a file with that next to it.
fn split(built: &Path, program: &Path) -> Result<String> {
    let debug = program.with_extension("debug");
    Run::new("objcopy")
        .arg("--only-keep-debug")
        .args([built, &debug])
        .run()?;
    let mut link = std::ffi::OsString::from("--add-gnu-debuglink=");
    link.push(&debug);
    Run::new("objcopy")
        .arg("--strip-all")
        .arg(link)
        .args([built, program])
        .run()?;
    let lacks = |file: &Path, section: &str| -> Result<bool> {
        let content = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        Ok(!elf::missing(&content, &[section])?.is_empty())
    };
    if lacks(program, ".gnu_debuglink")? || lacks(&debug, ".debug_line")? {
        bail!("{} was built without line tables", built.display());
    }
    let megabytes = |file: &Path| -> Result<f64> { Ok(fs::metadata(file)?.len() as f64 / 1e6) };
    Ok(format!(
        "{}: {:.1} MB, and {:.1} MB of line tables and symbols in {}",
        program.display(),
        megabytes(program)?,
        megabytes(&debug)?,
        debug.display()
    ))
}
