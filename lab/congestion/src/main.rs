//! Congestion control measured: our sender through a bottleneck, alone and beside cubic. `cargo
//! xtask` builds and calls it.

mod cell;
mod codel;
mod cubic;
mod flow;
mod link;
mod namespaces;
mod ours;
mod outcome;
mod random;
mod scenario;
mod series;
mod stream;
mod world;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};

use anyhow::{Context, Result, bail};
use clap::Parser;

use crate::{
    cell::{Cell, SEED, cells},
    outcome::{Outcome, Record, Row, table, write_page},
};

/// Measures the congestion control of messages: scenarios on bottlenecks of many rates, round
/// trips and queues, in virtual time, with cubic in our place for comparison. Endpoints have key
/// pairs and defaults, as users run them.
#[derive(Parser)]
#[command(bin_name = "cargo xtask congestion")]
struct Arguments {
    /// Measure fewer and shorter cells, in at most five minutes.
    #[arg(long)]
    quick: bool,
    /// Print one JSON array instead of a table.
    #[arg(long)]
    json: bool,
    /// Measure the cells whose names begin like this: scenario, Mbit/s, RTT in ms and queue in BDP, as in
    /// alone-10-50-0.25. May be given several times.
    #[arg(long, value_name = "NAME")]
    cell: Vec<String>,
    /// Take over what lies in the directory of a run before, and measure the rest.
    #[arg(long)]
    resume: bool,
    /// Measure with the command itself, in real time between network namespaces, beside iperf3's cubic:
    /// 10 and 100 Mbit/s, 10 and 50 ms, all scenarios without marks; incast with the library, beside TCP and QUIC.
    /// Takes three quarters of an hour. Needs root, tc, nft, iperf3 and /dev/net/tun.
    #[arg(long, conflicts_with_all = ["quick", "jobs"])]
    namespaces: bool,
    /// The command; with --namespaces. Without it the one next to this program.
    #[arg(long, value_name = "FILE", requires = "namespaces")]
    cloudburst: Option<PathBuf>,
    /// Directory for a JSON file of each cell, plots of rate and queue over time, and a page with all of them.
    #[arg(long, default_value = "target/congestion")]
    out: PathBuf,
    /// What chance begins with: how much a cell owes to it, others tell.
    #[arg(long, default_value_t = SEED, conflicts_with = "namespaces")]
    seed: u64,
    /// Paths of each of our senders, which all lead through the bottleneck. One bottleneck is one path by
    /// default, but for the scenario of two that share it; a client has sixteen, with --namespaces too.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64), conflicts_with = "namespaces")]
    paths: u16,
    /// Cells at the same time; without it as many as there are cores.
    #[arg(long)]
    jobs: Option<usize>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    let all = || match arguments.namespaces {
        true => namespaces::cells(),
        false => cells(arguments.quick),
    };
    let mut chosen = all();
    if !arguments.cell.is_empty() {
        let is_named = |cell: &Cell, name: &String| {
            let own = cell.to_string();
            own == *name || own.starts_with(&format!("{name}-"))
        };
        chosen.retain(|cell| arguments.cell.iter().any(|name| is_named(cell, name)));
        if chosen.is_empty() {
            let all: Vec<_> = all().iter().map(Cell::to_string).collect();
            bail!("--cell names no cell; there are {}", all.join(", "));
        }
    }
    for cell in &mut chosen {
        (cell.seed, cell.paths) = (arguments.seed, arguments.paths);
    }
    let directory = directory(arguments);
    fs::create_dir_all(&directory)
        .with_context(|| format!("cannot make the directory {}", directory.display()))?;
    let records = if arguments.namespaces {
        in_namespaces(arguments, &directory, &chosen)?
    } else {
        measure_all(arguments, &directory, &chosen)?
    };
    let records: Vec<_> = chosen.into_iter().zip(records).collect();
    let page = write_page(&directory, &records)?;
    let rows: Vec<_> = records.into_iter().map(|(_, record)| record.row).collect();
    let code = print(arguments, &rows)?;
    eprintln!("Plots: {}", page.display());
    Ok(code)
}

