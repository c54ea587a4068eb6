//! Manual pages and shell completions, made from the same definitions as the parser.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, CommandFactory, ValueHint};
use clap_complete::Shell;

use crate::{ExitCode, print};

/// The arguments of a command `completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell to complete for.
    pub shell: Shell,
}

/// Prints the completions of a shell for the parser `C`.
///
/// # Errors
/// When standard output cannot be written to.
pub fn completions<C: CommandFactory>(args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    let mut command = C::command();
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, name, &mut script);
    print(String::from_utf8_lossy(&script).trim_end())?;
    Ok(ExitCode::Ok)
}

/// The arguments of a command `man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Write the manual page, and one of each command, into this directory instead.
    #[arg(long, value_name = "DIRECTORY", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
}

/// Prints the manual page of the parser `C`, or writes one of it and of each of its commands that
/// is not hidden into a directory: `splitter.1`, `splitter-run.1` and so on.
///
/// # Errors
/// When standard output or a file cannot be written to.
pub fn man<C: CommandFactory>(args: &ManArgs) -> anyhow::Result<ExitCode> {
    if let Some(directory) = &args.out {
        clap_mangen::generate_to(C::command(), directory)
            .with_context(|| format!("cannot write manual pages to {}", directory.display()))?;
        return Ok(ExitCode::Ok);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(C::command())
        .render(&mut page)
        .context("cannot write the manual page")?;
    print(String::from_utf8_lossy(&page).trim_end())?;
    Ok(ExitCode::Ok)
}
