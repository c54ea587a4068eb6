//! Arguments of `splitter advise`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueHint};

/// Arguments of `advise`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("file").args(["sizes", "recording"]))]
pub(crate) struct AdviseArgs {
    /// Flows from a CSV file instead of the agent's: a flow's payload in bytes on each line, or
    /// size in bytes and cumulative probability.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) sizes: Option<PathBuf>,
    /// Flows from a recording that `splitter record` made, with its rates and its threshold unless
    /// they are given.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["sizes", "load", "bytes"])]
    pub(crate) recording: Option<PathBuf>,
    /// Load of both tunnels together, in percent.
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = 50,
        requires = "sizes",
        value_parser = clap::value_parser!(u8).range(1..=99)
    )]
    pub(crate) load: u8,
    /// Rates of the short and of the long tunnel in Mbit/s; 100,100 or those of the recording if left
    /// out.
    #[arg(
        long,
        value_name = "SHORT,LONG",
        requires = "file",
        value_parser = rates
    )]
    pub(crate) rates: Option<Rates>,
    /// Round-trip time without queues, in milliseconds.
    #[arg(long, value_name = "MS", default_value = "20", requires = "file", value_parser = positive)]
    pub(crate) rtt_ms: f64,
    /// The threshold to compare with; that of the recording, or 40 packets or 60000 bytes, if left
    /// out.
    #[arg(long, value_name = "N", requires = "file", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) threshold: Option<u32>,
    /// Thresholds in bytes instead of packets.
    #[arg(long, requires = "sizes")]
    pub(crate) bytes: bool,
}

/// Rates of the short and of the long tunnel in Mbit/s.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rates(pub(crate) [f64; 2]);

fn rates(text: &str) -> Result<Rates, String> {
    let (short, long) = text
        .split_once(',')
        .ok_or("give two numbers with a comma between them, such as 100,50")?;
    Ok(Rates([positive(short)?, positive(long)?]))
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if (1e-3..=1e9).contains(&number) => Ok(number),
        _ => Err("give a number from 0.001 to 1000000000".to_owned()),
    }
}
