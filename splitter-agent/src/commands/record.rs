//! `splitter record`: the flows of a time, in one file, without a daemon.
//!
//! What a look at the flow table says of each flow is the [`Tracker`]'s, which knows neither the kernel nor
//! a clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use flow_cli::{Signals, group_thousands, print, print_json};
use flow_recording::{
    Count, FlowRecord, Header, ThresholdUnit, Tracker, Unseen, WriteError, Writer,
};
use serde::Serialize;
use splitter_config::{Config, Tunnels};
use splitter_datapath::Dataplane;
use splitter_datapath::clock::monotonic_ns;
use splitter_datapath::connections::each_entry;
use splitter_instance::Instance;
use splitter_policy::config::Unit;
use splitter_policy::counters::FlowEvent;
use tokio::time::{Instant, sleep_until};

use super::flows;
use crate::cli::{MAX_TIME, RecordArgs};

/// Records until the time is over or a signal comes, then writes the file.
pub(crate) async fn run(config: Config, args: &RecordArgs, json: bool) -> Result<()> {
    // What keeps the file from being written is found before a day has passed.
    let writer = Writer::create(&args.output, args.force)?;
    let instance = Instance::new(config)?;
    let mut signals = Signals::listen()?;
    let Some(dataplane) = instance.open()? else {
        return Err(flows::down(&instance));
    };
    let policy = dataplane.policy()?;
    let mut recorder = Recorder::new(&dataplane, writer)?;
    let (begun, begun_at) = (Instant::now(), SystemTime::now());
    tracing::info!(
        event = "recording_started",
        file = %args.output.display(),
        "recording flows; Ctrl-C ends it and writes the file"
    );
    let end = begun + args.time.unwrap_or(MAX_TIME);
    loop {
        let next = (Instant::now() + args.interval).min(end);
        let is_asked_to_stop = tokio::select! {
            () = sleep_until(next) => false,
            _ = signals.next() => true,
        };
        recorder.look(instance.open());
        if is_asked_to_stop || recorder.failed.is_some() || Instant::now() >= end {
            break;
        }
    }
    let header = Header {
        written_by: concat!("splitter ", env!("CARGO_PKG_VERSION")).to_owned(),
        started_unix_s: begun_at
            .duration_since(UNIX_EPOCH)
            .map_or(0, |it| it.as_secs()),
        duration_us: begun.elapsed().as_micros() as u64,
        look_every_ms: args.interval.as_millis() as u64,
        // What was in force, and not what the configuration says meanwhile.
        unit: if policy.unit == Unit::BYTES {
            ThresholdUnit::Bytes
        } else {
            ThresholdUnit::Packets
        },
        threshold: u32::try_from(policy.thresholds.common()).unwrap_or(u32::MAX),
        rates_mbit: rates(instance.config()),
        ..Header::default()
    };
    let header = recorder.finish(header)?;
    report(&header, args, json)
}

/// Rates of the tunnels, where there is one of each and both are stated.
fn rates(config: &Config) -> Option<[u32; 2]> {
    let rate = |of: &Tunnels| Some(of.only()?.rate_mbit?.get());
    Some([rate(&config.short)?, rate(&config.long)?])
}

/// Looks at the flow table again and again, and writes down flows as they end.
struct Recorder {
    tracker: Tracker,
    writer: Writer,
    events: Events,
    table_id: u32,
    looks: u64,
    /// Since when there has been no table, or it could not be read.
    blind_since_ns: Option<u64>,
    blind_ns: u64,
    /// What kept a flow from being written.
    failed: Option<WriteError>,
}

/// Counts of the kernel programs, so far and since the recording began.
#[derive(Clone, Copy, Debug, Default)]
struct Events {
    begun: u64,
    untracked: u64,
}

impl Events {
    fn read(dataplane: &Dataplane) -> Result<Self> {
        let counters = dataplane.counters()?;
        let of = |events: &[FlowEvent]| events.iter().map(|it| counters.events(*it)).sum();
        Ok(Self {
            begun: of(&[
                FlowEvent::Started,
                FlowEvent::RestartedIdle,
                FlowEvent::RestartedSyn,
            ]),
            untracked: of(&[FlowEvent::Untracked]),
        })
    }
}

