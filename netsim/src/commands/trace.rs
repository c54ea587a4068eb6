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
use flow_recording::{Header, ReadError, Reader};
use flow_twin::{Scheme, TwinOutcome, TwinReport, TwinSettings, run_twin};
use indicatif::{ProgressBar, ProgressStyle};

use super::{print, print_json};
use crate::arguments::{Run, TraceArguments};

/// Steps of the progress bar for each scheme.
const STEPS: u64 = 1_000;

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
    let report = TwinReport {
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
    print(&report.summary())?;
    print(&report.table().to_text())?;
    for note in report.notes() {
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

fn write(directory: &Path, report: &TwinReport<'_>) -> Result<()> {
    fs::write(directory.join("index.html"), report.page().to_html())?;
    fs::write(
        directory.join("twin.json"),
        serde_json::to_string_pretty(report)?,
    )?;
    Ok(())
}
