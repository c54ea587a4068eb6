//! The command `splitter`: reads the command line, hands over to a command, and reports by the exit
//! code how it went.

mod cli;
mod commands;
mod settings;
mod watched_log;

use clap::Parser as _;
use cli::{Cli, Command};
use flow_cli::{ExitCode, pages};
use splitter_config::ConfigFile;
use watched_log::Events;

fn main() -> std::process::ExitCode {
    let cli = Cli::parse();
    // Log lines would run across the screen that `top` draws.
    let events = Events::default();
    if cli.json || !cli.command.draws() {
        events.start_logging(cli.log);
    }
    let code = dispatch(&cli, events).unwrap_or_else(|error| commands::report(&error, cli.json));
    code.into()
}

#[tokio::main(flavor = "current_thread")]
async fn dispatch(cli: &Cli, events: Events) -> anyhow::Result<ExitCode> {
    let json = cli.json;
    match &cli.command {
        Command::Run => commands::run::run(ConfigFile::read(cli.config_path())?, events).await?,
        Command::Reload(args) => commands::change::reload(cli, args)?,
        Command::Set(args) => commands::change::set(cli, args)?,
        Command::Apply(args) => commands::apply::apply(cli, args)?,
        Command::Confirm(args) => commands::apply::confirm(cli, args)?,
        Command::Advise(args) => commands::advise::run(cli, args)?,
        Command::Plan => commands::plan::run(commands::load_in_force(cli)?.config, json).await?,
        Command::Up => commands::up::up(ConfigFile::read(cli.config_path())?, json).await?,
        Command::Down(args) if args.all => return commands::up::down_all(cli).await,
        Command::Down(_) => commands::up::down(commands::load_or_recover(cli)?, json).await?,
        Command::Status => {
            commands::status::status(commands::in_force_or_recover(cli)?, json).await?;
        }
        Command::Flows(args) => {
            commands::flows::run(
                commands::load_or_recover(cli)?,
                args.limit,
                args.watch,
                json,
            )
            .await?;
        }
        Command::Record(args) => {
            commands::record::run(commands::in_force_or_recover(cli)?.config, args, json).await?;
        }
        Command::Explain(args) => {
            return commands::explain::run(commands::load_in_force(cli)?.config, args, json).await;
        }
        Command::Verify(args) => {
            return commands::verify::run(commands::load_in_force(cli)?.config, args, json).await;
        }
        #[cfg(feature = "top")]
        Command::Top(args) => {
            commands::top::run(commands::in_force_or_recover(cli)?.config, args, json).await?;
        }
        Command::Tap(args) => commands::tap::run(args, json).await?,
        Command::Fabric(command) => return commands::fabric::dispatch(cli, *command).await,
        Command::Doctor => return commands::doctor::run(cli).await,
        Command::Check(args) => return commands::check::run(cli, args),
        Command::Config(command) => commands::config::run(*command)?,
        Command::Completions(args) => return pages::completions::<Cli>(args),
        Command::Man(args) => return pages::man::<Cli>(args),
    }
    Ok(ExitCode::Ok)
}
