//! The arguments of `netsim`, from which help and parser come.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use flow_twin::{Scheme, Uplink};
use netsim::{Overrides, sweep::Shard};

/// Simulates leaf-spine fabrics, fat trees and other topologies, packet by packet.
#[derive(Parser)]
#[command(name = "netsim", version, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run a scenario once, and print completion times by size.
    Run(Run),
    /// Show scenarios, their schemes and the distributions of sizes that are built in.
    List(List),
    /// Run a scenario with many schemes, loads and seeds over all cores.
    Sweep(Sweep),
    /// Make one sweep of its shards, with the same bytes as if one machine had run all of it.
    Merge(Merge),
    /// Measure how fast the simulator itself is.
    Bench(Bench),
}

#[derive(Args)]
pub(crate) struct Run {
    /// A file, or the name of a scenario that is built in.
    #[arg(required_unless_present = "trace")]
    pub(crate) scenario: Option<String>,
    #[command(flatten)]
    pub(crate) overrides: OverrideArguments,
    #[command(flatten)]
    pub(crate) trace: TraceArguments,
    /// Directory for flows.csv with a row a flow, paths.csv, iterations.csv where there are collective
    /// operations, and manifest.json; with --trace for index.html and twin.json.
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) out: Option<PathBuf>,
    /// Print the manifest instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A recording in the place of a scenario.
#[derive(Args)]
#[command(next_help_heading = "A twin of one's own network")]
pub(crate) struct TraceArguments {
    /// Run the flows of a recording that `splitter record` made, over --uplinks, under each of
    /// --schemes.
    #[arg(
        long,
        value_name = "FILE",
        requires = "uplinks",
        conflicts_with_all = ["scenario", "scheme", "load", "messages"]
    )]
    pub(crate) trace: Option<PathBuf>,
    /// Uplinks, 1 to 8, separated by commas: rate and round-trip time, such as
    /// 100mbit/10ms,50mbit/20ms. Of two, the first is the splitter's short tunnel.
    #[arg(
        long,
        requires = "trace",
        conflicts_with = "scenario",
        value_delimiter = ',',
        value_name = "RATE/RTT"
    )]
    pub(crate) uplinks: Vec<Uplink>,
    /// Schemes, separated by commas: ecmp, spray, fair, dedicated, share, tr, the last three also with a
    /// threshold of their own, as in share@100. Without it all of them but spray, and dedicated and share
    /// with four times the threshold.
    #[arg(
        long,
        requires = "trace",
        conflicts_with = "scenario",
        value_delimiter = ',',
        value_name = "SCHEME"
    )]
    pub(crate) schemes: Vec<Scheme>,
    /// Threshold between short and long flows instead of the recording's, in its unit.
    #[arg(long, requires = "trace", conflicts_with = "scenario", value_name = "N", value_parser = clap::value_parser!(u64).range(1..=u64::from(u32::MAX)))]
    pub(crate) threshold: Option<u64>,
    /// What each queue in front of an uplink holds, in milliseconds of its rate.
    #[arg(long, requires = "trace", conflicts_with = "scenario", value_name = "MS", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(crate) buffer_ms: u64,
    /// Leave out so much of the beginning: seconds, or with a unit as in 10h.
    #[arg(long, requires = "trace", conflicts_with = "scenario", value_name = "TIME", value_parser = seconds_or_none)]
    pub(crate) skip: Option<u64>,
    /// Simulate so much of the recording: seconds, or with a unit as in 30m. Without it all.
    #[arg(long = "for", requires = "trace", conflicts_with = "scenario", value_name = "TIME", value_parser = seconds)]
    pub(crate) time: Option<u64>,
    /// Schemes at the same time; without it as many as there are cores.
    #[arg(long, requires = "trace", conflicts_with = "scenario", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) jobs: Option<u16>,
}

/// Reads a time of whole seconds, minutes, hours or days.
fn seconds(text: &str) -> Result<u64, String> {
    seconds_from(1, text)
}

/// Reads such a time, which may be none.
fn seconds_or_none(text: &str) -> Result<u64, String> {
    seconds_from(0, text)
}

fn seconds_from(least: u64, text: &str) -> Result<u64, String> {
    let units = [("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400), ("", 1)];
    let parsed = units.iter().find_map(|(unit, factor)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(*factor)
    });
    parsed
        .filter(|it| (least..=366 * 86_400).contains(it))
        .ok_or_else(|| format!("give a time from {least}s to 366d, such as 60s, 30m or 10h"))
}

#[derive(Args)]
pub(crate) struct OverrideArguments {
    /// A scheme of the scenario, or a balancing policy.
    #[arg(long)]
    scheme: Option<String>,
    /// Seed of the random numbers, instead of the scenario's.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Load instead of the scenario's, a share of the senders' links.
    #[arg(long)]
    load: Option<f64>,
    /// Number of messages instead of the scenario's.
    #[arg(long)]
    messages: Option<u32>,
}

impl From<&OverrideArguments> for Overrides {
    fn from(arguments: &OverrideArguments) -> Self {
        Self {
            scheme: arguments.scheme.clone(),
            seed: arguments.seed,
            load: arguments.load,
            messages: arguments.messages,
        }
    }
}

#[derive(Args)]
pub(crate) struct List {
    /// Print one JSON array instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct Sweep {
    /// A file, or the name of a scenario that is built in.
    pub(crate) scenario: String,
    /// Schemes, separated by commas; without it all of the scenario's.
    #[arg(long, value_delimiter = ',')]
    pub(crate) schemes: Vec<String>,
    /// Loads, separated by commas; without it those of the scenario.
    #[arg(long, value_delimiter = ',')]
    pub(crate) loads: Vec<f64>,
    /// How many seeds, from 1 on.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(crate) seeds: u64,
    /// Number of messages instead of the scenario's.
    #[arg(long)]
    pub(crate) messages: Option<u32>,
    /// Keep the rows of each run too: its flows, links and iterations, as CSV files next to its manifest.
    #[arg(long)]
    pub(crate) rows: bool,
    /// Run the Ith of N parts alone, from 1/N to N/N: on other machines, at other times, in the same
    /// directory or in others. `netsim merge` makes one sweep of them.
    #[arg(long, value_name = "I/N", default_value_t = Shard::WHOLE, hide_default_value = true)]
    pub(crate) shard: Shard,
    /// Runs at the same time; without it as many as there are cores.
    #[arg(long)]
    pub(crate) jobs: Option<usize>,
    /// Directory for each run's manifest, sweep.csv and index.html. What is there of the same
    /// settings is not run again. Without it netsim-NAME.
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) out: Option<PathBuf>,
    /// Print one JSON array instead of a table; of a shard an object that counts its runs.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct Merge {
    /// Directories of the shards; one will do where all have written into the same.
    #[arg(required = true, value_name = "DIRECTORY")]
    pub(crate) directories: Vec<PathBuf>,
    /// Directory for the manifests, sweep.csv and index.html. Without it netsim-NAME.
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) out: Option<PathBuf>,
    /// Print one JSON array instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct Bench {
    /// A file, or the name of a scenario that is built in.
    #[arg(default_value = "tr-large")]
    pub(crate) scenario: String,
    #[command(flatten)]
    pub(crate) overrides: OverrideArguments,
    /// Print one JSON object instead of a sentence.
    #[arg(long)]
    pub(crate) json: bool,
}
