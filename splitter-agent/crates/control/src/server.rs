//! The agent's end.

use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket,
};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::timeout;

use super::{Answer, AnswerLine, MAX_LINE_BYTES, Reason, Refusal, Request, VERSION, parse_request};
use crate::control_socket;
use crate::stats::{AgentStats, ControlResult};

/// Anyone who may write to a socket may speak to the agent.
const PRIVATE: u32 = 0o600;
/// Connections that are served at a time; others wait.
const MAX_CONNECTIONS: usize = 8;
/// A connection that says nothing for so long, or takes no answer, is closed.
const IDLE: Duration = Duration::from_secs(10);

/// A request on its way to the task that answers it.
#[derive(Debug)]
pub struct Call {
    /// What is asked.
    pub request: Request,
    /// Who asks.
    pub peer: Peer,
    /// Where the answer goes.
    pub reply: oneshot::Sender<Answer>,
}

/// Who asks, as the kernel reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its user.
    pub uid: u32,
    /// Its process, where that can be seen.
    pub pid: Option<i32>,
}

/// The socket could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot make the control socket {}: {source}; {}", path.display(), remedy(source))]
pub struct BindError {
    path: PathBuf,
    source: io::Error,
}

fn remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => "see who may write to its directory",
        io::ErrorKind::InvalidInput => {
            "its path is too long: give a shorter `name` or `runtime_dir`"
        }
        _ => "see whether its directory can be written to",
    }
}

/// The listening socket; its file goes when it is dropped.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    /// Listens in an instance's directory. Anyone who holds the instance's lock may do so: what an
    /// agent that was killed has left there is replaced.
    ///
    /// # Errors
    /// When the directory cannot be written to, or the path is longer than a socket's may be.
    pub fn bind(directory: &Path) -> Result<Self, BindError> {
        let path = control_socket(directory);
        match listen_at(&path) {
            Ok(listener) => Ok(Self { listener, path }),
            Err(source) => Err(BindError { path, source }),
        }
    }

    /// Hands every request to `calls`, and each answer to the caller. Ends only when nobody
    /// takes requests any more.
    pub async fn serve(self, calls: mpsc::Sender<Call>, stats: Arc<AgentStats>) {
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        while !calls.is_closed() {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                return;
            };
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of descriptors, for instance: it may pass.
                    tracing::warn!(event = "control_failed", %error, "cannot accept on the control socket");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let (calls, stats) = (calls.clone(), Arc::clone(&stats));
            tokio::spawn(async move {
                if let Err(error) = converse(stream, &calls, &stats).await {
                    tracing::debug!(%error, "a control connection broke");
                }
                drop(place);
            });
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // It may have been removed with its directory.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Closed to others before it listens, so that nobody gets in meanwhile.
fn listen_at(path: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let address = UnixAddr::new(path).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    bind(socket.as_raw_fd(), &address)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(PRIVATE))?;
    listen(&socket, Backlog::new(MAX_CONNECTIONS as i32)?)?;
    UnixListener::from_std(socket.into())
}

async fn converse(
    stream: UnixStream,
    calls: &mpsc::Sender<Call>,
    stats: &AgentStats,
) -> io::Result<()> {
    let credentials = stream.peer_cred()?;
    let peer = Peer {
        uid: credentials.uid(),
        pid: credentials.pid(),
    };
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    loop {
        let answer = match timeout(IDLE, next_line(&mut reader)).await {
            Ok(line) => match line? {
                Line::End => return Ok(()),
                Line::Whole(line) => match parse_request(&line) {
                    Ok(request) => call(calls, request, peer).await,
                    Err(refusal) => Answer::Refused(refusal),
                },
                Line::TooLong => {
                    let message = format!("the line is longer than {MAX_LINE_BYTES} bytes");
                    let answer = Answer::Refused(Refusal::new(Reason::TooLong, message));
                    stats.count_control(result(&answer));
                    // Where the next one begins is not known.
                    return write(&mut writer, answer).await;
                }
            },
            Err(_) => {
                stats.count_control(ControlResult::Silent);
                return Ok(());
            }
        };
        stats.count_control(result(&answer));
        write(&mut writer, answer).await?;
    }
}

enum Line {
    Whole(Vec<u8>),
    TooLong,
    End,
}

/// What comes up to the end of a line; an unfinished line at the end is none.
async fn next_line(reader: &mut BufReader<OwnedReadHalf>) -> io::Result<Line> {
    let mut line = Vec::new();
    let mut bounded = reader.take(MAX_LINE_BYTES as u64);
    bounded.read_until(b'\n', &mut line).await?;
    Ok(match line.last() {
        Some(b'\n') => Line::Whole(line),
        _ if line.len() >= MAX_LINE_BYTES => Line::TooLong,
        _ => Line::End,
    })
}

