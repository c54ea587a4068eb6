//! The command `cloudburst`: reads the command line, hands over to a command, and tells by the
//! exit code how it went.

mod cli;
mod commands;
mod intake;
mod keys;
mod metrics;
mod options;
mod progress;
mod status_page;
mod summary;
mod transfer;
mod values;

use std::time::Duration;

use anyhow::Context as _;
use clap::Parser as _;
use cli::{Cli, Command};
use flow_cli::{ExitCode, pages};
use flow_telemetry::otlp::Recorder;

fn main() -> std::process::ExitCode {
    let cli = Cli::parse();
    let recorder = Recorder::new();
    flow_cli::start_logging_also_to(cli.log, recorder.layer());
    let code = run(&cli, &recorder).unwrap_or_else(|error| commands::report(&error, cli.output()));
    code.into()
}

/// How long threads that read or write have to come to an end. One that waits for a terminal or
/// a pipe may never, and must not keep Ctrl-C from ending the program.
const THREADS_WITHIN: Duration = Duration::from_millis(100);

fn run(cli: &Cli, recorder: &Recorder) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start a runtime")?;
    let code = runtime.block_on(dispatch(cli, recorder));
    runtime.shutdown_timeout(THREADS_WITHIN);
    code
}

async fn dispatch(cli: &Cli, recorder: &Recorder) -> anyhow::Result<ExitCode> {
    let json = cli.json;
    let output = cli.output();
    match &cli.command {
        Command::Serve(args) => commands::serve::run(args, json, recorder).await,
        Command::Send(args) => commands::send::run(args, output).await,
        Command::Recv(args) => commands::recv::run(args, json).await,
        Command::Ping(args) => commands::ping::run(args, json).await,
        Command::Perf(args) => commands::perf::run(args, output, recorder).await,
        Command::Paths(args) => commands::paths::run(args, json).await,
        Command::Keygen(args) => commands::keygen::run(args, json),
        Command::Completions(args) => pages::completions::<Cli>(args),
        Command::Man(args) => pages::man::<Cli>(args),
    }
}
