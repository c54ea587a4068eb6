//! The command `splitter`: reads the command line, hands over to a command, and tells by the exit
//! code how it went.

mod cli;
mod commands;

use clap::Parser as _;

use cli::{Cli, Command, ExitCode};

fn main() -> std::process::ExitCode {
    let cli = Cli::parse();
    let code = dispatch(&cli).unwrap_or_else(|error| commands::report(&error, cli.json));
    code.into()
}

#[tokio::main(flavor = "current_thread")]
async fn dispatch(cli: &Cli) -> anyhow::Result<ExitCode> {
    match &cli.command {
        Command::Plan => commands::plan::run(&commands::load(cli)?, cli.json).await,
        Command::Check(args) => commands::check::run(args, cli.json),
        Command::Doctor => commands::doctor::run(cli).await,
        Command::Completions(args) => commands::pages::completions(args),
        Command::Man => commands::pages::man(),
        other => anyhow::bail!("`splitter {}` is not part of this build", other.name()),
    }
}
