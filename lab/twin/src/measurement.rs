//! One run in the testbed: a policy, the flows of a seed, and a recording of them where that is asked for.

use std::{
    fs::{self, File},
    io::Write as _,
    path::Path,
    process::{Child, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use flow_report::Summary;
use flow_testbed::{
    namespace::{Counters, NamespaceError},
    scheme::Applied,
    timed::{Bounds, Meter},
    topology::Topology,
    traffic,
    workload::{Class, Schedule},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::NamedTempFile;
use tokio_util::sync::CancellationToken;

use crate::{network, policy::Policy};

/// How long flows under way at the end are waited for.
const DRAIN: Duration = Duration::from_secs(10);
/// How long the recorder may take to begin, and to write its file.
const RECORDER_BOUND: Duration = Duration::from_secs(15);
/// Authenticates probes of the tunnels; 32 bytes.
const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const POLL: Duration = Duration::from_millis(20);

/// Results of a run.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// Completion times in ms, from `connect` to the last byte.
    pub(crate) short_ms: Summary,
    pub(crate) long_ms: Summary,
    /// Flows that had not completed at the end.
    pub(crate) unfinished: u64,
    /// Segments that hosts sent again, and their retransmission timeouts.
    pub(crate) retransmitted_segments: u64,
    pub(crate) timeouts: u64,
    /// What the machine lacked, so that this may not have measured the uplinks.
    pub(crate) objection: Option<String>,
}

/// Runs the flows of a schedule under a policy, and records them into a file if one is given. Call it from a
/// thread that lasts as long: processes end with the thread that started them.
pub(crate) fn run(
    policy: Policy,
    schedule: Schedule,
    recording: Option<&Path>,
    splitter: &Path,
    cancel: &CancellationToken,
) -> Result<Measured> {
    let topology = Topology::build(&network::topology())?;
    let key = key_file()?;
    let scheme = policy.scheme(splitter, key.path());
    let applied = scheme.apply(&topology, cancel)?;
    let recorder = recording
        .map(|file| Recorder::start(&applied, splitter, file, cancel))
        .transpose()?;
    let before = tcp_counters(&topology)?;
    let meter = Meter::start();
    let schedule = Arc::new(schedule);
    let outcomes = traffic::run(&topology, &schedule, DRAIN, cancel, &mut |_| {})?;
    let strain = meter.end();
    let after = tcp_counters(&topology)?;
    if let Some(recorder) = recorder {
        recorder.end()?;
    }
    applied.remove()?;
    let of = |class| {
        let some = outcomes.iter().filter(move |it| it.class == class);
        Summary::new(some.filter_map(|it| Some(it.completion?.as_secs_f64() * 1e3)))
    };
    let rise = |name: &str| -> u64 {
        let hosts = after.iter().zip(&before);
        hosts.map(|(after, before)| after.since(before, name)).sum()
    };
    let unfinished = outcomes.iter().filter(|it| it.completion.is_none());
    Ok(Measured {
        short_ms: of(Class::Short),
        long_ms: of(Class::Long),
        unfinished: unfinished.count() as u64,
        retransmitted_segments: rise("TcpRetransSegs"),
        timeouts: rise("TcpExtTCPTimeouts"),
        objection: strain.exceeded(&Bounds::COMPARISON),
    })
}

/// A file with what both borders' daemons share, which nobody else may read.
fn key_file() -> Result<NamedTempFile> {
    let mut file = NamedTempFile::new().context("cannot make a temporary file")?;
    writeln!(file, "{KEY}").context("cannot write a temporary file")?;
    Ok(file)
}

/// Counters of all hosts' TCP.
fn tcp_counters(topology: &Topology) -> Result<Vec<Counters>, NamespaceError> {
    let hosts = topology.hosts().into_iter();
    hosts.map(|host| host.namespace.counters()).collect()
}

/// `splitter record` at the border of site A; dropping it kills it.
#[derive(Debug)]
struct Recorder {
    child: Child,
    log: NamedTempFile,
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // Both fail only when it has ended and been waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Recorder {
    /// Starts it, and returns when it records.
    fn start(
        applied: &Applied,
        splitter: &Path,
        file: &Path,
        cancel: &CancellationToken,
    ) -> Result<Self> {
        let command = applied.command(0, splitter);
        let mut command = command.context("there is nothing to record without a splitter")?;
        let log = NamedTempFile::new().context("cannot make a temporary file")?;
        let output = || File::options().append(true).open(log.path());
        let child = command
            .args(["record", "--force", "--output"])
            .arg(file)
            .stdin(Stdio::null())
            .stdout(output()?)
            .stderr(output()?)
            .spawn()
            .context("cannot start nsenter")?;
        let mut recorder = Self { child, log };
        let since = Instant::now();
        while !recorder.said()?.contains("recording flows") {
            if cancel.is_cancelled() {
                bail!("cancelled");
            }
            let ended = recorder.child.try_wait()?;
            if ended.is_some() || since.elapsed() > RECORDER_BOUND {
                bail!("`splitter record` does not record: {}", recorder.said()?);
            }
            thread::sleep(POLL);
        }
        Ok(recorder)
    }

    /// Has it write its file, and waits for that.
    fn end(mut self) -> Result<()> {
        // It has not been waited for, so the id is still its own.
        let id = Pid::from_raw(self.child.id().cast_signed());
        kill(id, Signal::SIGINT).context("cannot end `splitter record`")?;
        let since = Instant::now();
        while since.elapsed() < RECORDER_BOUND {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(_) => break,
                None => thread::sleep(POLL),
            }
        }
        bail!("`splitter record` wrote no file: {}", self.said()?)
    }

    fn said(&self) -> Result<String> {
        let said = fs::read(self.log.path()).context("cannot read what it said")?;
        Ok(String::from_utf8_lossy(&said).into_owned())
    }
}
