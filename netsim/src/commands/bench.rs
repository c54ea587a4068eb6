//! The command `netsim bench`: events a second.

use std::fs;

use anyhow::Result;
use netsim::{Overrides, Source};
use serde::Serialize;

use super::{print, print_json};
use crate::arguments::Bench;

/// How fast the simulator is.
#[derive(Serialize)]
struct Speed {
    scenario: String,
    scheme: Option<String>,
    seed: u64,
    flows: usize,
    hops: u64,
    /// Processor time of this process: others on the machine do not count.
    seconds: f64,
    /// Links passed by packets, a second on one core.
    hops_per_s: f64,
    /// The most memory that the process had at a time; `None` where the system keeps no such count.
    rss_mb: Option<f64>,
}

pub(crate) fn run(arguments: &Bench) -> Result<()> {
    let source = Source::find(&arguments.scenario)?;
    let overrides: Overrides = (&arguments.overrides).into();
    let experiment = source.experiment(&overrides)?;
    let before = processor_seconds();
    let outcome = netsim::run(&experiment);
    let used = processor_seconds()
        .zip(before)
        .map(|(after, before)| after - before);
    let seconds = used.unwrap_or(outcome.took.as_secs_f64()).max(0.01);
    let speed = Speed {
        scenario: outcome.scenario,
        scheme: outcome.scheme,
        seed: outcome.seed,
        flows: outcome.flows.len(),
        hops: outcome.totals.hops,
        seconds,
        hops_per_s: outcome.totals.hops as f64 / seconds,
        rss_mb: peak_memory_mb(),
    };
    if arguments.json {
        return print_json(&speed);
    }
    let memory = speed
        .rss_mb
        .map_or_else(String::new, |it| format!(", {it:.0} MB"));
    print(&format!(
        "{}: {} flows, {} hops in {:.2} s: {:.1} million hops a second{memory}",
        speed.scenario,
        speed.flows,
        speed.hops,
        speed.seconds,
        speed.hops_per_s / 1e6,
    ))
}

/// From Linux, which counts in hundredths: user and system time (proc_pid_stat(5), fields 14, 15).
fn processor_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, after_name) = stat.rsplit_once(')')?;
    let times = after_name.split_whitespace().skip(11).take(2);
    let ticks: Option<Vec<f64>> = times.map(|it| it.parse().ok()).collect();
    Some(ticks?.iter().sum::<f64>() / 100.0)
}

/// From Linux, which counts in KiB.
fn peak_memory_mb() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|it| it.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib * 1024.0 / 1e6)
}