async fn call(calls: &mpsc::Sender<Call>, request: Request, peer: Peer) -> Answer {
    let (reply, answer) = oneshot::channel();
    let call = Call {
        request,
        peer,
        reply,
    };
    let ending = || {
        let message = "the agent is ending; nothing more is changed";
        Answer::Refused(Refusal::new(Reason::Failed, message))
    };
    if calls.send(call).await.is_err() {
        return ending();
    }
    answer.await.unwrap_or_else(|_| ending())
}

async fn write(writer: &mut OwnedWriteHalf, answer: Answer) -> io::Result<()> {
    let line = AnswerLine {
        version: VERSION,
        answer,
    };
    let mut line = serde_json::to_vec(&line)?;
    line.push(b'\n');
    timeout(IDLE, writer.write_all(&line)).await?
}

fn result(answer: &Answer) -> ControlResult {
    match answer {
        Answer::Refused(refusal) => match refusal.reason {
            Reason::Malformed => ControlResult::Malformed,
            Reason::TooLong => ControlResult::TooLong,
            Reason::Version => ControlResult::Version,
            _ => ControlResult::Refused,
        },
        _ => ControlResult::Done,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream as Client;

    use super::*;

    /// Serves on a thread of its own; every request is answered as refused, with who asked.
    fn with_server(test: impl FnOnce(&Path, &AgentStats)) {
        let directory = tempfile::tempdir().unwrap();
        let stats = Arc::new(AgentStats::default());
        let (ready, is_ready) = std::sync::mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let (path, served) = (directory.path().to_owned(), Arc::clone(&stats));
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let socket = Socket::bind(&path).unwrap();
                ready.send(()).unwrap();
                let (calls, mut called) = mpsc::channel::<Call>(1);
                tokio::spawn(socket.serve(calls, served));
                let answer = async {
                    while let Some(call) = called.recv().await {
                        let message = format!("uid {}", call.peer.uid);
                        let answer = Answer::Refused(Refusal::new(Reason::Conflict, message));
                        let _ = call.reply.send(answer);
                    }
                };
                tokio::select! { () = answer => {}, _ = stopped => {} }
            });
        });
        is_ready.recv().unwrap();
        test(directory.path(), &stats);
        drop(stop);
        thread.join().unwrap();
        assert!(!control_socket(directory.path()).exists(), "it is removed");
    }

    #[test]
    fn answers_come_line_by_line_and_each_is_counted() {
        with_server(|directory, stats| {
            let path = control_socket(directory);
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);

            let mut client = Client::connect(&path).unwrap();
            let show = "{\"version\":1,\"request\":{\"show\":{}}}\n";
            client
                .write_all(format!("{show}nonsense\n{show}").as_bytes())
                .unwrap();
            client.shutdown(std::net::Shutdown::Write).unwrap();
            let mut answers = String::new();
            client.read_to_string(&mut answers).unwrap();
            let lines: Vec<_> = answers.lines().collect();
            assert_eq!(lines.len(), 3, "{answers}");
            let who = format!("uid {}", nix::unistd::getuid());
            assert!(
                lines[0].contains(&who) && lines[2].contains(&who),
                "{answers}"
            );
            assert!(lines[1].contains("\"malformed\""), "{answers}");
            assert_eq!(stats.control(ControlResult::Refused), 2);
            assert_eq!(stats.control(ControlResult::Malformed), 1);
        });
    }

    #[test]
    fn a_line_without_end_is_cut_off() {
        with_server(|directory, stats| {
            let mut client = Client::connect(control_socket(directory)).unwrap();
            // The other end may hang up before all of it is written.
            let _ = client.write_all(&vec![b'x'; 4 * MAX_LINE_BYTES]);
            let mut answer = String::new();
            let _ = client.read_to_string(&mut answer);
            assert!(answer.contains("too_long") || answer.is_empty(), "{answer}");
            assert_eq!(stats.control(ControlResult::TooLong), 1);
            // Others are served still.
            let error = crate::ask(directory, Request::Show {}).unwrap_err();
            assert!(error.to_string().starts_with("uid "), "{error}");
        });
    }

    #[test]
    fn a_path_that_is_too_long_is_reported_as_such() {
        let directory = tempfile::tempdir().unwrap();
        let deep = directory.path().join("d".repeat(100));
        std::fs::create_dir(&deep).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let error = runtime.block_on(async { Socket::bind(&deep).unwrap_err() });
        assert!(
            error
                .to_string()
                .ends_with("its path is too long: give a shorter `name` or `runtime_dir`"),
            "{error}"
        );
    }
}
