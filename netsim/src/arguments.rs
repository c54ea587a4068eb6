//! The arguments of `netsim`, from which help and parser come.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use netsim::{Overrides, sweep::Shard};

/// Simulates leaf-spine fabrics, packet by packet.
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
    pub(crate) scenario: String,
    #[command(flatten)]
    pub(crate) overrides: OverrideArguments,
    /// Directory for flows.csv with a row a flow, paths.csv and manifest.json.
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) out: Option<PathBuf>,
    /// Print the manifest instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct OverrideArguments {
    /// A scheme of the scenario, or a balancing policy.
    #[arg(long)]
    scheme: Option<String>,
    /// Seed of the random numbers, instead of the scenario's.
    #[arg(long)]
    seed: Option<u64>,
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
