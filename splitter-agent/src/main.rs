//! The command `splitter`: reads the command line, hands over to a command, and tells by the exit
//! code how it went.

mod cli;
mod commands;

use std::io::IsTerminal as _;

use clap::Parser as _;
use cli::{Cli, Command, ExitCode};
use splitter_config::ConfigFile;
use tracing_subscriber::EnvFilter;

fn main() -> std::process::ExitCode {
    let cli = Cli::parse();
    // What is logged would run across the screen that `top` draws.
    let draws = matches!(&cli.command, Command::Top(args) if !args.once && !cli.json);
    if !draws {
        start_logging();
    }
    let code = dispatch(&cli).unwrap_or_else(|error| commands::report(&error, cli.json));
    code.into()
}

#[tokio::main(flavor = "current_thread")]
async fn dispatch(cli: &Cli) -> anyhow::Result<ExitCode> {
    let json = cli.json;
    match &cli.command {
        Command::Run => commands::run::run(ConfigFile::read(cli.config_path())?).await?,
        Command::Reload(args) => commands::change::reload(cli, args)?,
        Command::Set(args) => commands::change::set(cli, args)?,
        Command::Advise(args) => commands::advise::run(cli, args)?,
        Command::Plan => commands::plan::run(commands::load_in_force(cli)?.0, json).await?,
        Command::Up => commands::up::up(commands::load(cli)?, json).await?,
        Command::Down => commands::up::down(commands::load(cli)?, json).await?,
        Command::Status => {
            let (config, set) = commands::load_in_force(cli)?;
            commands::status::status(config, set, json).await?;
        }
        Command::Flows(args) => {
            commands::status::flows(commands::load(cli)?, args.limit, args.watch, json).await?;
        }
        Command::Top(args) => {
            commands::top::run(commands::load_in_force(cli)?.0, args, json).await?;
        }
        Command::Tap(args) => commands::tap::run(args, json).await?,
        Command::Doctor => return commands::doctor::run(cli).await,
        Command::Check(args) => return commands::check::run(args, json),
        Command::Demo(args) => commands::demo::run(args, json).await?,
        Command::Completions(args) => return commands::pages::completions(args),
        Command::Man => return commands::pages::man(),
    }
    Ok(ExitCode::Ok)
}

/// Logs go to standard error; `RUST_LOG` says how much of them.
fn start_logging() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
}
