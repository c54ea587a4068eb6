//! The command `netsim sweep`: many runs.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use anyhow::{Context as _, Result};
use indicatif::{ProgressBar, ProgressStyle};
use netsim::{
    Manifest, Overrides, Source,
    sweep::{self, Plan, Record, SweepRow},
};
use serde_json::json;

use super::{print, print_json};
use crate::arguments::Sweep;

pub(crate) fn run(arguments: &Sweep) -> Result<()> {
    let source = Source::find(&arguments.scenario)?;
    let plan = plan(arguments, &source)?;
    let record = Record::new(&plan, &source)?;
    let out = arguments
        .out
        .clone()
        .unwrap_or_else(|| default_directory(source.name()));
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    let jobs = arguments.jobs.unwrap_or_else(cores);
    let shard = arguments.shard;

    let runs = out.join("runs");
    fs::create_dir_all(&runs).with_context(|| format!("cannot create {}", runs.display()))?;
    record.write(&out)?;
    let bar = progress(shard.count(plan.len()));
    let known = AtomicUsize::new(0);
    let done = |is_known: bool| {
        known.fetch_add(usize::from(is_known), Ordering::Relaxed);
        bar.inc(1);
    };
    let results = plan.run_shard(shard, &source, &runs, jobs, done)?;
    bar.finish_and_clear();

    if !shard.is_whole() {
        return report_shard(arguments, results.len(), known.into_inner(), &out);
    }
    report(&record, &results, &out, arguments.json)
}

fn report_shard(arguments: &Sweep, runs: usize, known: usize, out: &Path) -> Result<()> {
    let shard = arguments.shard;
    if arguments.json {
        let shard = shard.to_string();
        return print_json(&json!({ "shard": shard, "runs": runs, "known_before": known }));
    }
    print(&format!(
        "Shard {shard}: {runs} runs, {known} of them known before. `netsim merge {}` makes the table of all shards.",
        out.display()
    ))
}

pub(super) fn default_directory(name: &str) -> PathBuf {
    PathBuf::from(format!("netsim-{name}"))
}

/// Writes the table and the page of a sweep, and prints the table.
pub(super) fn report(
    record: &Record,
    runs: &[(Overrides, Manifest)],
    out: &Path,
    json: bool,
) -> Result<()> {
    let rows = sweep::rows(runs);
    let about = Source::from_text(&record.scenario, &record.text)
        .scenario()?
        .about;
    write(out, &record.scenario, &about, &rows)
        .with_context(|| format!("cannot write into {}", out.display()))?;
    if json {
        return print_json(&rows);
    }
    print(&sweep::table(&rows).to_text())?;
    print(&format!(
        "Table and plots: {}",
        out.join("index.html").display()
    ))
}

fn plan(arguments: &Sweep, source: &Source) -> Result<Plan> {
    let mut schemes: Vec<Option<String>> = arguments.schemes.iter().cloned().map(Some).collect();
    if schemes.is_empty() {
        schemes = source.scenario()?.schemes.into_keys().map(Some).collect();
    }
    if schemes.is_empty() {
        schemes.push(None);
    }
    let mut loads: Vec<Option<f64>> = arguments.loads.iter().copied().map(Some).collect();
    if loads.is_empty() {
        loads.push(None);
    }
    Ok(Plan {
        schemes,
        loads,
        seeds: (1..=arguments.seeds).collect(),
        messages: arguments.messages,
        rows: arguments.rows,
    })
}

fn write(out: &Path, name: &str, about: &str, rows: &[SweepRow]) -> Result<()> {
    let mut writer = csv::Writer::from_path(out.join("sweep.csv"))?;
    writer.write_record([
        "scheme",
        "load",
        "class",
        "seeds",
        "flows",
        "unfinished",
        "metric",
        "mean",
        "half_width_95",
    ])?;
    for row in rows {
        let metrics = [
            ("mean_us", row.mean_us),
            ("p99_us", row.p99_us),
            ("goodput_mbps", row.goodput_mbps),
            ("retransmitted_percent", row.retransmitted_percent),
            ("out_of_order_percent", row.out_of_order_percent),
            ("queued_us", row.queued_us),
            ("utilisation", row.utilisation),
            ("utilisation_deviation", row.utilisation_deviation),
        ];
        for (metric, estimate) in metrics {
            let Some(estimate) = estimate else { continue };
            writer.serialize((
                &row.scheme,
                row.load,
                &row.class,
                row.seeds,
                row.flows,
                row.unfinished,
                metric,
                estimate.mean,
                estimate.half_width,
            ))?;
        }
    }
    writer.flush()?;
    fs::write(
        out.join("index.html"),
        sweep::page(name, about, rows).to_html(),
    )?;
    Ok(())
}

/// On standard error, and only on a terminal.
fn progress(runs: usize) -> ProgressBar {
    let bar = ProgressBar::new(runs as u64);
    match ProgressStyle::with_template("{bar:40} {pos}/{len} runs, {eta} left") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
