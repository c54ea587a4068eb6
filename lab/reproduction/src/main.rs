//! Reproduces the papers' figures. `cargo xtask` builds and calls it.

use std::{cell::OnceCell, path::PathBuf, process::ExitCode, thread};

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use flow_report::Table;
use netsim::sweep::Shard;
use reproduction::{
    artefact::{self, Artefact, Clock},
    book,
    changes::Changes,
    cloudburst, coding, computation,
    figure::Figure,
    header,
    id::{self, Id},
    made_by, notes, ns3,
    overhead::{self, Overhead},
    pages, progress,
    splitter::{
        self,
        columns::{self, Simulation},
    },
    sweep::Sweep,
    tr::{Effort, Simulated},
};

/// Reproduces the papers' figures.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Reproduce figures of the papers and hold them against what is printed there.
    Reproduce(Reproduce),
    /// Measure how many packets a message takes until it can be decoded.
    CodecOverhead(CodecOverhead),
    /// Hold the simulator against ns-3: completion times, and speed.
    Ns3(Ns3),
}

#[derive(clap::Args)]
struct Ns3 {
    /// Directory for ns-3's program and what it reads.
    #[arg(long, default_value = "target/ns3")]
    out: PathBuf,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
    /// Compare only the cases of loss recovery, spraying, flowlets and PIAS whose names contain this, such as "no marks".
    #[arg(long, value_name = "NAME")]
    case: Option<String>,
    /// Seeds of each of these cases.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Things in which ns-3's senders are to follow the RFCs: `all`, or names in netsim/ns3/sender.h with commas between, such as
    /// "flight,recover".
    #[arg(
        long,
        value_name = "NAMES",
        default_value = "",
        hide_default_value = true
    )]
    mend: String,
}

#[derive(clap::Args)]
struct Reproduce {
    /// Figures to measure: S1 to S6 (the splitter, on real packets), C1 to C13 (Cloudburst), T1 to T16
    /// (TR), or all. Default: all. Two are not among them: grid varies what Cloudburst leaves open of its testbed, and
    /// scores C4, C5, C6 and C9 together; wan is S1 to S4 and S6 in the simulator alone, at 100 Mbit/s, 1 and 10 Gbit/s.
    ids: Vec<Id>,
    /// Directory for index.html, artefact.json (machine, commit, and what each item took), and CSV and
    /// SVG files for each figure. Runs of the simulator that lie there, of the same settings, are not
    /// run again.
    #[arg(long, default_value = "target/reproduction")]
    out: PathBuf,
    /// Also keep each item's CSV and SVG files in DIR, and in its provenance.csv the command, seeds, commit
    /// and date: those of the book are in docs/src/reproduction/results, and those of further runs in results-NAME beside
    /// it. Takes sources that are committed.
    #[arg(long, value_name = "DIR", conflicts_with = "shard")]
    keep: Option<PathBuf>,
    /// Print one JSON array instead of tables.
    #[arg(long)]
    json: bool,
    /// Measure everything from less: minutes instead of hours, with wide intervals.
    #[arg(long)]
    quick: bool,
    /// C1, C2: messages decoded for each pair of n and d, as in the paper 100 with --quick, else
    /// 1000.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    trials: Option<u64>,
    /// S1 to S6, wan, C4 to C11, T1 to T14, grid: seeds of each experiment; without it 2 or 3 with --quick, else
    /// 5, 10 or 20 (grid: 1 with --quick, else 5).
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: Option<u64>,
    /// C4 to C11 but C8, grid: messages of a run. T10 to T14: flows of a run; the paper has 50,000.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    flows: Option<u32>,
    /// Runs of the simulator at the same time; without it as many as there are cores.
    #[arg(long)]
    jobs: Option<usize>,
    /// C4 to C11, T1 to T14, T16, grid: make the Ith of N parts of the runs alone, from 1/N to N/N, and no figures:
    /// on other machines, with an --out that all share, or whose runs/ are copied into one. The same
    /// command without it then makes the figures.
    #[arg(long, value_name = "I/N", default_value_t = Shard::WHOLE, hide_default_value = true)]
    shard: Shard,
    /// C4 to C11, T1 to T14, T16, grid: a setting of netsim's scenarios that all runs have in the place of their own, as in
    /// --set transport.excludes_limited_transmit=true; can be repeated. Give such runs an --out of their own.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<Changes>,
    /// C1, C2: what random numbers are drawn with.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// S1 to S6: the program `splitter` [default: the one next to this program].
    #[arg(long, value_name = "FILE")]
    splitter: Option<PathBuf>,
}

