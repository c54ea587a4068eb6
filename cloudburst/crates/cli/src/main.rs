//! The command `cloudburst`: reads the command line, hands over to a command, and tells by the
//! exit code how it went.

mod cli;
mod commands;
mod intake;
mod metrics;
mod options;
mod status_page;
mod summary;
mod transfer;
mod values;

use std::{io::IsTerminal as _, time::Duration};

use anyhow::Context as _;
use clap::Parser as _;
use tracing_subscriber::EnvFilter;

use cli::{Cli, Command, ExitCode};

fn main() -> std::process::ExitCode {
    let cli = Cli::parse();
    start_logging();
    let code = run(&cli).unwrap_or_else(|error| commands::report(&error, cli.json));
    code.into()
}

/// How long threads that read or write have to come to an end. One that waits for a terminal or
/// a pipe may never, and must not keep Ctrl-C from ending the program.
const THREADS_WITHIN: Duration = Duration::from_millis(100);

fn run(cli: &Cli) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start a runtime")?;
    let code = runtime.block_on(dispatch(cli));
    runtime.shutdown_timeout(THREADS_WITHIN);
    code
}

async fn dispatch(cli: &Cli) -> anyhow::Result<ExitCode> {
    let json = cli.json;
    match &cli.command {
        Command::Serve(args) => commands::serve::run(args, json).await,
        Command::Send(args) => commands::send::run(args, json).await,
        Command::Recv(args) => commands::recv::run(args, json).await,
        Command::Ping(args) => commands::ping::run(args, json).await,
        Command::Perf(args) => commands::perf::run(args, json).await,
        Command::Paths(args) => commands::paths::run(args, json).await,
        Command::Keygen(args) => commands::keygen::run(args, json),
        Command::Completions(args) => commands::pages::completions(args),
        Command::Man => commands::pages::man(),
    }
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
