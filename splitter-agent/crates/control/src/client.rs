//! The command's end.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Answer, AnswerLine, AnyLine, MAX_LINE_BYTES, Refusal, Request, RequestLine, VERSION};
use crate::control_socket;

/// Longer than applying a configuration may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why there is no answer, or none that was hoped for.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Nobody listens.
    #[error(
        "no agent runs this instance (nothing answers at {}); `splitter run` starts one, and without one `splitter up` applies a changed file",
        path.display()
    )]
    NotRunning {
        /// The socket.
        path: PathBuf,
    },
    /// The socket is closed to the caller.
    #[error(
        "not permitted to speak to the agent at {}; run this as the user that the agent runs as, or as root",
        path.display()
    )]
    NotPermitted {
        /// The socket.
        path: PathBuf,
    },
    /// Speaking failed half-way. Whether the agent did what was asked is not known.
    #[error(
        "cannot speak to the agent at {}: {source}; `splitter status` shows what is in force",
        path.display()
    )]
    Io {
        /// The socket.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The answer is of an agent of another build.
    #[error(
        "the agent answers in a way that this command does not know; use the command of the agent's build"
    )]
    Answer,
    /// The agent refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// Asks the agent of the instance with this directory.
///
/// # Errors
/// [`ControlError::Refused`] when the agent did nothing, with its reason; the others when it did
/// not answer.
pub fn ask(directory: &Path, request: Request) -> Result<Answer, ControlError> {
    let path = control_socket(directory);
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            ControlError::NotRunning { path: path.clone() }
        }
        io::ErrorKind::PermissionDenied => ControlError::NotPermitted { path: path.clone() },
        _ => ControlError::Io {
            path: path.clone(),
            source,
        },
    };
    let line = exchange(&path, request).map_err(failed)?;
    let AnyLine { version } = serde_json::from_slice(&line).map_err(|_| ControlError::Answer)?;
    if version != VERSION {
        return Err(ControlError::Answer);
    }
    let AnswerLine { answer, .. } =
        serde_json::from_slice(&line).map_err(|_| ControlError::Answer)?;
    match answer {
        Answer::Refused(refusal) => Err(refusal.into()),
        answer => Ok(answer),
    }
}

fn exchange(path: &Path, request: Request) -> io::Result<Vec<u8>> {
    let line = RequestLine {
        version: VERSION,
        request,
    };
    let mut line = serde_json::to_vec(&line)?;
    line.push(b'\n');
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&line)?;
    let mut answer = Vec::new();
    let mut reader = BufReader::new(stream).take(MAX_LINE_BYTES as u64);
    reader.read_until(b'\n', &mut answer)?;
    if answer.last() != Some(&b'\n') {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "it hung up before it had answered",
        ));
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_agent_is_reported_as_such() {
        let directory = tempfile::tempdir().unwrap();
        let error = ask(directory.path(), Request::Show {}).unwrap_err();
        assert!(matches!(error, ControlError::NotRunning { .. }), "{error}");
        // A socket that a killed agent has left.
        drop(std::os::unix::net::UnixListener::bind(control_socket(directory.path())).unwrap());
        let error = ask(directory.path(), Request::Show {}).unwrap_err();
        assert!(matches!(error, ControlError::NotRunning { .. }), "{error}");
    }
}
