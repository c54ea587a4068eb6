//! Measures the papers' figures anew. `cargo xtask` builds and calls it.

use std::{cell::OnceCell, path::PathBuf, process::ExitCode, str::FromStr};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use flow_report::Table;
use indicatif::{ProgressBar, ProgressStyle};
use reproduction::{
    coding, computation,
    figure::Figure,
    header,
    overhead::{self, Overhead},
    sweep::Sweep,
};

/// Measures the papers' figures anew.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Measure figures of the papers anew and hold them against what is printed there.
    Reproduce(Reproduce),
    /// Measure how many packets a message takes until it can be decoded.
    CodecOverhead(CodecOverhead),
}

#[derive(clap::Args)]
struct Reproduce {
    /// What to measure: C1, C2, C3 (Cloudburst section IV-A). Default: all.
    ids: Vec<Id>,
    /// Directory for one CSV and one SVG file each.
    #[arg(long, default_value = "target/reproduction")]
    out: PathBuf,
    /// Print one JSON array instead of tables.
    #[arg(long)]
    json: bool,
    /// Messages decoded for each pair of n and d; the paper has 100.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
    trials: u64,
    /// What random numbers are drawn with.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(clap::Args)]
struct CodecOverhead {
    /// Print one JSON array instead of a table.
    #[arg(long)]
    json: bool,
    /// Messages for each schedule, size and loss.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    trials: u64,
    /// What random numbers are drawn with.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Id {
    C1,
    C2,
    C3,
}

impl Id {
    const ALL: [(&'static str, Self); 3] = [("C1", Self::C1), ("C2", Self::C2), ("C3", Self::C3)];
}

impl FromStr for Id {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter();
        let found = known
            .clone()
            .find(|(name, _)| name.eq_ignore_ascii_case(text));
        found.map(|(_, id)| id).ok_or_else(|| {
            let names: Vec<_> = known.map(|(name, _)| name).collect();
            format!("there is no such figure; known are {}", names.join(", "))
        })
    }
}

fn main() -> ExitCode {
    let result = match Arguments::parse().task {
        Task::Reproduce(arguments) => reproduce(&arguments),
        Task::CodecOverhead(arguments) => codec_overhead(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn reproduce(arguments: &Reproduce) -> Result<()> {
    // Both halves of the paper's figure 7 come from one experiment.
    let sweep = OnceCell::new();
    let sweep = || {
        sweep.get_or_init(|| {
            let progress = progress(Sweep::cell_count(), "decoding");
            let sweep = Sweep::measure(arguments.trials, arguments.seed, || progress.inc(1));
            progress.finish_and_clear();
            sweep
        })
    };
    let mut figures: Vec<Figure> = Vec::new();
    for (_, id) in Id::ALL {
        if !arguments.ids.is_empty() && !arguments.ids.contains(&id) {
            continue;
        }
        let figure = match id {
            Id::C1 => computation::figure(sweep()),
            Id::C2 => coding::figure(sweep()),
            Id::C3 => header::figure(),
        };
        figure.write(&arguments.out)?;
        figures.push(figure);
    }
    if arguments.json {
        print_json(&figures)
    } else {
        for figure in &figures {
            println!("{}", figure.to_text());
        }
        println!("CSV and SVG files are in {}.", arguments.out.display());
        Ok(())
    }
}

fn codec_overhead(arguments: &CodecOverhead) -> Result<()> {
    let cells = overhead::cells();
    let progress = progress(cells.len(), "sending");
    let mut overheads = Vec::new();
    for cell in cells {
        overheads.push(overhead::measure(cell, arguments.trials, arguments.seed));
        progress.inc(1);
    }
    progress.finish_and_clear();
    if arguments.json {
        return print_json(&overheads);
    }
    println!("{}", overhead_table(&overheads).to_text());
    let verdicts: Vec<bool> = overheads.iter().filter_map(Overhead::meets_goal).collect();
    let met = verdicts.iter().filter(|met| **met).count();
    println!("{met} of {} goals met.", verdicts.len());
    Ok(())
}

fn overhead_table(overheads: &[Overhead]) -> Table {
    let mut table = Table::new([
        "schedule",
        "n",
        "loss",
        "sent mean",
        "p50/p99/p99.9",
        "received - n, mean",
        "p50/p99/p99.9",
        "goal p50/p99",
    ]);
    for it in overheads {
        let goal = it.goal().zip(it.meets_goal()).map(|(goal, met)| {
            let verdict = if met { "met" } else { "missed" };
            format!("{}/{} {verdict}", goal.p50, goal.p99)
        });
        table.row([
            it.schedule.to_owned(),
            it.n.to_string(),
            it.loss.to_string(),
            format!("{:.2}", it.sent_mean),
            format!("{}/{}/{}", it.sent_p50, it.sent_p99, it.sent_p999),
            format!("{:.3}", it.excess_mean),
            format!("{}/{}/{}", it.excess_p50, it.excess_p99, it.excess_p999),
            goal.unwrap_or_default(),
        ]);
    }
    table
}

/// On standard error, and only on a terminal.
fn progress(steps: usize, what: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64).with_message(what);
    match ProgressStyle::with_template("{msg} {bar:40} {pos}/{len}, {eta} left") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn print_json(value: &impl serde::Serialize) -> Result<()> {
    let json = serde_json::to_string_pretty(value).context("cannot encode the results")?;
    println!("{json}");
    Ok(())
}
