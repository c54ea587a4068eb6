//! Bulk transfers by `iperf3`, and what its two ends say of them.

use std::{
    fs::File,
    io::{self, Seek as _},
    ops::Range,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use flow_report::Summary;
use flow_testbed::{namespace::Namespace, parallel::Direction};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

/// The port at which `iperf3` listens.
pub(crate) const PORT: u16 = 5201;
/// How long it may take to listen.
const LISTENING: Duration = Duration::from_secs(5);
/// How long it may take longer than it was told to: ends say goodbye to each other behind full queues.
const GOODBYE: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(20);
/// How often both ends note bytes and round trips.
const INTERVAL_S: f64 = 0.1;

/// Describes transfers that start together.
#[derive(Clone, Debug)]
pub(crate) struct Transfers<'a> {
    /// Who connects, and the address from which.
    pub(crate) client: (&'a Namespace, &'a str),
    /// Who listens, and at which address.
    pub(crate) server: (&'a Namespace, &'a str),
    pub(crate) flows: u32,
    pub(crate) direction: Direction,
    pub(crate) length: Duration,
    /// Whether the transfer's sockets speak MPTCP.
    pub(crate) multipath: bool,
}

/// Transfers under way; dropping them kills both programs.
#[derive(Debug)]
pub(crate) struct Bulk {
    server: End,
    client: End,
    direction: Direction,
    /// When they are over.
    deadline: Instant,
}

#[derive(Debug)]
struct End {
    child: Child,
    /// What it prints.
    output: File,
}

/// What the ends of transfers noted of a span of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Noted {
    /// Payload that arrived, all transfers together.
    pub(crate) goodput_mbit: f64,
    /// Half of the round trips that senders noted, of each transfer ten times a second, were shorter.
    pub(crate) rtt_p50_ms: f64,
    /// The same for 99 of a hundred.
    pub(crate) rtt_p99_ms: f64,
}

impl Drop for End {
    fn drop(&mut self) {
        // Both fail only when it has ended and been waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Transfers<'_> {
    /// Starts both ends; the one that listens comes first.
    pub(crate) fn start(&self, cancel: &CancellationToken) -> Result<Bulk> {
        let mut server = self.command(self.server.0);
        let server = End::start(server.args(["-s", "-1"]))?;
        self.wait_until_it_listens(cancel)?;
        let mut client = self.command(self.client.0);
        client.args(["-c", self.server.1, "-B", self.client.1]);
        client.args(["-P", &self.flows.to_string()]);
        client.args(["-t", &self.length.as_secs_f64().ceil().to_string()]);
        if self.direction == Direction::Down {
            client.arg("-R");
        }
        Ok(Bulk {
            server,
            client: End::start(&mut client)?,
            direction: self.direction,
            deadline: Instant::now() + self.length + GOODBYE,
        })
    }

    fn command(&self, host: &Namespace) -> Command {
        let mut command = if self.multipath {
            let mut command = host.command("mptcpize");
            command.args(["run", "iperf3"]);
            command
        } else {
            host.command("iperf3")
        };
        command.args(["--json", "-i", &INTERVAL_S.to_string()]);
        command.args(["-p", &PORT.to_string()]);
        command
    }

    fn wait_until_it_listens(&self, cancel: &CancellationToken) -> Result<()> {
        let since = Instant::now();
        let listeners = format!("ss -Hltn sport = {PORT}");
        // MPTCP's sockets are listed apart.
        let multipath = format!("ss -HlnM sport = {PORT}");
        let listeners = if self.multipath { multipath } else { listeners };
        while self.server.0.run(&listeners)?.trim().is_empty() {
            if cancel.is_cancelled() {
                bail!("cancelled");
            }
            if since.elapsed() > LISTENING {
                bail!("iperf3 does not listen after {LISTENING:?}");
            }
            thread::sleep(POLL);
        }
        Ok(())
    }
}

impl End {
    fn start(command: &mut Command) -> Result<Self> {
        // A pipe would have to be emptied meanwhile.
        let output = tempfile::tempfile().context("cannot make a temporary file")?;
        let stdout = output.try_clone().context("cannot share a file")?;
        let child = command.stdin(Stdio::null()).stdout(stdout);
        let child = child.stderr(Stdio::null()).spawn();
        let child = child.context("cannot start iperf3")?;
        Ok(Self { child, output })
    }

