//! The command `netsim sweep`: many runs.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
};

use anyhow::{Context as _, Result};
use indicatif::{ProgressBar, ProgressStyle};
use netsim::{
    Source,
    sweep::{self, Plan, SweepRow},
};

use super::{print, print_json};
use crate::arguments::Sweep;

pub(crate) fn run(arguments: &Sweep) -> Result<()> {
    let source = Source::find(&arguments.scenario)?;
    let plan = plan(arguments, &source)?;
    let out = arguments
        .out
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("netsim-{}", source.name())));
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    let jobs = arguments.jobs.unwrap_or_else(cores);

    let bar = progress(plan.len());
    let runs = plan.run(&source, &out.join("runs"), jobs, |_| bar.inc(1))?;
    bar.finish_and_clear();

    let rows = sweep::rows(&runs);
    let about = source.scenario()?.about;
    write(&out, source.name(), &about, &rows)
        .with_context(|| format!("cannot write into {}", out.display()))?;
    if arguments.json {
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
