//! `cloudburst perf`: messages at a rate, whatever becomes of them.

use std::{
    collections::BTreeMap,
    error::Error,
    time::{Duration, Instant},
};

use clap::{CommandFactory as _, error::ErrorKind};
use cloudburst::{
    Endpoint, EndpointStatistics, PeerId, RequestError, SendError, SendOptions, TransportStatistics,
};
use flow_cli::ExitCode;
use flow_cli::{Signals, print};
use flow_telemetry::otlp::Recorder;
use indicatif::ProgressBar;
use serde_json::{Value, json};
use tokio::{sync::mpsc, task::JoinSet};

use super::{CLOSE_WITHIN, warn_of_silence};
use crate::{
    cli::{Cli, PerfArgs},
    metrics,
    progress::{Output, PathTotals, bits_per_s, busy_to_json, busy_to_text, in_seconds, seconds},
    summary::{Times, millis, ratio, words},
    values::Bytes,
};

/// Messages that may wait at a time; more are not offered, and counted.
const MAX_WAITING: usize = 65_536;
/// Messages that may be offered in a second: a thread says when each is due.
const MAX_MESSAGES_PER_S: f64 = 1e6;
/// Messages that are due and have not been looked at.
const MAX_DUE: usize = 4_096;
/// How long the last messages are waited for.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a reply is waited for.
const REPLY_WITHIN: Duration = Duration::from_secs(10);

pub(crate) async fn run(
    args: &PerfArgs,
    output: Output,
    recorder: &Recorder,
) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::listen()?;
    check(args);
    let (endpoint, peer) = args.endpoint.connect(&args.begin.ports, &args.peer).await?;
    let export = metrics::serve(&endpoint, &args.telemetry, recorder)?;
    let mut run = Run::new(output, args.duration.0);
    let start = Instant::now();
    tokio::select! {
        offered = run.offer(&endpoint, peer, args) => offered?,
        _ = signals.next() => {}
    }
    let offered_for = start.elapsed();
    let unfinished = run.finish().await;
    let statistics = endpoint.statistics().await?;
    run.bar.finish_and_clear();
    let result = Outcome {
        args,
        offered_for,
        unfinished,
        run: &run,
        statistics,
    };
    result.report(output)?;
    export.finish().await;
    endpoint.close(CLOSE_WITHIN).await;
    Ok(if run.total.times.count() > 0 {
        ExitCode::Ok
    } else {
        warn_of_silence(&args.peer.peer);
        ExitCode::Failed
    })
}

/// A load that no thread offers is a mistake on the command line.
fn check(args: &PerfArgs) {
    let sum: usize = args.size.iter().map(|size| size.0).sum();
    let messages_per_s = args.load.0 as f64 / 8.0 * args.size.len() as f64 / sum as f64;
    if messages_per_s > MAX_MESSAGES_PER_S {
        let reported = format!(
            "{} in messages of this --size is {messages_per_s:.0} messages a second; at most \
             {MAX_MESSAGES_PER_S:.0} can be offered: lower --load or raise --size",
            args.load
        );
        Cli::command()
            .error(ErrorKind::ValueValidation, reported)
            .exit();
    }
}

/// One message's end.
struct Done {
    bytes: usize,
    /// From when it was due.
    result: Result<Duration, String>,
}

/// Messages of a second, or of all.
struct Tally {
    offered: u64,
    delivered_bytes: u64,
    times: Times,
    failed: u64,
}

impl Tally {
    fn new() -> Self {
        Self {
            offered: 0,
            delivered_bytes: 0,
            times: Times::new(),
            failed: 0,
        }
    }

    /// What programs read of a second.
    fn to_json(&self, elapsed: Duration, since_last: Duration) -> Value {
        let percentile = |percent| millis(self.times.percentile(percent));
        let times = json!({ "p50": percentile(50.0), "p99": percentile(99.0) });
        json!({
            "seconds": in_seconds(elapsed),
            "offered": self.offered,
            "delivered": self.times.count(),
            "failed": self.failed,
            "goodput_bits_per_s": bits_per_s(self.delivered_bytes, since_last),
            "completion_ms": (self.times.count() > 0).then_some(times),
        })
    }
}

