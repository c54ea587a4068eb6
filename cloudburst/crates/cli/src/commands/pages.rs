//! `cloudburst completions` and `cloudburst man`, made from the same definitions as the parser.

use anyhow::Context as _;
use clap::CommandFactory as _;

use super::print;
use crate::cli::{Cli, CompletionsArgs, ExitCode};

pub(crate) fn completions(args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "cloudburst", &mut script);
    print(String::from_utf8_lossy(&script).trim_end())?;
    Ok(ExitCode::Ok)
}

pub(crate) fn man() -> anyhow::Result<ExitCode> {
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command())
        .render(&mut page)
        .context("cannot write the manual page")?;
    print(String::from_utf8_lossy(&page).trim_end())?;
    Ok(ExitCode::Ok)
}
