//! Congestion control measured: our sender through a bottleneck, alone and beside cubic. `cargo
//! xtask` builds and calls it.

mod cell;
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
    cell::{Cell, cells},
    outcome::{Row, table},
};

/// Measures the congestion control of messages: scenarios on bottlenecks of many rates, round
/// trips and queues, in virtual time, with cubic in our place for comparison.
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
    /// 10 and 100 Mbit/s, 10 and 50 ms, all scenarios but incast. Takes half an hour. Needs root,
    /// tc, nft, iperf3 and /dev/net/tun.
    #[arg(long, conflicts_with_all = ["quick", "jobs"])]
    namespaces: bool,
    /// The command; with --namespaces. Without it the one next to this program.
    #[arg(long, value_name = "FILE", requires = "namespaces")]
    cloudburst: Option<PathBuf>,
    /// Directory for a JSON file of each cell and plots of rate and queue over time.
    #[arg(long, default_value = "target/congestion")]
    out: PathBuf,
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
    let directory = arguments.out.join(match arguments {
        Arguments { quick: true, .. } => "quick",
        Arguments {
            namespaces: true, ..
        } => "namespaces",
        _ => "all",
    });
    fs::create_dir_all(&directory)
        .with_context(|| format!("cannot make the directory {}", directory.display()))?;
    let rows = if arguments.namespaces {
        in_namespaces(arguments, &directory, &chosen)?
    } else {
        measure_all(arguments, &directory, &chosen)?
    };
    print(arguments, &rows)
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
fn in_namespaces(arguments: &Arguments, directory: &Path, cells: &[Cell]) -> Result<Vec<Row>> {
    let own = std::env::current_exe().context("cannot find this program")?;
    let program = arguments.cloudburst.clone();
    let program = program.unwrap_or_else(|| own.with_file_name("cloudburst"));
    cells
        .iter()
        .map(|cell| {
            if let Some(row) = known(arguments, directory, cell) {
                return Ok(row);
            }
            let row = namespaces::measure(cell, &program)?;
            row.write(directory, cell)?;
            report(cell, &row, "in namespaces");
            Ok(row)
        })
        .collect()
}

/// The row of a run before, if that is to be taken over.
fn known(arguments: &Arguments, directory: &Path, cell: &Cell) -> Option<Row> {
    let row = arguments.resume.then(|| Row::read(directory, cell));
    row.flatten()
}

/// Measures the cells, several at a time, and reports on each as it ends.
fn measure_all(arguments: &Arguments, directory: &Path, cells: &[Cell]) -> Result<Vec<Row>> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let jobs = arguments.jobs.unwrap_or(cores).max(1);
    let next = AtomicUsize::new(0);
    let rows = Mutex::new(Vec::new());
    let work = || -> Result<()> {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(cell) = cells.get(index) else {
                return Ok(());
            };
            let row = match known(arguments, directory, cell) {
                Some(row) => row,
                None => measure(arguments, directory, cell)?,
            };
            if let Ok(mut rows) = rows.lock() {
                rows.push((index, row));
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
    let mut rows = rows.into_inner().unwrap_or_default();
    rows.sort_by_key(|(index, _)| *index);
    Ok(rows.into_iter().map(|(_, row)| row).collect())
}

fn measure(arguments: &Arguments, directory: &Path, cell: &Cell) -> Result<Row> {
    let began = Instant::now();
    let outcome = scenario::measure(cell, arguments.quick);
    let row = Row::new(cell, &outcome);
    row.write_all(directory, cell, &outcome.curves)?;
    report(
        cell,
        &row,
        &format!("{:.1} s", began.elapsed().as_secs_f64()),
    );
    Ok(row)
}

fn report(cell: &Cell, row: &Row, how: &str) {
    let verdict = if row.holds { "holds" } else { "does NOT hold" };
    let figures = row.ours.iter();
    let figures: Vec<_> = figures
        .map(|(name, value)| format!("{name} {value:.3}"))
        .collect();
    eprintln!("{cell}: {verdict}, {} ({how})", figures.join(", "));
}