struct Run {
    total: Tally,
    second: Tally,
    not_offered: u64,
    reasons: BTreeMap<String, u64>,
    waiting: JoinSet<Done>,
    output: Output,
    bar: ProgressBar,
    /// Answers of the peer that it has no room, until the last line.
    busy: u64,
    /// When the last line was shown, from the start.
    shown_at: Duration,
}

impl Run {
    fn new(output: Output, duration: Duration) -> Self {
        let milliseconds = duration.as_millis() as u64;
        Self {
            total: Tally::new(),
            second: Tally::new(),
            not_offered: 0,
            reasons: BTreeMap::new(),
            waiting: JoinSet::new(),
            output,
            bar: output.bar(Some(milliseconds), "{bar:30} {eta} left"),
            busy: 0,
            shown_at: Duration::ZERO,
        }
    }

    async fn offer(
        &mut self,
        endpoint: &Endpoint,
        peer: PeerId,
        args: &PerfArgs,
    ) -> anyhow::Result<()> {
        let mut due = metronome(args);
        let mut seconds = seconds().await;
        let start = Instant::now();
        loop {
            tokio::select! {
                biased;
                _ = seconds.tick() => {
                    let protocol = endpoint.statistics().await?.protocol;
                    let paths = PathTotals::of(&endpoint.paths(peer).await?);
                    self.show(start.elapsed(), &protocol, paths)?;
                }
                Some(done) = self.waiting.join_next() => {
                    if let Ok(done) = done {
                        self.take(done);
                    }
                }
                message = due.recv() => match message {
                    Some((due, size)) => self.start(endpoint, peer, due, size, args.reply),
                    None => return Ok(()),
                },
            }
        }
    }

    fn start(
        &mut self,
        endpoint: &Endpoint,
        peer: PeerId,
        due: Instant,
        Bytes(bytes): Bytes,
        reply: Option<Bytes>,
    ) {
        if self.waiting.len() >= MAX_WAITING {
            self.not_offered += 1;
            return;
        }
        self.total.offered += 1;
        self.second.offered += 1;
        let endpoint = endpoint.clone();
        // To count one twice does no harm.
        let options = SendOptions::new().with_idempotent(true);
        self.waiting.spawn(async move {
            let result = match reply {
                None => {
                    let sent = endpoint.send_with(peer, vec![0x5a; bytes], options).await;
                    sent.map(drop).map_err(|error| reason(&error))
                }
                Some(Bytes(reply)) => {
                    let mut message = vec![0x5a; bytes.max(4)];
                    message[..4].copy_from_slice(&(reply as u32).to_be_bytes());
                    let replied = endpoint
                        .request_with(peer, message, REPLY_WITHIN, options)
                        .await;
                    replied.map(drop).map_err(|error| reason(&error))
                }
            };
            let result = result.map(|()| due.elapsed());
            Done { bytes, result }
        });
    }

    fn take(&mut self, done: Done) {
        let time = match done.result {
            Ok(time) => time,
            Err(reason) => {
                self.total.failed += 1;
                self.second.failed += 1;
                *self.reasons.entry(reason).or_default() += 1;
                return;
            }
        };
        for tally in [&mut self.total, &mut self.second] {
            tally.times.record(time);
            tally.delivered_bytes += done.bytes as u64;
        }
    }

    /// One line for the second that is over.
    fn show(
        &mut self,
        elapsed: Duration,
        protocol: &TransportStatistics,
        paths: PathTotals,
    ) -> anyhow::Result<()> {
        let second = std::mem::replace(&mut self.second, Tally::new());
        let busy = protocol.busy_received.total();
        let busy_before = std::mem::replace(&mut self.busy, busy);
        let busy = busy - busy_before;
        let since_last = elapsed - std::mem::replace(&mut self.shown_at, elapsed);
        let mut progress = second.to_json(elapsed, since_last);
        progress["busy"] = busy.into();
        paths.add_to(&mut progress);
        self.output.print_progress(&progress)?;
        self.bar.set_position(elapsed.as_millis() as u64);
        self.bar.println(format!(
            "{:>4.0} s  offered {:>7}  delivered {:>7}  failed {:>5}  {:>8.1} Mbit/s  p50 {}  p99 {}  {}{}",
            elapsed.as_secs_f64(),
            second.offered,
            second.times.count(),
            second.failed,
            bits_per_s(second.delivered_bytes, since_last) as f64 / 1e6,
            words(second.times.percentile(50.0)),
            words(second.times.percentile(99.0)),
            paths.words(),
            match busy {
                0 => String::new(),
                times => format!(", no room {times} times"),
            },
        ));
        Ok(())
    }

