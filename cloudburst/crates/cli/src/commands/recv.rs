//! `cloudburst recv`: so many files, and the end.

use std::{io, path::Path};

use anyhow::bail;
use clap::{CommandFactory as _, error::ErrorKind};
use flow_cli::ExitCode;
use flow_cli::{Signals, print_json};

use super::CLOSE_WITHIN;
use crate::{
    cli::{Cli, RecvArgs},
    intake::{Intake, Output},
    transfer::{Arrived, Files, Stream},
};

pub(crate) async fn run(args: &RecvArgs, as_json: bool) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::listen()?;
    let is_standard = args.output == Path::new("-");
    if is_standard && (args.count != 1 || as_json) {
        let reported =
            "standard output takes one file and nothing else; leave out --count and --json";
        Cli::command()
            .error(ErrorKind::ArgumentConflict, reported)
            .exit();
    }
    let output = if is_standard {
        Output::Standard(Box::new(Stream::new(io::stdout())))
    } else {
        Output::Directory(Files::new(&args.output)?)
    };
    let endpoint = args.endpoint.listen(&args.listen).await?;
    tracing::info!(event = "receiving", addresses = ?endpoint.local_addrs(), "receiving");
    let intake = Intake::new(&endpoint, output);
    let arrived = tokio::select! {
        arrived = receive(intake, args.count) => arrived?,
        signal = signals.next() => bail!("{signal}: not all files have arrived"),
    };
    if as_json {
        print_json(&arrived)?;
    }
    endpoint.close(CLOSE_WITHIN).await;
    Ok(ExitCode::Ok)
}

async fn receive(mut intake: Intake, count: u64) -> anyhow::Result<Vec<Arrived>> {
    let mut all = Vec::new();
    let mut result = Ok(());
    while result.is_ok() && (all.len() as u64) < count {
        result = intake.next().await.map(|arrived| all.push(arrived));
    }
    // Those who sent are to hear of it, also of what went wrong.
    intake.finish(CLOSE_WITHIN).await;
    result.map(|()| all)
}
