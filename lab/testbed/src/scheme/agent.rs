//! The splitter's daemon on one border.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    net::TcpStream,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::{
    Handovers, SchemeError, SplitterScheme, State,
    configuration::{METRICS, configuration},
};
use crate::{
    namespace::{Isolation, Namespace},
    topology::Border,
    wait::poll,
};

/// The kernel detaches programs a moment after who held their links has gone.
const FREED_WITHIN: Duration = Duration::from_secs(1);
/// How long it may take to attach its programs.
const READY_BOUND: Duration = Duration::from_secs(15);
/// How long it may take to remove what it has set up.
const STOP_BOUND: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);
/// How much of its log an error shows.
const LOG_LINES: usize = 12;

/// The splitter's daemon, running on a border; dropping it kills it.
#[derive(Debug)]
pub struct Agent {
    border: Namespace,
    /// What was there before it.
    before: State,
    child: Child,
    directory: TempDir,
}

impl Agent {
    /// Starts the daemon; it is not ready yet.
    pub(super) fn start(
        border: &Border,
        rates_mbit: [u32; 2],
        scheme: &SplitterScheme,
    ) -> Result<Self, SchemeError> {
        Self::launch(&border.namespace, &scheme.binary, |directory| {
            configuration(directory, border, rates_mbit, scheme)
        })
    }

    /// Starts the daemon of the program `binary` in a border's namespace, with the text of its configuration; it is
    /// not ready yet. `configuration` is given a directory of the daemon's own, in which `run` and `bpf` are for
    /// `runtime_dir` and `bpffs`; metrics have to be served at [`METRICS`].
    ///
    /// # Errors
    /// [`SchemeError::Prepare`], [`SchemeError::Start`], or [`SchemeError::State`] where what is there already cannot be
    /// read.
    pub fn launch(
        border: &Namespace,
        binary: &Path,
        configuration: impl FnOnce(&Path) -> String,
    ) -> Result<Self, SchemeError> {
        Self::launch_command(border, (binary, &["run"]), configuration)
    }

    /// Starts another command of the program that runs until it is ended, such as `fabric run`, as
    /// [`launch`](Self::launch) does the daemon.
    ///
    /// # Errors
    /// As [`launch`](Self::launch).
    pub fn launch_command(
        border: &Namespace,
        (binary, command): (&Path, &[&str]),
        configuration: impl FnOnce(&Path) -> String,
    ) -> Result<Self, SchemeError> {
        let before = State::read(border)?;
        let directory = TempDir::with_prefix("splitter-testbed-")
            .map_err(prepare_error(&std::env::temp_dir()))?;
        let path = |name: &str| directory.path().join(name);
        for name in ["bpf", "run"] {
            fs::create_dir(path(name)).map_err(prepare_error(&path(name)))?;
        }
        let config = path("splitter.toml");
        let text = configuration(directory.path());
        fs::write(&config, text).map_err(prepare_error(&config))?;
        let log = File::create(path("log")).map_err(prepare_error(&path("log")))?;
        let also_log = log.try_clone().map_err(prepare_error(&path("log")))?;

        let start_error = |source| SchemeError::Start {
            binary: binary.to_owned(),
            border: border.name().to_owned(),
            source,
        };
        let isolation = Isolation::with_bpffs(&path("bpf")).map_err(start_error)?;
        let child = border
            .command_isolated(&binary.to_string_lossy(), &isolation)
            .arg("--config")
            .arg(&config)
            .args(command)
            // Ctrl-C at the terminal is for us, who then end the daemon in order.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(also_log)
            .spawn()
            .map_err(start_error)?;
        Ok(Self {
            border: border.clone(),
            before,
            child,
            directory,
        })
    }

    /// A command of the daemon's program about this instance, such as `record`: where the daemon runs, with its
    /// BPF file system and its configuration. It ends with the thread that starts it, and needs `nsenter`.
    pub(super) fn command(&self, binary: &Path) -> Command {
        let mut command = self.border.command("nsenter");
        command
            .arg(format!("--mount=/proc/{}/ns/mnt", self.child.id()))
            .arg(binary)
            .arg("--config")
            .arg(self.directory.path().join("splitter.toml"))
            // Ctrl-C at the terminal is for us.
            .process_group(0);
        command
    }