    /// Waits for the last; how many did not end in time.
    async fn finish(&mut self) -> u64 {
        let _ = tokio::time::timeout(PATIENCE, async {
            while let Some(done) = self.waiting.join_next().await {
                if let Ok(done) = done {
                    self.take(done);
                }
            }
        })
        .await;
        let unfinished = self.waiting.len() as u64;
        self.waiting.abort_all();
        unfinished
    }
}

/// Why a message failed, without the figures of that message: they would make each its own reason.
fn reason(error: &(dyn Error + 'static)) -> String {
    let undelivered = match (error.downcast_ref(), error.downcast_ref()) {
        (Some(SendError::Undelivered(undelivered)), _) => undelivered,
        (_, Some(RequestError::Undelivered(undelivered))) => undelivered,
        _ => return error.to_string(),
    };
    format!("message given up: {}", undelivered.reason)
}

/// Says when each message is due, and how long it is. On a thread of its own: the runtime's
/// timers count milliseconds. Where offering falls behind it ends all the same, a little late.
fn metronome(args: &PerfArgs) -> mpsc::Receiver<(Instant, Bytes)> {
    let (say, due) = mpsc::channel(MAX_DUE);
    let sizes = args.size.clone();
    let bytes_per_s = args.load.0 as f64 / 8.0;
    let duration = args.duration.0;
    std::thread::spawn(move || {
        let start = Instant::now();
        let mut offset = Duration::ZERO;
        for &size in sizes.iter().cycle() {
            if offset >= duration || start.elapsed() >= duration + PATIENCE {
                break;
            }
            let at = start + offset;
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            if say.blocking_send((at, size)).is_err() {
                break;
            }
            offset += Duration::from_secs_f64(size.0 as f64 / bytes_per_s);
        }
    });
    due
}

struct Outcome<'a> {
    args: &'a PerfArgs,
    offered_for: Duration,
    unfinished: u64,
    run: &'a Run,
    statistics: EndpointStatistics,
}

impl Outcome<'_> {
    fn report(&self, output: Output) -> anyhow::Result<()> {
        let Self {
            args,
            run,
            statistics,
            ..
        } = self;
        let total = &run.total;
        let protocol = &statistics.protocol;
        let seconds = self.offered_for.as_secs_f64();
        let goodput = total.delivered_bytes as f64 * 8.0 / seconds;
        let needed = ratio(protocol.symbols_needed, protocol.symbols_delivered);
        let sent = ratio(protocol.symbols_sent, protocol.symbols_delivered);
        if output.is_json() {
            return output.print(&json!({
                "peer": args.peer.peer.to_string(),
                "bytes": args.size.iter().map(|size| size.0).collect::<Vec<_>>(),
                "reply_bytes": args.reply.map(|reply| reply.0),
                "load_bits_per_s": args.load.0,
                "seconds": seconds,
                "offered": total.offered,
                "not_offered": run.not_offered,
                "delivered": total.times.count(),
                "failed": total.failed,
                "failures": run.reasons,
                "unfinished": self.unfinished,
                "goodput_bits_per_s": goodput,
                "completion_ms": total.times.to_json(),
                "symbols": {
                    "source": protocol.symbols_delivered,
                    "needed": protocol.symbols_needed,
                    "sent": protocol.symbols_sent,
                },
                "busy": busy_to_json(&protocol.busy_received),
            }));
        }
        print(format_args!(
            "offered {} messages in {seconds:.1} s, delivered {}, failed {}, unfinished {}{}\n\
             delivered {:.1} Mbit/s; for each source symbol {sent:.3} were sent and {needed:.3} needed\n\
             completion: {}",
            total.offered,
            total.times.count(),
            total.failed,
            self.unfinished,
            match run.not_offered {
                0 => String::new(),
                more => format!(", and {more} not offered because too many waited"),
            },
            goodput / 1e6,
            total.times.to_text(),
        ))?;
        for (reason, count) in &run.reasons {
            print(format_args!("{count} times: {reason}"))?;
        }
        if let Some(text) = busy_to_text(&protocol.busy_received) {
            print(text)?;
        }
        Ok(())
    }
}