    fn report(&mut self) -> Result<Report> {
        self.output.rewind().context("cannot read what it said")?;
        let text = io::read_to_string(&self.output).context("cannot read what it said")?;
        Report::parse(&text)
    }
}

impl Bulk {
    /// Waits for both ends; what they noted of a span of time.
    pub(crate) fn end(
        mut self,
        span: Range<Duration>,
        cancel: &CancellationToken,
    ) -> Result<Noted> {
        for end in [&mut self.client, &mut self.server] {
            while end.child.try_wait().context("cannot wait")?.is_none() {
                if cancel.is_cancelled() {
                    bail!("cancelled");
                }
                if Instant::now() > self.deadline {
                    bail!("iperf3 did not end");
                }
                thread::sleep(POLL);
            }
        }
        let (client, server) = (self.client.report()?, self.server.report()?);
        let (sender, receiver) = match self.direction {
            Direction::Up => (client, server),
            Direction::Down => (server, client),
        };
        noted(&sender, &receiver, span)
    }
}

/// What of `iperf3 --json` is needed.
#[derive(Debug, Deserialize)]
struct Report {
    #[serde(default)]
    intervals: Vec<Interval>,
    error: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Interval {
    streams: Vec<Stream>,
    sum: Sum,
}

#[derive(Debug, Deserialize)]
struct Stream {
    /// The smoothed round trip, in us; where it receives there is none.
    #[serde(default)]
    rtt: u64,
}

#[derive(Debug, Deserialize)]
struct Sum {
    start: f64,
    seconds: f64,
    bytes: u64,
}

impl Report {
    fn parse(text: &str) -> Result<Self> {
        let report: Self = serde_json::from_str(text)
            .with_context(|| format!("cannot understand what iperf3 said: {text:.300}"))?;
        match &report.error {
            // The other end has gone first, with everything measured.
            Some(error) if report.intervals.is_empty() => bail!("iperf3 measured nothing: {error}"),
            _ => Ok(report),
        }
    }

    /// The intervals whose middle lies in a span.
    fn within(&self, span: &Range<Duration>) -> impl Iterator<Item = &Interval> {
        let span = span.start.as_secs_f64()..span.end.as_secs_f64();
        let intervals = self.intervals.iter();
        intervals.filter(move |it| span.contains(&(it.sum.start + it.sum.seconds / 2.0)))
    }
}

fn noted(sender: &Report, receiver: &Report, span: Range<Duration>) -> Result<Noted> {
    let (mut bytes, mut seconds) = (0, 0.0);
    for interval in receiver.within(&span) {
        bytes += interval.sum.bytes;
        seconds += interval.sum.seconds;
    }
    let rtts = sender.within(&span).flat_map(|it| &it.streams);
    let rtts = Summary::new(rtts.filter(|it| it.rtt > 0).map(|it| it.rtt as f64 / 1e3));
    if seconds == 0.0 || rtts.count() == 0 {
        bail!("iperf3 noted nothing between {span:?}");
    }
    Ok(Noted {
        goodput_mbit: bytes as f64 * 8.0 / 1e6 / seconds,
        rtt_p50_ms: rtts.percentile(50.0),
        rtt_p99_ms: rtts.percentile(99.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An interval that `iperf3` 3.12 prints, with what is not needed left out in part.
    fn interval(start: f64, bytes: u64, rtts: &[u64]) -> String {
        let streams: Vec<_> = rtts
            .iter()
            .map(|rtt| format!(r#"{{"socket":5,"start":{start},"bytes":9,"snd_cwnd":1,"rtt":{rtt},"sender":true}}"#))
            .collect();
        format!(
            r#"{{"streams":[{}],"sum":{{"start":{start},"end":{},"seconds":0.1,"bytes":{bytes},"omitted":false}}}}"#,
            streams.join(","),
            start + 0.1
        )
    }

    fn report(intervals: &[String]) -> Report {
        let text = format!(
            r#"{{"start":{{}},"intervals":[{}],"end":{{}}}}"#,
            intervals.join(",")
        );
        Report::parse(&text).expect("as it prints")
    }

    fn span(from_ms: u64, to_ms: u64) -> Range<Duration> {
        Duration::from_millis(from_ms)..Duration::from_millis(to_ms)
    }

    #[test]
    fn goodput_is_the_receivers_and_round_trips_are_the_senders_of_the_span_alone() {
        let sender = report(&[
            interval(0.0, 900_000, &[1_000, 1_000]),
            interval(0.1, 900_000, &[20_000, 40_000]),
            interval(0.2, 900_000, &[30_000, 30_000]),
            interval(0.3, 900_000, &[90_000, 90_000]),
        ]);
        let receiver = report(&[
            interval(0.0, 1, &[]),
            interval(0.1, 250_000, &[0, 0]),
            interval(0.2, 750_000, &[0, 0]),
            interval(0.3, 1, &[]),
        ]);
        let noted = noted(&sender, &receiver, span(100, 300)).expect("there is something");
        // A megabyte in 0.2 s.
        assert!((noted.goodput_mbit - 40.0).abs() < 1e-9, "{noted:?}");
        assert_eq!((noted.rtt_p50_ms, noted.rtt_p99_ms), (30.0, 40.0));
    }

    #[test]
    fn span_of_which_nothing_was_noted_is_an_error() {
        let some = report(&[interval(0.0, 1, &[5])]);
        assert!(noted(&some, &some, span(100, 300)).is_err());
        let silent = report(&[interval(0.1, 1, &[0])]);
        assert!(noted(&silent, &silent, span(100, 300)).is_err());
    }

    #[test]
    fn error_without_intervals_is_said() {
        let error =
            Report::parse(r#"{"start":{},"intervals":[],"end":{},"error":"unable to connect"}"#);
        let error = error.expect_err("nothing was measured").to_string();
        assert!(error.contains("unable to connect"), "{error}");
        assert!(Report::parse("iperf3: parameter error").is_err());
    }
}
