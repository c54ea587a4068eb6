//! `cloudburst serve`: answers until a signal ends it.

use std::{
    pin::pin,
    time::{Duration, Instant},
};

use cloudburst::{BusyAnswers, Closed, Endpoint, Received};
use flow_cli::ExitCode;
use flow_cli::Signals;
use flow_telemetry::otlp::Recorder;

use super::CLOSE_WITHIN;
use crate::{
    cli::{ServeArgs, ServeMode},
    intake::{Intake, Output},
    metrics,
    progress::busy_to_json,
    transfer::Files,
    values::MAX_MESSAGE_BYTES,
};

/// Requests that are answered at a time.
const CONCURRENCY: usize = 4_096;

pub(crate) async fn run(
    args: &ServeArgs,
    as_json: bool,
    recorder: &Recorder,
) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::listen()?;
    // Whatever can refuse comes before anything is bound.
    let files = match args.mode {
        ServeMode::Files => Some(Files::new(&args.output)?),
        _ => None,
    };
    let endpoint = args.endpoint.listen(&args.listen).await?;
    let export = metrics::serve(&endpoint, &args.telemetry, recorder)?;
    if args.endpoint.key_file.is_none() {
        tracing::warn!(
            event = "no_key",
            "no key: anybody on the way may send, read and forge"
        );
    }
    tracing::info!(event = "serving", addresses = ?endpoint.local_addrs(), mode = ?args.mode, "serving");
    let mut serving = pin!(serve(&endpoint, args.mode, files));
    let signal = tokio::select! {
        signal = signals.next() => signal,
        error = &mut serving => return Err(error),
        error = warn_of_busy(&endpoint) => return Err(error.into()),
    };
    tracing::info!(event = "ending", signal, "ending");
    let statistics = endpoint.statistics().await?.protocol;
    let busy = statistics.busy_sent;
    if busy.total() > 0 {
        warn(&busy, "since the start, messages were turned away");
    }
    // Metrics are the endpoint's, as long as it is there.
    export.finish().await;
    // To stop serving would cancel replies that are on their way; the end of the endpoint ends it.
    tokio::join!(endpoint.close(CLOSE_WITHIN), serving);
    if as_json {
        let counted = statistics.refused.iter().filter(|(_, count)| *count > 0);
        let refused: serde_json::Value = counted
            .map(|(reason, count)| (reason, serde_json::Value::from(count)))
            .collect();
        flow_cli::print_json(&serde_json::json!({
            "messages_received": statistics.messages_received,
            "messages_delivered": statistics.messages_delivered,
            "messages_undelivered": statistics.messages_undelivered,
            "busy": busy_to_json(&busy),
            "refused": refused,
        }))?;
    }
    Ok(ExitCode::Ok)
}

/// How often it is looked at whether messages were turned away, and how often that is said at most.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
const WARN_PAUSE: Duration = Duration::from_secs(10);

/// Says so when messages are turned away for want of room, until the endpoint is closed.
async fn warn_of_busy(endpoint: &Endpoint) -> Closed {
    let mut ticks = tokio::time::interval(LOOK_PAUSE);
    let mut warned = None::<(Instant, u64)>;
    loop {
        ticks.tick().await;
        let busy = match endpoint.statistics().await {
            Ok(statistics) => statistics.protocol.busy_sent,
            Err(closed) => return closed,
        };
        let is_due = warned.is_none_or(|(at, _)| at.elapsed() >= WARN_PAUSE);
        if is_due && busy.total() > warned.map_or(0, |(_, count)| count) {
            warn(&busy, "messages are turned away: there is no room for them");
            warned = Some((Instant::now(), busy.total()));
        }
    }
}

/// Counts are those since the start.
fn warn(busy: &BusyAnswers, what: &str) {
    tracing::warn!(
        event = "turned_away",
        too_many_messages = busy.messages,
        too_little_memory = busy.memory,
        too_many_peers = busy.peers,
        "{what}; their senders offer them again until their time is over"
    );
}

/// Serves until something is wrong.
async fn serve(endpoint: &Endpoint, mode: ServeMode, files: Option<Files>) -> anyhow::Error {
    match (mode, files) {
        (ServeMode::Files, Some(files)) => write(endpoint, files).await,
        (ServeMode::Size, _) => {
            let reply = |request: Received| std::future::ready(Some(as_asked(&request.message)));
            endpoint.serve(CONCURRENCY, reply).await;
        }
        _ => {
            let reply = |request: Received| std::future::ready(Some(request.message));
            endpoint.serve(CONCURRENCY, reply).await;
        }
    }
    Closed.into()
}

/// As many bytes as the request's first four say.
fn as_asked(request: &[u8]) -> Vec<u8> {
    let bytes = request
        .first_chunk()
        .map(|bytes| u32::from_be_bytes(*bytes));
    vec![0x5a; (bytes.unwrap_or(1) as usize).clamp(1, MAX_MESSAGE_BYTES)]
}

/// Until the endpoint is closed.
async fn write(endpoint: &Endpoint, files: Files) {
    let mut intake = Intake::new(endpoint, Output::Directory(files));
    let tidied = intake.tidied();
    tokio::select! {
        () = take_all(&mut intake) => {}
        () = tidied => {}
    }
}

/// The caller that sends learns what fails, and others go on.
async fn take_all(intake: &mut Intake) {
    loop {
        match intake.next().await {
            Err(error) if error.is::<Closed>() => break,
            Err(error) => tracing::warn!(
                event = "file_not_stored",
                error = format!("{error:#}"),
                "a file is not stored"
            ),
            Ok(_) => {}
        }
    }
}
