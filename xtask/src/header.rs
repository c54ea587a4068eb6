//! `header`: Cloudburst's header for C, made from the source of its C interface by cbindgen.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, bail};

use crate::{command::Run, project::Project, setup::CBINDGEN};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Fail where the committed header differs from what the source makes, and change nothing.
    #[arg(long)]
    check: bool,
}

/// Result of [`check`].
pub(crate) enum Verdict {
    Fresh,
    /// The generator is not here; the reason says what to do.
    NoGenerator(String),
}

pub(crate) fn task(project: &Project, arguments: &Arguments) -> Result<ExitCode> {
    if arguments.check {
        if let Verdict::NoGenerator(reason) = check(project)? {
            bail!(reason);
        }
    } else if let Some(reason) = lacking()? {
        bail!(reason);
    } else {
        generate(project, &header(project))?;
    }
    println!("{}", header(project).display());
    Ok(ExitCode::SUCCESS)
}

/// Compares the committed header with what the source makes.
pub(crate) fn check(project: &Project) -> Result<Verdict> {
    if let Some(reason) = lacking()? {
        return Ok(Verdict::NoGenerator(reason));
    }
    let made = project.target.join("cloudburst.h");
    generate(project, &made)?;
    let read = |file: &Path| {
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
    };
    let (made, committed) = (read(&made)?, read(&header(project))?);
    if made != committed {
        let lines = made.lines().zip(committed.lines());
        let alike = lines.take_while(|(made, committed)| made == committed);
        bail!(
            "{}:{} is not what the source makes; run `cargo xtask header` and commit it",
            header(project).display(),
            alike.count() + 1
        );
    }
    Ok(Verdict::Fresh)
}

fn lacking() -> Result<Option<String>> {
    let is_there = CBINDGEN.program()?.is_file();
    let reason = "cbindgen is not there; `cargo xtask setup --only test` builds it";
    Ok((!is_there).then(|| reason.to_owned()))
}

fn generate(project: &Project, to: &Path) -> Result<()> {
    let source = source(project);
    Run::new(CBINDGEN.program()?)
        .arg("--quiet")
        .arg("--config")
        .arg(source.join("cbindgen.toml"))
        .arg("--output")
        .args([to, &source])
        .current_dir(&project.root)
        .run()
}

fn source(project: &Project) -> PathBuf {
    project.root.join("cloudburst/crates/ffi")
}

fn header(project: &Project) -> PathBuf {
    source(project).join("include/cloudburst.h")
}
