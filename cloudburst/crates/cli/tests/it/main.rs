//! The command as a user meets it: what it prints and how it exits.

mod figures;
mod files;
mod keygen;
mod log;
#[cfg(target_os = "linux")]
mod newcomer;
mod otlp;
mod pages;
mod ping;
mod refusals;
#[path = "../../../../../crates/cli/tests/support/transcript.rs"]
mod transcript;
mod wording;

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    process::{Child, ChildStderr, Command, Output, Stdio},
    time::{Duration, Instant},
};

use flow_telemetry::docs::{self, Family};

const BINARY: &str = env!("CARGO_BIN_EXE_cloudburst");
const METRICS_PAGE: &str = include_str!("../../../../../docs/src/reference/cloudburst-metrics.md");
const COMMANDS_PAGE: &str =
    include_str!("../../../../../docs/src/reference/cloudburst-commands.md");

/// Runs a command; without a key, if none is named.
fn cloudburst(arguments: &[&str]) -> Output {
    as_given(&[arguments, keyless(arguments)].concat())
}

fn as_given(arguments: &[&str]) -> Output {
    Command::new(BINARY).args(arguments).output().unwrap()
}

/// The option by which a command does without a key, which has to be asked for.
fn keyless(arguments: &[&str]) -> &'static [&'static str] {
    const WITH_KEYS: [&str; 6] = ["serve", "send", "recv", "ping", "perf", "paths"];
    let takes_keys = arguments.first().is_some_and(|it| WITH_KEYS.contains(it));
    let is_said = arguments
        .iter()
        .any(|it| it.starts_with("--help") || *it == "--key-file");
    if takes_keys && !is_said {
        &["--insecure-no-key"]
    } else {
        &[]
    }
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A process that logs where it is to be found. Killed on drop.
struct Listening {
    child: Child,
    log: BufReader<ChildStderr>,
    address: SocketAddr,
    metrics: Option<SocketAddr>,
}

impl Listening {
    /// Starts a command at a port that the system chooses, and waits until it listens.
    fn start(arguments: &[&str]) -> Self {
        Self::start_with(arguments, &[])
    }

    /// Starts a command with variables of the environment, and waits until it listens.
    fn start_with(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut child = Command::new(BINARY)
            .args(arguments)
            .args(keyless(arguments))
            .args(["--bind", "127.0.0.1", "--ports", "any:1"])
            .env("RUST_LOG", "info")
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let mut this = Self {
            child,
            log,
            address: SocketAddr::from(([0; 4], 0)),
            metrics: None,
        };
        loop {
            let mut line = String::new();
            assert_ne!(this.log.read_line(&mut line).unwrap(), 0, "it ended");
            let after = |key| {
                let (_, rest) = line.split_once(key)?;
                let end = rest.find([']', ' ', '\n']).unwrap_or(rest.len());
                rest[..end].parse().ok()
            };
            this.metrics = this.metrics.or(after("address="));
            // As text, or as JSON.
            if let Some(address) = after("addresses=[").or_else(|| after("addresses\":\"[")) {
                this.address = address;
                return this;
            }
        }
    }

    fn address(&self) -> String {
        self.address.to_string()
    }

    /// Ctrl-C, and how it ended.
    fn interrupt(&mut self) -> Option<i32> {
        let id = i32::try_from(self.child.id()).unwrap();
        // SAFETY: only sends a signal, to a child that has not been waited for.
        assert_eq!(unsafe { libc::kill(id, libc::SIGINT) }, 0);
        self.wait()
    }

    fn wait(&mut self) -> Option<i32> {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn scrape(&self) -> Vec<Family> {
        docs::parse_exposition(&self.get("/metrics")).expect("it is OpenMetrics")
    }

    /// What the endpoint for metrics answers.
    fn get(&self, path: &str) -> String {
        self.get_as(path, "*/*")
    }

    /// Returns the answer to those who take this type of content.
    fn get_as(&self, path: &str, accept: &str) -> String {
        let mut stream = TcpStream::connect(self.metrics.expect("it serves metrics")).unwrap();
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        body.to_owned()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
