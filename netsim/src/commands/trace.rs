//! The command `netsim run --trace`: a twin of one's own network.

use std::{
    fs,
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use anyhow::{Context as _, Result, bail};
use flow_recording::{Header, ReadError, Reader, ThresholdUnit};
use flow_report::{Axis, Bars, Page, Plot, Series, Table};
use flow_twin::{Distribution, FlowStatistics, Scheme, TwinOutcome, TwinSettings, run_twin};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::{print, print_json};
use crate::arguments::{Run, TraceArguments};

/// Steps of the progress bar for each scheme.
const STEPS: u64 = 1_000;

/// Report that `--json` prints and `twin.json` holds.
#[derive(Serialize)]
struct Report<'a> {
    version: &'static str,
    recording: &'a Header,
    settings: &'a TwinSettings,
    schemes: &'a [TwinOutcome],
}

pub(crate) fn run(file: &Path, arguments: &Run) -> Result<()> {
    let settings = settings(arguments)?;
    let header = whole(file)?;
    let seconds = header.duration_us / 1_000_000;
    if settings.skip_s.saturating_mul(1_000_000) >= header.duration_us {
        bail!(
            "nothing is left of the recording: --skip leaves out {} s, and it has {seconds} s",
            settings.skip_s
        );
    }
    let schemes = schemes(&arguments.trace, &settings, &header)?;
    if let Some(directory) = &arguments.out {
        // What keeps the report from being written is found before the day was simulated.
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot write into {}", directory.display()))?;
    }
    let outcomes = run_all(file, &settings, &schemes, jobs(&arguments.trace))?;
    let report = Report {
        version: env!("CARGO_PKG_VERSION"),
        recording: &header,
        settings: &settings,
        schemes: &outcomes,
    };
    if let Some(directory) = &arguments.out {
        write(directory, &report)
            .with_context(|| format!("cannot write into {}", directory.display()))?;
    }
    if arguments.json {
        return print_json(&report);
    }
    print(&summary(&report))?;
    print(&table(&outcomes).to_text())?;
    for note in notes(&report) {
        print(&note)?;
    }
    match &arguments.out {
        Some(directory) => print(&format!(
            "Table and plots: {}",
            directory.join("index.html").display()
        )),
        None => Ok(()),
    }
}

/// Reads a recording through, so that damage at its end is found before the day was simulated. Returns its
/// header.
fn whole(file: &Path) -> Result<Header> {
    let read = || {
        let mut reader = Reader::open(file)?;
        let header = reader.header().clone();
        reader.try_for_each(|flow| flow.map(drop))?;
        Ok::<_, ReadError>(header)
    };
    read().with_context(|| format!("cannot use {}", file.display()))
}

fn settings(arguments: &Run) -> Result<TwinSettings> {
    let trace = &arguments.trace;
    if !(1..=TwinSettings::MOST_UPLINKS).contains(&trace.uplinks.len()) {
        bail!("give 1 to {} uplinks", TwinSettings::MOST_UPLINKS);
    }
    let mut settings = TwinSettings::new(trace.uplinks.clone());
    settings.threshold = trace.threshold;
    settings.buffer_ms = trace.buffer_ms;
    settings.skip_s = trace.skip.unwrap_or(0);
    settings.for_s = trace.time;
    settings.seed = arguments.overrides.seed.unwrap_or(settings.seed);
    Ok(settings)
}

/// The schemes that were asked for, or all that so many uplinks allow.
fn schemes(
    trace: &TraceArguments,
    settings: &TwinSettings,
    header: &Header,
) -> Result<Vec<Scheme>> {
    let uplinks = settings.uplinks.len();
    if let Some(wrong) = trace.schemes.iter().find(|it| !it.takes(uplinks)) {
        bail!("the scheme {wrong} is one of two uplinks, and there are {uplinks}");
    }
    if !trace.schemes.is_empty() {
        return Ok(trace.schemes.clone());
    }
    let threshold = settings.threshold.unwrap_or(header.threshold.into());
    let another = Some((4 * threshold).clamp(1, u32::MAX.into()));
    let all = [
        Scheme::Ecmp,
        Scheme::FairQueueing,
        Scheme::Dedicated { threshold: None },
        Scheme::Dedicated { threshold: another },
        Scheme::Share { threshold: None },
        Scheme::Share { threshold: another },
        Scheme::Tr { threshold: None },
    ];
    Ok(all.into_iter().filter(|it| it.takes(uplinks)).collect())
}

