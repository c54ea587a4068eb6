//! What each command does. A command prints its result and returns the exit code.

use std::io::{self, Write as _};

use anyhow::Context as _;
use cloudburst::BindError;
use serde::Serialize;
use serde_json::json;

use crate::cli::ExitCode;

pub(crate) mod keygen;
pub(crate) mod pages;
pub(crate) mod paths;
pub(crate) mod perf;
pub(crate) mod ping;
pub(crate) mod recv;
pub(crate) mod send;
pub(crate) mod serve;

/// How long a command that ends lets messages under way get there.
pub(crate) const CLOSE_WITHIN: std::time::Duration = std::time::Duration::from_secs(2);

/// Tells an error, on standard error for people and on standard output as JSON.
pub(crate) fn report(error: &anyhow::Error, as_json: bool) -> ExitCode {
    let code = exit_code(error);
    if as_json {
        let told = json!({ "error": in_words(error), "exit_code": code as u8 });
        // There is nowhere left to complain about a failure to complain.
        let _ = print_json(&told);
    } else {
        let _ = writeln!(io::stderr(), "cloudburst: {}", in_words(error));
    }
    code
}

/// Tells on standard error why there is no result, whatever was measured.
pub(crate) fn warn_of_silence(peer: &cloudburst::Remotes) {
    tracing::warn!(%peer, "nothing was delivered; is the peer there, with the same key?");
}

/// The error and its causes; a cause that an error above has told already is left out.
fn in_words(error: &anyhow::Error) -> String {
    let mut words = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if words.is_empty() {
            words = cause;
        } else if !words.contains(&cause) {
            words = format!("{words}: {cause}");
        }
    }
    words
}

/// The exit code that an error stands for, from the first cause that has one.
fn exit_code(error: &anyhow::Error) -> ExitCode {
    error.chain().find_map(code_of).unwrap_or(ExitCode::Failed)
}

fn code_of(cause: &(dyn std::error::Error + 'static)) -> Option<ExitCode> {
    use flow_telemetry::ListenError;

    if crate::options::is_configuration(cause) {
        return Some(ExitCode::Configuration);
    }
    if let Some(error) = cause.downcast_ref::<BindError>() {
        if error.is_in_use() {
            return Some(ExitCode::Conflict);
        }
        if error.is_not_permitted() {
            return Some(ExitCode::NotPermitted);
        }
    }
    if cause.is::<keygen::FileExists>() {
        return Some(ExitCode::Conflict);
    }
    if let Some(error) = cause.downcast_ref::<io::Error>() {
        return (error.kind() == io::ErrorKind::PermissionDenied).then_some(ExitCode::NotPermitted);
    }
    match cause.downcast_ref::<ListenError>()? {
        ListenError::InUse { .. } => Some(ExitCode::Conflict),
        ListenError::NotPermitted { .. } => Some(ExitCode::NotPermitted),
        _ => None,
    }
}

/// Prints a line. A reader that has seen enough, such as `head`, is no error, but
/// the end: nobody is left to print for.
pub(crate) fn print(text: impl std::fmt::Display) -> anyhow::Result<()> {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        result => result.context("cannot write to standard output"),
    }
}

/// Prints a value as JSON.
pub(crate) fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    print(serde_json::to_string_pretty(value).context("cannot express the result as JSON")?)
}

/// Waits until the process is told to end.
pub(crate) struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    hang_up: tokio::signal::unix::Signal,
}

impl Signals {
    /// From now on signals do not end the process by themselves.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let listen = |kind| signal(kind).context("cannot listen for signals");
            Ok(Self {
                terminate: listen(SignalKind::terminate())?,
                interrupt: listen(SignalKind::interrupt())?,
                hang_up: listen(SignalKind::hangup())?,
            })
        }
        #[cfg(not(unix))]
        Ok(Self {})
    }

    /// Which signal it was.
    pub(crate) async fn next(&mut self) -> &'static str {
        #[cfg(unix)]
        tokio::select! {
            _ = self.interrupt.recv() => "Ctrl-C",
            _ = self.terminate.recv() => "SIGTERM",
            // The terminal is gone, and with it whoever would have pressed Ctrl-C.
            _ = self.hang_up.recv() => "SIGHUP",
        }
        #[cfg(not(unix))]
        {
            let _ = tokio::signal::ctrl_c().await;
            "Ctrl-C"
        }
    }
}