impl Recorder {
    /// Takes what there is as the beginning.
    fn new(dataplane: &Dataplane, writer: Writer) -> Result<Self> {
        let now_ns = monotonic_ns();
        let idle_timeout_ns = dataplane.policy()?.idle_timeout_ns;
        let events = Events::read(dataplane)?;
        let mut recorder = Self {
            tracker: Tracker::new(now_ns),
            writer,
            events,
            table_id: dataplane.table_id()?,
            looks: 0,
            blind_since_ns: None,
            blind_ns: 0,
            failed: None,
        };
        recorder.walk(dataplane, now_ns, idle_timeout_ns)?;
        Ok(recorder)
    }

    /// Looks once. Without a table, or where the kernel does not let it be read, the time counts as blind:
    /// what was recorded until then is worth more than an end at the first error.
    fn look(&mut self, dataplane: Result<Option<Dataplane>, impl Into<anyhow::Error>>) {
        let now_ns = monotonic_ns();
        let looked = match dataplane {
            Ok(Some(dataplane)) => self.look_at(&dataplane, now_ns),
            Ok(None) => Err(anyhow::anyhow!("the instance is down")),
            Err(error) => Err(error.into()),
        };
        match looked {
            Ok(()) => {
                if let Some(since_ns) = self.blind_since_ns.take() {
                    self.blind_ns += now_ns.saturating_sub(since_ns);
                }
            }
            Err(error) if self.blind_since_ns.is_none() => {
                self.blind_since_ns = Some(self.tracker.last_look_ns());
                tracing::warn!(
                    event = "recording_blind",
                    error = format!("{error:#}"),
                    "the flow table cannot be seen; recording goes on when it can again"
                );
            }
            Err(_) => {}
        }
    }

    fn look_at(&mut self, dataplane: &Dataplane, now_ns: u64) -> Result<()> {
        let idle_timeout_ns = dataplane.policy()?.idle_timeout_ns;
        let events = Events::read(dataplane)?;
        let table_id = dataplane.table_id()?;
        let has_restarted = events.begun < self.events.begun;
        if table_id != self.table_id && has_restarted {
            // Programs that were loaded anew count from zero.
            self.events = Events::default();
        }
        self.table_id = table_id;
        let since = Events {
            begun: events.begun.saturating_sub(self.events.begun),
            untracked: events.untracked.saturating_sub(self.events.untracked),
        };
        self.events = events;
        self.tracker.begun(since.begun, since.untracked);
        self.walk(dataplane, now_ns, idle_timeout_ns)
    }

    fn walk(&mut self, dataplane: &Dataplane, now_ns: u64, idle_timeout_ns: u64) -> Result<()> {
        let (writer, failed) = (&mut self.writer, &mut self.failed);
        let mut write = |flow| write(writer, failed, &flow);
        let tracker = &mut self.tracker;
        let mut look = tracker.look(now_ns, idle_timeout_ns);
        each_entry(dataplane, now_ns, |key, entry, back| {
            let back = || {
                back().map(|it| Count {
                    packets: it.packets,
                    bytes: it.bytes,
                })
            };
            look.see(key, entry, back, &mut write);
        })?;
        look.end(&mut write);
        self.looks += 1;
        Ok(())
    }

    /// Puts the file into place, with what could be written. Fails when that fails, or a flow could not be.
    fn finish(mut self, header: Header) -> Result<Header> {
        if let Some(since_ns) = self.blind_since_ns {
            self.blind_ns += monotonic_ns().saturating_sub(since_ns);
        }
        let (writer, failed) = (&mut self.writer, &mut self.failed);
        let unseen = self.tracker.finish(|flow| write(writer, failed, &flow));
        let header = Header {
            looks: self.looks,
            unseen: Unseen {
                blind_us: self.blind_ns / 1_000,
                ..unseen
            },
            ..header
        };
        let written = self.writer.finish(header);
        match (self.failed, written) {
            (None, written) => Ok(written?),
            (Some(error), Ok(_)) => {
                Err(error).context("the recording ended early; its file has what came before")
            }
            (Some(error), Err(_)) => Err(error.into()),
        }
    }
}