    /// Runs another command of the daemon's program where the daemon runs, with its BPF file system and a configuration
    /// that is kept beside the daemon's, in a file of that name; `text` is given the daemon's directory.
    ///
    /// # Errors
    /// [`SchemeError::Prepare`], [`SchemeError::Start`], or [`SchemeError::Agent`] if the command fails.
    pub fn run_beside(
        &self,
        (binary, command): (&Path, &[&str]),
        file: &str,
        text: impl FnOnce(&Path) -> String,
    ) -> Result<(), SchemeError> {
        let path = self.directory.path().join(file);
        fs::write(&path, text(self.directory.path())).map_err(prepare_error(&path))?;
        let output = self
            .border
            .command("nsenter")
            .arg(format!("--mount=/proc/{}/ns/mnt", self.child.id()))
            .arg(binary)
            .arg("--config")
            .arg(&path)
            .args(command)
            .stdin(Stdio::null())
            .output()
            .map_err(|source| SchemeError::Start {
                binary: binary.to_owned(),
                border: self.border.name().to_owned(),
                source,
            })?;
        match output.status.success() {
            true => Ok(()),
            false => Err(SchemeError::Agent {
                border: self.border.name().to_owned(),
                what: format!("did not do `{}`", command.join(" ")),
                log: String::from_utf8_lossy(&output.stderr).into_owned(),
            }),
        }
    }

    /// Waits until the daemon has logged a line that contains each of `words`.
    ///
    /// # Errors
    /// [`SchemeError::Agent`] if it has not in time, [`SchemeError::Cancelled`] soon after `cancel`.
    pub fn wait_until_logged(
        &self,
        words: &[&str],
        cancel: &CancellationToken,
    ) -> Result<(), SchemeError> {
        let deadline = Instant::now() + READY_BOUND;
        loop {
            let log = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
            let has_all = |line: &str| words.iter().all(|it| line.contains(it));
            if log.lines().any(has_all) {
                return Ok(());
            }
            if cancel.is_cancelled() {
                return Err(SchemeError::Cancelled);
            }
            if Instant::now() > deadline {
                return Err(self.error(&format!("did not log {words:?} within {READY_BOUND:?}")));
            }
            thread::sleep(POLL);
        }
    }

    /// What it has counted of flows that became long; `None` when they cannot be read.
    pub(super) fn handovers(&self) -> Option<Handovers> {
        let exposition = self.border.enter(|| fetch("/metrics")).ok()?.ok()?;
        Some(Handovers {
            became_long: counter(&exposition, "splitter_flows_long_total")?,
            drained: counter(&exposition, "splitter_handovers_total{reason=\"drained\"}")?,
            at_max_wait: counter(&exposition, "splitter_handovers_total{reason=\"max_wait\"}")?,
            stayed: counter(&exposition, "splitter_handovers_total{reason=\"stayed\"}")?,
            stayed_at_max_wait: counter(
                &exposition,
                "splitter_handovers_total{reason=\"stayed_at_max_wait\"}",
            )?,
            after_pause: counter(&exposition, "splitter_handovers_total{reason=\"paused\"}")?,
            dropped_packets: counter(
                &exposition,
                "splitter_dropped_packets_total{reason=\"hand_over\"}",
            )?,
        })
    }

    /// Reads how often its models of queues were held against these, and by how many seconds they were wrong then
    /// in sum, of all tunnels; `None` where that cannot be read.
    pub fn model_error(&self) -> Option<(f64, f64)> {
        let exposition = self.border.enter(|| fetch("/metrics")).ok()?.ok()?;
        Some((
            sum(&exposition, "splitter_tunnel_model_looks_total"),
            sum(&exposition, "splitter_tunnel_model_error_seconds_total"),
        ))
    }