#[derive(clap::Args)]
struct CodecOverhead {
    /// Print one JSON array instead of a table.
    #[arg(long)]
    json: bool,
    /// Messages for each schedule, size and loss.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    trials: u64,
    /// Seed of the random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().task {
        Task::Reproduce(arguments) => reproduce(&arguments),
        Task::CodecOverhead(arguments) => codec_overhead(&arguments),
        Task::Ns3(arguments) => beside_ns3(&arguments),
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
    check_settings(arguments)?;
    if !arguments.shard.is_whole() {
        return run_shard(arguments);
    }
    // Both halves of the paper's figure 7 come from one experiment.
    let sweep = OnceCell::new();
    let trials = arguments
        .trials
        .unwrap_or(if arguments.quick { 100 } else { 1_000 });
    let sweep = || {
        sweep.get_or_init(|| {
            let progress = progress(Sweep::cell_count(), "decoding");
            let sweep = Sweep::measure(trials, arguments.seed, || progress.inc(1));
            progress.finish_and_clear();
            sweep
        })
    };
    let simulated = Simulated::new(effort(arguments), &arguments.out);
    let bursts = cloudburst::Simulated::new(burst_effort(arguments), &arguments.out);
    let packets =
        splitter::Measured::new(packet_effort(arguments), &arguments.out, agent(arguments)?);
    let simulation = Simulation::new(&packet_effort(arguments), &arguments.out, jobs(arguments));
    let mut figures: Vec<Figure> = Vec::new();
    let mut artefact = Artefact::new(command());
    made_by::note(&arguments.out, artefact.commit.as_deref())?;
    for id in id::chosen(&arguments.ids) {
        let clock = Clock::start(&arguments.out);
        let figure = match id {
            Id::Splitter(number) if columns::SIMULATED.contains(&number) => {
                simulation.beside(number, packets.figure(number)?)?
            }
            Id::Splitter(number) => packets.figure(number)?,
            Id::Wan => simulation.figure()?,
            Id::Cloudburst(1) => computation::figure(sweep()),
            Id::Cloudburst(2) => coding::figure(sweep()),
            Id::Cloudburst(3) | Id::All => header::figure(),
            Id::Cloudburst(12) => notes::coding_model(),
            Id::Cloudburst(13) => notes::headline(),
            Id::Cloudburst(number) => bursts.figure(number)?,
            Id::Grid => bursts.grid()?,
            Id::Tr(number) => simulated.figure(number)?,
        };
        let figure = figure.corrected();
        figure.write(&arguments.out)?;
        artefact.items.push(clock.cost(figure.id, &arguments.out));
        figures.push(figure);
    }
    pages::write(&figures, &artefact, &arguments.out)?;
    artefact.write(&arguments.out)?;
    if let Some(directory) = &arguments.keep {
        made_by::check(
            &arguments.out,
            artefact.commit.as_deref().unwrap_or_default(),
        )?;
        book::keep(&figures, &artefact, |id| seeds(arguments, id), directory)?;
    }
    if arguments.json {
        let items: Result<Vec<_>> = figures.iter().map(Figure::item).collect();
        return print_json(&items?);
    }
    for figure in &figures {
        println!("{}", figure.to_text());
    }
    println!(
        "{} has all of it.",
        arguments.out.join("index.html").display()
    );
    Ok(())
}

/// Refuses settings for items that would have nothing of them.
fn check_settings(arguments: &Reproduce) -> Result<()> {
    let without = id::chosen(&arguments.ids).find(|it| !it.takes_settings());
    match without {
        Some(id) if !arguments.set.is_empty() => bail!(
            "--set changes nothing of {id}; name items that it does: C4 to C11, T1 to T14, T16, grid"
        ),
        _ => Ok(()),
    }
}

/// Makes a shard of the runs of all simulated figures that are asked for.
fn run_shard(arguments: &Reproduce) -> Result<()> {
    made_by::note(&arguments.out, artefact::commit().as_deref())?;
    let simulated = Simulated::new(effort(arguments), &arguments.out);
    let bursts = cloudburst::Simulated::new(burst_effort(arguments), &arguments.out);
    for id in id::chosen(&arguments.ids) {
        match id {
            Id::Cloudburst(number) => bursts.prepare(number)?,
            Id::Grid => bursts.prepare_grid().map(drop)?,
            Id::Tr(number) => simulated.prepare(number)?,
            // Packets are measured where the figures are made, and simulated there beside them.
            Id::Splitter(_) | Id::Wan | Id::All => (),
        }
    }
    let shard = arguments.shard.to_string();
    if arguments.json {
        return print_json(&serde_json::json!({ "shard": shard }));
    }
    println!(
        "Shard {shard} has run. When all have, the same command without --shard makes the figures."
    );
    Ok(())
}

/// The command as it was given, but for where it writes and how many processors it takes, which changes no result.
fn command() -> String {
    const ELSEWHERE: [&str; 3] = ["--out", "--keep", "--jobs"];
    let mut words = vec!["cargo".to_owned(), "xtask".to_owned()];
    let mut arguments = std::env::args_os().skip(1);
    while let Some(word) = arguments.next() {
        let word = word.to_string_lossy().into_owned();
        if ELSEWHERE.contains(&word.as_str()) {
            arguments.next();
        } else if !ELSEWHERE
            .iter()
            .any(|it| word.starts_with(&format!("{it}=")))
        {
            words.push(word);
        }
    }
    words.join(" ")
}

