//! `cloudburst recv`: so many files, and the end.

use std::{io, path::Path};

use anyhow::bail;
use clap::{CommandFactory as _, error::ErrorKind};
use cloudburst::{Endpoint, protocol::PeerId};

use super::{CLOSE_WITHIN, Signals, print_json};
use crate::{
    cli::{Cli, ExitCode, RecvArgs},
    transfer::{Arrived, Files, NotAChunk, NotTaken, Stream},
};

/// Where files go.
enum Output {
    Directory(Files),
    Standard(Stream<io::Stdout>),
}

impl Output {
    fn take(&mut self, peer: PeerId, message: &[u8]) -> anyhow::Result<Option<Arrived>> {
        match self {
            Self::Directory(files) => files.take(peer, message),
            Self::Standard(stream) => stream.take(peer, message),
        }
    }
}

pub(crate) async fn run(args: &RecvArgs, as_json: bool) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::listen()?;
    let is_standard = args.output == Path::new("-");
    if is_standard && (args.count != 1 || as_json) {
        let told = "standard output takes one file and nothing else; leave out --count and --json";
        Cli::command()
            .error(ErrorKind::ArgumentConflict, told)
            .exit();
    }
    let output = if is_standard {
        Output::Standard(Stream::new(io::stdout()))
    } else {
        Output::Directory(Files::new(&args.output)?)
    };
    let endpoint = args.endpoint.bind(&args.listen.ports).await?;
    tracing::info!(addresses = ?endpoint.local_addrs(), "receiving");
    let arrived = tokio::select! {
        arrived = receive(&endpoint, output, args.count) => arrived?,
        signal = signals.next() => bail!("{signal}: not all files have arrived"),
    };
    if as_json {
        print_json(&arrived)?;
    }
    endpoint.close(CLOSE_WITHIN).await;
    Ok(ExitCode::Ok)
}

async fn receive(
    endpoint: &Endpoint,
    mut output: Output,
    count: u64,
) -> anyhow::Result<Vec<Arrived>> {
    let mut all = Vec::new();
    while (all.len() as u64) < count {
        let received = endpoint.recv().await?;
        // Whoever reads standard output may be slow, and the endpoint has to answer meanwhile.
        let taken = tokio::task::spawn_blocking(move || {
            let result = output.take(received.peer, &received.message);
            (output, result)
        });
        let (after, result) = taken.await?;
        output = after;
        match result {
            Ok(Some(arrived)) => {
                tell(&arrived);
                all.push(arrived);
            }
            Ok(None) => {}
            // Whoever sends something else must not end what others send.
            Err(error) if error.is::<NotAChunk>() || error.is::<NotTaken>() => {
                tracing::warn!(%error, "ignored a message");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// On standard error: standard output may be the file.
pub(crate) fn tell(arrived: &Arrived) {
    let Arrived {
        file,
        bytes,
        seconds,
    } = arrived;
    tracing::info!(file = %file.display(), bytes, seconds, "received");
}