fn jobs(trace: &TraceArguments) -> usize {
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    trace.jobs.map_or_else(cores, usize::from)
}

/// Runs all schemes, so many at a time; each reads the file for itself.
fn run_all(
    file: &Path,
    settings: &TwinSettings,
    schemes: &[Scheme],
    jobs: usize,
) -> Result<Vec<TwinOutcome>> {
    let bar = progress(schemes.len());
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, Result<TwinOutcome, ReadError>)>> = Mutex::default();
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(scheme) = schemes.get(index) else {
                return;
            };
            let mut told = 0;
            let tell = |share: f64| {
                let steps = (share * STEPS as f64) as u64;
                bar.inc(steps.saturating_sub(told));
                told = steps;
            };
            let result =
                Reader::open(file).and_then(|reader| run_twin(reader, settings, scheme, tell));
            if let Ok(mut results) = results.lock() {
                results.push((index, result));
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, schemes.len().max(1)) {
            scope.spawn(work);
        }
    });
    bar.finish_and_clear();
    let mut results = results.into_inner().unwrap_or_default();
    results.sort_by_key(|(index, _)| *index);
    let outcomes = results.into_iter().map(|(_, result)| result);
    outcomes
        .collect::<Result<Vec<_>, _>>()
        .with_context(|| format!("cannot use {}", file.display()))
}

