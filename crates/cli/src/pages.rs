//! Manual pages and shell completions, made from the same definitions as the parser.

use anyhow::Context as _;
use clap::{Args, CommandFactory};
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

/// Prints the manual page of the parser `C`.
///
/// # Errors
/// When standard output cannot be written to.
pub fn man<C: CommandFactory>() -> anyhow::Result<ExitCode> {
    let mut page = Vec::new();
    clap_mangen::Man::new(C::command())
        .render(&mut page)
        .context("cannot write the manual page")?;
    print(String::from_utf8_lossy(&page).trim_end())?;
    Ok(ExitCode::Ok)
}
