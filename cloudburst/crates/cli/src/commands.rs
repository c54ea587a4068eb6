//! What each command does. A command prints its result and returns the exit code.

use std::io;

use cloudburst::BindError;
use flow_cli::{ExitCode, exit_code};

use crate::progress::Output;

pub(crate) mod keygen;
pub(crate) mod paths;
pub(crate) mod perf;
pub(crate) mod ping;
pub(crate) mod recv;
pub(crate) mod send;
pub(crate) mod serve;

/// How long a command that ends lets messages under way get there.
pub(crate) const CLOSE_WITHIN: std::time::Duration = std::time::Duration::from_secs(2);

/// Reports an error and returns its exit code.
pub(crate) fn report(error: &anyhow::Error, output: Output) -> ExitCode {
    let code = exit_code(error, code_of);
    if output == Output::JsonLines {
        // There is nowhere left to complain about a failure to complain.
        let _ = output.print(&flow_cli::error_object(error, code));
        return code;
    }
    flow_cli::report_error("cloudburst", error, code, output.is_json())
}

/// Tells on standard error why there is no result, whatever was measured.
pub(crate) fn warn_of_silence(peer: &cloudburst::Remotes) {
    tracing::warn!(event = "nothing_delivered", %peer, "nothing was delivered; is the peer there, and do the keys fit?");
}

fn code_of(cause: &(dyn std::error::Error + 'static)) -> Option<ExitCode> {
    use flow_telemetry::{ListenError, otlp::OtlpError};

    if crate::options::is_configuration(cause) || cause.is::<OtlpError>() {
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
    if cause.is::<keygen::InTheWay>() {
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