/// On standard error, and only on a terminal.
fn progress(schemes: usize) -> ProgressBar {
    let bar = ProgressBar::new(schemes as u64 * STEPS);
    match ProgressStyle::with_template("{bar:40} {percent} %, {eta} left") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn summary(report: &Report<'_>) -> String {
    let Report {
        recording,
        settings,
        ..
    } = report;
    let all_s = recording.duration_us / 1_000_000;
    let from_s = settings.skip_s.min(all_s);
    let seconds = settings.for_s.unwrap_or(u64::MAX).min(all_s - from_s);
    let uplinks: Vec<String> = settings.uplinks.iter().map(ToString::to_string).collect();
    format!(
        "{} connections in {all_s} s, of which {seconds} s are simulated over {}; queues of {} ms.",
        recording.flows,
        uplinks.join(", "),
        settings.buffer_ms
    )
}

fn table(outcomes: &[TwinOutcome]) -> Table {
    let mut table = Table::new([
        "scheme",
        "short connections",
        "short: mean ms",
        "short: p99 ms",
        "long connections",
        "long: mean ms",
        "long: p99 ms",
        "slowdown",
        "unfinished",
        "sent again %",
        "out/in used %",
    ]);
    let number = |it: Option<f64>| it.map_or_else(|| "-".to_owned(), |it| format!("{it:.2}"));
    for it in outcomes {
        let again = it.retransmitted as f64 / it.segments.max(1) as f64 * 100.0;
        let percent = |[out, back]: &[f64; 2]| format!("{:.0}/{:.0}", out * 100.0, back * 100.0);
        let used: Vec<String> = it.utilisation.iter().map(percent).collect();
        table.row([
            it.scheme.clone(),
            it.short.flows.to_string(),
            number(it.short.mean_ms),
            number(it.short.p99_ms),
            it.long.flows.to_string(),
            number(it.long.mean_ms),
            number(it.long.p99_ms),
            number(mean_slowdown(it)),
            (it.short.unfinished + it.long.unfinished).to_string(),
            format!("{again:.2}"),
            used.join(" "),
        ]);
    }
    table
}

/// Mean slowdown over all connections, each counting the same.
fn mean_slowdown(outcome: &TwinOutcome) -> Option<f64> {
    let classes = [&outcome.short, &outcome.long];
    let flows: u64 = classes.iter().map(|it| it.flows).sum();
    let weighted = |it: &&FlowStatistics| it.mean_slowdown.unwrap_or(0.0) * it.flows as f64;
    (flows > 0).then(|| classes.iter().map(weighted).sum::<f64>() / flows as f64)
}

/// Notes that a reader of the figures needs.
fn notes(report: &Report<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    let unseen = report.recording.unseen;
    let missing = unseen.flows();
    if missing > 0 {
        notes.push(format!(
            "{missing} connections are not in the recording, so that there was more traffic than here."
        ));
    }
    if unseen.blind_us > 0 {
        let seconds = unseen.blind_us / 1_000_000;
        notes.push(format!(
            "For {seconds} s of the recording nothing was seen."
        ));
    }
    if let Some(paced) = report.schemes.iter().map(|it| it.paced_flows).max()
        && paced > 0
    {
        notes.push(format!(
            "{paced} connections were slow for long by themselves: they are paced as they came, and have no completion time."
        ));
    }
    if let Some(cut) = report.schemes.iter().map(|it| it.cut_by_skip).max()
        && cut > 0
    {
        notes.push(format!(
            "{cut} connections were under way where --skip ends: they are not simulated, so that there was more traffic than here."
        ));
    }
    for it in report.schemes.iter().filter(|it| it.left_out > 0) {
        notes.push(format!(
            "{}: {} connections were left out, for 100,000 were under way: there is more traffic than the uplinks carry.",
            it.scheme, it.left_out
        ));
    }
    notes
}

fn write(directory: &Path, report: &Report<'_>) -> Result<()> {
    fs::write(directory.join("index.html"), page(report).to_html())?;
    fs::write(
        directory.join("twin.json"),
        serde_json::to_string_pretty(report)?,
    )?;
    Ok(())
}

fn page(report: &Report<'_>) -> Page {
    let outcomes = report.schemes;
    let threshold = report.settings.threshold;
    let threshold = threshold.unwrap_or(report.recording.threshold.into());
    let unit = match report.recording.unit {
        ThresholdUnit::Packets => "packets",
        ThresholdUnit::Bytes => "bytes",
    };
    let mut page = Page::new("A twin of this network")
        .text(&summary(report))
        .text(&format!(
            "Completion times are those of connections, from the first packet of the handshake to the last byte of both directions. Short connections have at most {threshold} {unit} in each direction, as they were recorded: the same in each row, whatever the threshold of a scheme."
        ))
        .text("The slowdown is the mean over all connections of completion time over serialisation and the round trips that there must be, on the uplink on which that is least; below 1 where one connection fills several uplinks.");
    for note in notes(report) {
        page = page.text(&note);
    }
    page = page
        .table(&table(outcomes))
        .bars(&bars("Short connections", outcomes, |it| &it.short))
        .bars(&bars("Long connections", outcomes, |it| &it.long))
        .plot(&distribution("Short connections", outcomes, |it| {
            &it.short.distribution
        }))
        .plot(&distribution("Long connections", outcomes, |it| {
            &it.long.distribution
        }))
        .heading("What the schemes are");
    let meanings = outcomes
        .iter()
        .map(|it| format!("{}: {}", it.scheme, meaning(it)));
    page.list(meanings).note(
        "Simulated packet by packet, with CUBIC, SACK and delayed acknowledgements; no receive windows, no pacing.",
    )
}

fn meaning(outcome: &TwinOutcome) -> &'static str {
    match outcome.scheme.split('@').next() {
        Some("ecmp") => "a hash of each flow chooses its uplink, with a FIFO in front",
        Some("fair") => "as ecmp, with a queue for each flow in front of a shaped uplink",
        Some("dedicated") => "the first uplink for short flows, the second for long ones",
        Some("share") => "both classes on both uplinks, short flows first",
        _ => "each packet takes the uplink by which it arrives first, short flows first",
    }
}

fn bars(
    title: &str,
    outcomes: &[TwinOutcome],
    class: impl Fn(&TwinOutcome) -> &FlowStatistics,
) -> Bars {
    let values = |of: fn(&FlowStatistics) -> Option<f64>| {
        let values = outcomes.iter().map(|it| of(class(it)).unwrap_or(f64::NAN));
        values.collect::<Vec<_>>()
    };
    let mut bars = Bars::new(title);
    for it in outcomes {
        bars = bars.row(it.scheme.clone(), "");
    }
    bars.panel("mean completion time", "ms", values(|it| it.mean_ms))
        .panel("99th percentile", "ms", values(|it| it.p99_ms))
}

fn distribution(
    title: &str,
    outcomes: &[TwinOutcome],
    class: impl Fn(&TwinOutcome) -> &Distribution,
) -> Plot {
    let (x, y) = (
        Axis::log("completion time in ms"),
        Axis::linear("share of connections").range(0.0, 1.0),
    );
    let plot = Plot::new(format!("{title}: completion times"), x, y);
    outcomes.iter().fold(plot, |plot, it| {
        plot.with(Series::steps(it.scheme.clone(), class(it).cumulative()))
    })
}