/// Adds a flow to the file, unless that has failed before. Returns whether it is in it.
fn write(writer: &mut Writer, failed: &mut Option<WriteError>, flow: &FlowRecord) -> bool {
    if failed.is_some() {
        return false;
    }
    match writer.add(flow) {
        Ok(is_written) => is_written,
        Err(error) => {
            *failed = Some(error);
            false
        }
    }
}

/// Summary that `record --json` prints.
#[derive(Serialize)]
struct Recorded<'a> {
    file: String,
    bytes: u64,
    #[serde(flatten)]
    header: &'a Header,
}

fn report(header: &Header, args: &RecordArgs, json: bool) -> Result<()> {
    let bytes = std::fs::metadata(&args.output).map_or(0, |it| it.len());
    if json {
        return print_json(&Recorded {
            file: args.output.display().to_string(),
            bytes,
            header,
        });
    }
    let seconds = Duration::from_micros(header.duration_us).as_secs_f64();
    print(format_args!(
        "Recorded {} flows in {seconds:.0} s into {} ({} bytes).",
        group_thousands(header.flows),
        args.output.display(),
        group_thousands(bytes)
    ))?;
    for line in unseen_in_words(&header.unseen) {
        print(line)?;
    }
    Ok(())
}

/// Lines about what the file does not hold.
fn unseen_in_words(unseen: &Unseen) -> Vec<String> {
    let flows = [
        (
            unseen.missed,
            "began and had gone before a look: they are missing, and a shorter --interval sees more",
        ),
        (
            unseen.untracked,
            "found no room in the flow table: they are missing",
        ),
        (
            unseen.beyond_file,
            "ended when the file was full: they are missing",
        ),
        (
            unseen.vanished,
            "had gone before their end was seen: their sizes are the least that they had",
        ),
    ];
    let some = flows.into_iter().filter(|(count, _)| *count > 0);
    let mut lines: Vec<String> = some
        .map(|(count, what)| format!("{} flows {what}.", group_thousands(count)))
        .collect();
    if unseen.blind_us > 0 {
        let seconds = Duration::from_micros(unseen.blind_us).as_secs_f64();
        lines.push(format!(
            "For {seconds:.0} s nothing was seen: the instance was down, or its flow table could not be read."
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::io;

    use flow_recording::Reader;

    use super::*;

    /// A recorder that has seen nothing, half a second ago, and its file.
    fn recorder(directory: &tempfile::TempDir) -> (Recorder, std::path::PathBuf) {
        let path = directory.path().join("day.flows");
        let recorder = Recorder {
            tracker: Tracker::new(monotonic_ns() - 500_000_000),
            writer: Writer::create(&path, false).expect("a file"),
            events: Events::default(),
            table_id: 0,
            looks: 1,
            blind_since_ns: None,
            blind_ns: 0,
            failed: None,
        };
        (recorder, path)
    }

    fn header() -> Header {
        Header {
            duration_us: 1_000_000,
            ..Header::default()
        }
    }

    #[test]
    fn error_of_the_kernel_ends_no_recording() {
        let directory = tempfile::tempdir().expect("a directory");
        let (mut recorder, path) = recorder(&directory);
        recorder.look(Err(io::Error::other("not now")));
        assert!(recorder.failed.is_none());
        let header = recorder.finish(header()).expect("space");
        assert!(header.unseen.blind_us >= 500_000, "since the last look");
        let read = Reader::open(&path).expect("a recording");
        assert_eq!(read.header(), &header);
    }

    #[test]
    fn error_of_the_disk_is_told_beside_the_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let (mut recorder, path) = recorder(&directory);
        recorder.failed = Some(WriteError::Write {
            path: path.clone(),
            source: io::ErrorKind::StorageFull.into(),
        });
        let error = recorder.finish(header()).expect_err("it failed");
        let error = format!("{error:#}");
        assert!(error.starts_with("the recording ended early"), "{error}");
        assert!(error.contains("cannot write"), "{error}");
        assert!(Reader::open(&path).is_ok(), "what came before");
    }
}