/// Of the results; those of another seed or number of paths are others.
fn directory(arguments: &Arguments) -> PathBuf {
    let name = match arguments {
        Arguments { quick: true, .. } => "quick",
        Arguments {
            namespaces: true, ..
        } => "namespaces",
        _ => "all",
    };
    let mut name = name.to_owned();
    if arguments.seed != SEED {
        name += &format!("-seed-{}", arguments.seed);
    }
    if arguments.paths != 1 {
        name += &format!("-paths-{}", arguments.paths);
    }
    arguments.out.join(name)
}

/// Prints the rows. Fails if a bound does not hold.
fn print(arguments: &Arguments, rows: &[Row]) -> Result<ExitCode> {
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(rows)?);
    } else {
        println!("{}", table(rows).to_text());
    }
    let failed = rows.iter().filter(|row| !row.holds).count();
    eprintln!("{} of {} cells hold", rows.len() - failed, rows.len());
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Measures the cells in namespaces, one after the other: they are about time.
fn in_namespaces(arguments: &Arguments, directory: &Path, cells: &[Cell]) -> Result<Vec<Record>> {
    let own = std::env::current_exe().context("cannot find this program")?;
    let program = arguments.cloudburst.clone();
    let program = program.unwrap_or_else(|| own.with_file_name("cloudburst"));
    cells
        .iter()
        .map(|cell| {
            if let Some(record) = known(arguments, directory, cell) {
                return Ok(record);
            }
            let outcome = namespaces::measure(cell, &program)?;
            let scenario = format!("{}_in_namespaces", cell.scenario.name());
            let row = Row::new(scenario, cell, &outcome);
            report(cell, &row, "in namespaces");
            keep(directory, cell, row, outcome)
        })
        .collect()
}

/// The record of a run before, if that is to be taken over.
fn known(arguments: &Arguments, directory: &Path, cell: &Cell) -> Option<Record> {
    let record = arguments.resume.then(|| Record::read(directory, cell));
    record.flatten()
}

fn keep(directory: &Path, cell: &Cell, row: Row, outcome: Outcome) -> Result<Record> {
    let record = Record::new(row, outcome.curves);
    record.write(directory, cell)?;
    Ok(record)
}

/// Measures the cells, several at a time, and reports on each as it ends.
fn measure_all(arguments: &Arguments, directory: &Path, cells: &[Cell]) -> Result<Vec<Record>> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let jobs = arguments.jobs.unwrap_or(cores).max(1);
    let next = AtomicUsize::new(0);
    let records = Mutex::new(Vec::new());
    let work = || -> Result<()> {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(cell) = cells.get(index) else {
                return Ok(());
            };
            let record = match known(arguments, directory, cell) {
                Some(record) => record,
                None => measure(arguments, directory, cell)?,
            };
            if let Ok(mut records) = records.lock() {
                records.push((index, record));
            }
        }
    };
    thread::scope(|scope| -> Result<()> {
        let threads: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            match thread.join() {
                Ok(result) => result?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(())
    })?;
    let mut records = records.into_inner().unwrap_or_default();
    records.sort_by_key(|(index, _)| *index);
    Ok(records.into_iter().map(|(_, record)| record).collect())
}

fn measure(arguments: &Arguments, directory: &Path, cell: &Cell) -> Result<Record> {
    let began = Instant::now();
    let outcome = scenario::measure(cell, arguments.quick);
    let row = Row::new(cell.scenario.name(), cell, &outcome);
    report(
        cell,
        &row,
        &format!("{:.1} s", began.elapsed().as_secs_f64()),
    );
    keep(directory, cell, row, outcome)
}

fn report(cell: &Cell, row: &Row, how: &str) {
    let verdict = if row.holds { "holds" } else { "does NOT hold" };
    let figures = row.ours.iter();
    let figures: Vec<_> = figures
        .map(|(name, value)| format!("{name} {value:.3}"))
        .collect();
    eprintln!("{cell}: {verdict}, {} ({how})", figures.join(", "));
}