/// What random numbers an item is drawn with, for people.
fn seeds(arguments: &Reproduce, id: &str) -> String {
    let Ok(id) = id.parse() else {
        return String::new();
    };
    let (tr, bursts) = (effort(arguments), burst_effort(arguments));
    let count = match id {
        Id::Splitter(_) | Id::Wan => packet_effort(arguments).rounds,
        Id::Cloudburst(1 | 2) => return arguments.seed.to_string(),
        Id::Cloudburst(8) => bursts.incast_seeds,
        Id::Cloudburst(4..=9) => bursts.testbed_seeds,
        Id::Cloudburst(10 | 11) => bursts.large_seeds,
        Id::Grid => bursts.grid_seeds,
        Id::Tr(1..=4 | 7 | 8) => tr.motivation_seeds,
        Id::Tr(5 | 6) => tr.model_seeds,
        Id::Tr(9) => tr.threshold_seeds,
        Id::Tr(10..=14) => tr.large_seeds,
        Id::Tr(16) => {
            let (two, many) = (tr.motivation_seeds, tr.large_seeds);
            return format!("1 to {two} with two leaves, 1 to {many} with ten");
        }
        Id::All | Id::Cloudburst(_) | Id::Tr(_) => return "none".to_owned(),
    };
    format!("1 to {count}")
}

/// Without ns-3 that is said, and no failure.
fn beside_ns3(arguments: &Ns3) -> Result<()> {
    let selection = ns3::Selection {
        case: arguments.case.clone(),
        seeds: arguments.seeds,
        mend: arguments.mend.clone(),
    };
    let comparison = match ns3::compare(&arguments.out, &selection)? {
        Ok(comparison) => comparison,
        Err(missing) => {
            eprintln!("SKIPPED ns3: {missing}");
            if arguments.json {
                return print_json(&serde_json::json!({ "skipped": missing }));
            }
            return Ok(());
        }
    };
    if arguments.json {
        print_json(&comparison)?;
    } else {
        println!("{}", comparison.to_text());
    }
    anyhow::ensure!(comparison.holds(), "something is outside its bounds");
    Ok(())
}

fn jobs(arguments: &Reproduce) -> usize {
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    arguments.jobs.unwrap_or_else(cores)
}

fn packet_effort(arguments: &Reproduce) -> splitter::Effort {
    let effort = if arguments.quick {
        splitter::Effort::quick()
    } else {
        splitter::Effort::full()
    };
    splitter::Effort {
        rounds: arguments.seeds.unwrap_or(effort.rounds),
        ..effort
    }
}

/// The agent that S1 to S6 run; `cargo xtask` builds both into the same directory.
fn agent(arguments: &Reproduce) -> Result<PathBuf> {
    if let Some(splitter) = &arguments.splitter {
        return Ok(splitter.clone());
    }
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    Ok(own.with_file_name("splitter"))
}

fn burst_effort(arguments: &Reproduce) -> cloudburst::Effort {
    let jobs = jobs(arguments);
    let effort = if arguments.quick {
        cloudburst::Effort::quick(jobs)
    } else {
        cloudburst::Effort::full(jobs)
    };
    cloudburst::Effort {
        testbed_seeds: arguments.seeds.unwrap_or(effort.testbed_seeds),
        incast_seeds: arguments.seeds.unwrap_or(effort.incast_seeds),
        large_seeds: arguments.seeds.unwrap_or(effort.large_seeds),
        testbed_messages: arguments.flows.unwrap_or(effort.testbed_messages),
        large_messages: arguments.flows.unwrap_or(effort.large_messages),
        grid_seeds: arguments.seeds.unwrap_or(effort.grid_seeds),
        grid_messages: arguments.flows.unwrap_or(effort.grid_messages),
        changes: changes(arguments),
        shard: arguments.shard,
        ..effort
    }
}

fn effort(arguments: &Reproduce) -> Effort {
    let jobs = jobs(arguments);
    let effort = if arguments.quick {
        Effort::quick(jobs)
    } else {
        Effort::full(jobs)
    };
    let seeds = |without| arguments.seeds.unwrap_or(without);
    Effort {
        motivation_seeds: seeds(effort.motivation_seeds),
        model_seeds: seeds(effort.model_seeds),
        threshold_seeds: seeds(effort.threshold_seeds),
        large_seeds: seeds(effort.large_seeds),
        large_flows: arguments.flows.unwrap_or(effort.large_flows),
        changes: changes(arguments),
        shard: arguments.shard,
        ..effort
    }
}

fn changes(arguments: &Reproduce) -> Changes {
    let mut all = Changes::default();
    for it in &arguments.set {
        all.add(it);
    }
    all
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

fn print_json(value: &impl serde::Serialize) -> Result<()> {
    let json = serde_json::to_string_pretty(value).context("cannot encode the results")?;
    println!("{json}");
    Ok(())
}