    /// The bytes of memory that the daemon has for itself, without files that the system may drop and read again;
    /// `None` where that cannot be read.
    pub fn own_bytes(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        resident_bytes(&status)
    }

    /// Waits until the daemon says that its programs are at work.
    ///
    /// # Errors
    /// [`SchemeError::Agent`] if it ends or is not ready in time, [`SchemeError::Cancelled`] soon after `cancel`.
    pub fn wait_until_ready(&mut self, cancel: &CancellationToken) -> Result<(), SchemeError> {
        let deadline = Instant::now() + READY_BOUND;
        while self.border.enter(is_ready)?.is_err() {
            if cancel.is_cancelled() {
                return Err(SchemeError::Cancelled);
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(self.error(&format!("ended with {status} before it was ready")));
            }
            if Instant::now() > deadline {
                return Err(self.error(&format!("was not ready after {READY_BOUND:?}")));
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Ends the daemon as a service manager would and checks what is left of it.
    ///
    /// # Errors
    /// [`SchemeError::Agent`] if it did not end well, [`SchemeError::Remains`] if it left something.
    pub fn stop(mut self) -> Result<(), SchemeError> {
        if let Ok(Some(status)) = self.child.try_wait() {
            return Err(self.error(&format!("ended with {status} during the run")));
        }
        // It has not been waited for, so the id is still its own.
        let id = Pid::from_raw(self.child.id().cast_signed());
        kill(id, Signal::SIGTERM)
            .map_err(|errno| self.error(&format!("cannot be ended: {errno}")))?;
        match self.wait(STOP_BOUND) {
            Ok(Some(status)) if status.success() => {}
            Ok(Some(status)) => return Err(self.error(&format!("ended with {status}"))),
            Ok(None) => return Err(self.error(&format!("did not end within {STOP_BOUND:?}"))),
            Err(error) => return Err(self.error(&format!("cannot be waited for: {error}"))),
        }
        let remains = || {
            let now = State::read(&self.border)?;
            Ok::<_, SchemeError>(now.since(&self.before).describe())
        };
        poll(FREED_WITHIN, || matches!(remains(), Ok(None)).then_some(()));
        match remains()? {
            None => Ok(()),
            Some(remains) => Err(SchemeError::Remains {
                border: self.border.name().to_owned(),
                remains,
            }),
        }
    }

    fn wait(&mut self, bound: Duration) -> io::Result<Option<ExitStatus>> {
        poll(bound, || self.child.try_wait().transpose()).transpose()
    }

    fn error(&self, what: &str) -> SchemeError {
        let log = fs::read(self.directory.path().join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        SchemeError::Agent {
            border: self.border.name().to_owned(),
            what: what.to_owned(),
            log: lines[lines.len().saturating_sub(LOG_LINES)..].join("\n"),
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Both fail only when it has ended and been waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks for `/ready` from inside the daemon's namespace.
fn is_ready() -> io::Result<()> {
    fetch("/ready").map(|_| ())
}

/// The body of a page of the daemon's endpoint, from inside its namespace.
fn fetch(path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&METRICS.into(), Duration::from_secs(1))?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(1 << 20).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.split_whitespace().nth(1) == Some("200") => Ok(body.to_owned()),
        _ => Err(io::Error::other(answer.into_owned())),
    }
}

/// The value of a counter in an exposition, named with its labels.
fn counter(exposition: &str, name: &str) -> Option<u64> {
    let value = exposition
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    value.parse().ok()
}

/// The sum of the counters of a family, whatever their labels.
fn sum(exposition: &str, family: &str) -> f64 {
    let values = exposition.lines().filter_map(|line| {
        let rest = line.strip_prefix(family)?;
        let labels = rest.strip_prefix('{')?;
        labels.rsplit_once(' ')?.1.parse::<f64>().ok()
    });
    values.sum()
}

/// The memory of a process that is no file's, as the kernel tells it.
fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|it| it.strip_prefix("RssAnon:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1_024)
}

fn prepare_error(path: &Path) -> impl FnOnce(io::Error) -> SchemeError + use<> {
    let path = path.to_owned();
    move |source| SchemeError::Prepare { path, source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::{require, require::Requirement::*, topology::*};

    fn scheme(binary: &str, configuration: toml::Table) -> SplitterScheme {
        let attach = "native".to_owned();
        SplitterScheme {
            binary: binary.into(),
            threshold: 45,
            attach,
            states_rates: true,
            configuration,
        }
    }

    #[test]
    fn program_that_ends_at_once_is_an_error_with_its_words() {
        require!(
            Root,
            Program("ip"),
            Program("tc"),
            Program("ethtool"),
            FileSystem("bpf")
        );
        let topology = Topology::build(&TopologyOptions::default()).expect("we are root");
        let border = &topology.borders[0];
        // `ls` does not know the arguments and says so.
        let scheme = scheme("ls", toml::Table::new());
        let mut agent = Agent::start(border, [100, 100], &scheme).expect("ls is there");
        let error = agent
            .wait_until_ready(&CancellationToken::new())
            .expect_err("never ready");
        let text = error.to_string();
        assert!(
            text.contains("before it was ready") && text.contains("--config"),
            "{text}"
        );
    }

    /// Serves `/ready` and ends on SIGTERM, with a rule left behind when it is to.
    const PRETENDER: &str = r#"#!/usr/bin/env python3
import http.server, os, signal, subprocess, sys
text = open(sys.argv[2]).read()
assert sys.argv[3] == "run" and os.path.ismount(text.split('bpffs = "')[1].split('"')[0])
subprocess.run(["ip", "rule", "add", "priority", "1000", "table", "10401"], check=True)
def end(*_):
    if "leave" not in text:
        subprocess.run(["ip", "rule", "del", "priority", "1000"], check=True)
    os._exit(0)
signal.signal(signal.SIGTERM, end)
class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/ready" else 404)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", 9461), Ready).serve_forever()
"#;

    fn pretend(configuration: &str) -> Result<(), SchemeError> {
        let topology = Topology::build(&TopologyOptions::default())?;
        // A rule of somebody else, which stays.
        let border = &topology.borders[0].namespace;
        border.run("ip rule add priority 900 fwmark 1 table main")?;
        let directory = TempDir::new().expect("a directory");
        let program = directory.path().join("pretender");
        fs::write(&program, PRETENDER).expect("a file");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it is ours");
        let configuration = configuration.parse().expect("TOML");
        let scheme = scheme(&program.to_string_lossy(), configuration);
        let mut agent = Agent::start(&topology.borders[0], [100, 100], &scheme)?;
        agent.wait_until_ready(&CancellationToken::new())?;
        agent.stop()
    }

    #[test]
    fn daemon_is_awaited_and_ended() {
        require!(
            Root,
            Program("ip"),
            Program("tc"),
            Program("ethtool"),
            Program("python3")
        );
        require!(FileSystem("bpf"));
        pretend("").expect("it starts, is ready and ends");
    }

    #[test]
    fn sum_is_of_all_tunnels_and_of_no_other_family() {
        let text = "# HELP a_total A.\na_total{device=\"x y\"} 2\na_total{device=\"z\"} 0.5\na_total_more{} 9\n";
        assert_eq!(sum(text, "a_total"), 2.5);
        assert_eq!(sum(text, "b_total"), 0.0);
    }

    #[test]
    fn memory_is_what_no_file_has() {
        let text = "VmRSS:\t   20404 kB\nRssAnon:\t    8188 kB\nRssFile:\t   12216 kB\n";
        assert_eq!(resident_bytes(text), Some(8_188 << 10));
        assert_eq!(resident_bytes("VmRSS:\t20404 kB\n"), None);
    }

    #[test]
    fn remains_of_a_daemon_are_found() {
        require!(
            Root,
            Program("ip"),
            Program("tc"),
            Program("ethtool"),
            Program("python3")
        );
        require!(FileSystem("bpf"));
        let error = pretend("[leave]").expect_err("a rule is left");
        assert!(
            error
                .to_string()
                .contains("left behind: rule 1000 for table 10401"),
            "{error}"
        );
    }
}
