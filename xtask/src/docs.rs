//! `docs`: builds the book, draws its figures, and holds both against what there is.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Result, bail};

use crate::{
    command::{self, Run},
    project::Project,
    setup::{self, MDBOOK, Outcome, Purpose},
};

/// Packages with the programs whose command lines the book shows.
const SHOWN: [&str; 11] = [
    "bond",
    "twin",
    "fabric",
    "splitter-agent",
    "cloudburst-cli",
    "flow-netsim",
    "splitter-demo",
    "msgbench",
    "scale",
    "instructions",
    "reproduction",
];

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Also check links, anchors, command lines, figures and numbers.
    #[arg(long, conflicts_with = "figures")]
    check: bool,
    /// Draw the figures again from their descriptions in docs/figures, and write what pages have of results;
    /// build nothing.
    #[arg(long)]
    figures: bool,
}

pub(crate) fn task(project: &Project, arguments: &Arguments) -> Result<ExitCode> {
    if arguments.figures {
        command::cargo()
            .args(["build", "--quiet", "--locked", "--package=docs-check"])
            .current_dir(&project.root)
            .run()?;
        checker(project).arg("figures").run()?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Outcome::Incomplete(reason) = setup::ensure(&[Purpose::Docs])? {
        bail!(reason);
    }
    if arguments.check {
        let build = command::cargo()
            .args(["build", "--quiet", "--locked", "--bins"])
            .args(SHOWN.map(|package| format!("--package={package}")))
            .arg("--package=docs-check");
        if let Some(missing) = check(project, build)? {
            bail!(missing);
        }
    } else {
        build(project)?;
    }
    println!("{}", book(project).join("index.html").display());
    Ok(ExitCode::SUCCESS)
}

/// Builds the book, and by `programs` what it shows, and checks it; returns what is missing where the book
/// cannot be built.
pub(crate) fn check(project: &Project, programs: Run) -> Result<Option<String>> {
    if !MDBOOK.program()?.is_file() {
        let reason = "mdBook is not there; `cargo xtask setup --only docs` installs it";
        return Ok(Some(reason.to_owned()));
    }
    build(project)?;
    programs.current_dir(&project.root).run()?;
    checker(project)
        .args(["check", "--book"])
        .arg(book(project))
        .arg("--programs")
        .arg(project.target.join("debug"))
        .run()?;
    Ok(None)
}

fn build(project: &Project) -> Result<()> {
    Run::new(MDBOOK.program()?)
        .args(["build", "--dest-dir"])
        .args([book(project), project.root.join("docs")])
        .run()
}

fn book(project: &Project) -> PathBuf {
    project.target.join("book")
}

fn checker(project: &Project) -> Run {
    let checker = Run::new(project.target.join("debug/docs-check"));
    checker.arg("--root").arg(&project.root)
}
