//! The twin of a network held against that network: flows are recorded, predicted under other policies, and run
//! under them. `cargo xtask` builds and calls it.

mod campaign;
mod measurement;
mod network;
mod page;
mod policy;
mod prediction;
mod row;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};
use clap::{Parser, ValueHint};
use flow_cli::{ExitCode, Signals, print_json};
use flow_testbed::{
    namespace::TUN,
    require::{
        Lacking, Requirement,
        Requirement::{CongestionControl, File, FileSystem, Program, QueueingDiscipline, Root},
    },
};
use tokio_util::sync::CancellationToken;

use crate::{campaign::Campaign, row::Run};

/// Holds predictions of `netsim run --trace` against the network that they are of: real TCP flows over two
/// shaped uplinks are recorded by `splitter record`, predicted under ECMP and under the splitter's policies
/// `dedicated` and `share`, and run under each of them, in network namespaces that vanish with this process.
#[derive(Debug, Parser)]
#[command(name = "twin", bin_name = "cargo xtask twin", version)]
struct Arguments {
    /// Print one JSON array with a row for each policy under each load, and its runs in it, instead of a table.
    #[arg(long)]
    json: bool,
    /// Measure briefly and with three seeds: at most 10 minutes.
    #[arg(long)]
    quick: bool,
    /// Measure nothing: predict again from the recordings of a run before, and compare with what it measured.
    #[arg(long, conflicts_with_all = ["quick", "loads", "seeds", "seconds", "splitter"])]
    again: bool,
    /// How much of both uplinks long flows fill, in percent; 0 leaves short flows alone.
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',', default_value = "0,30",
          value_parser = clap::value_parser!(u32).range(0..=80))]
    loads: Vec<u32>,
    /// How many seeds; the flows of each run once under each policy [default: 10, with --quick 3].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: Option<u64>,
    /// How long flows arrive in each run, in seconds [default: 20, with --quick 10].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: Option<u64>,
    /// Directory for a page with plots, a JSON file and the recordings [default: target/twin].
    #[arg(long, value_name = "DIRECTORY", value_hint = ValueHint::DirPath)]
    out: Option<PathBuf>,
    /// The program `splitter` [default: the one next to this program].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    splitter: Option<PathBuf>,
    /// The program `netsim` [default: the one next to this program].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    netsim: Option<PathBuf>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::process::ExitCode {
    let arguments = Arguments::parse();
    let code = match run(&arguments).await {
        Ok(()) => ExitCode::Ok,
        Err(error) => flow_cli::report_error("twin", &error, ExitCode::Failed, arguments.json),
    };
    code.into()
}

async fn run(arguments: &Arguments) -> Result<()> {
    let campaign = campaign(arguments)?;
    let out = campaign.out.clone();
    let rows = if arguments.again {
        let before = page::read(&out)?;
        let loads: BTreeSet<u32> = before.iter().map(|it| it.load_percent).collect();
        let runs = before.into_iter().flat_map(|it| it.runs).collect();
        row::rows(loads, &campaign.predict_again(runs)?)
    } else {
        require()?;
        let loads = campaign.loads.clone();
        eprintln!(
            "loads: {}, policies: 3, seeds: {}; about {} minutes",
            loads.len(),
            campaign.seeds,
            campaign.duration().as_secs().div_ceil(60)
        );
        row::rows(loads, &measure(campaign).await?)
    };
    page::write(&out, &rows)?;
    if arguments.json {
        print_json(&rows)?;
    } else {
        println!("{}", row::table(&rows).to_text());
    }
    eprintln!("Table and plots: {}", out.join("index.html").display());
    Ok(())
}

/// Checks that the machine can build the testbed.
fn require() -> Result<(), Lacking> {
    [
        Root,
        Program("ip"),
        Program("tc"),
        Program("ethtool"),
        Program("nsenter"),
        File(TUN),
        FileSystem("bpf"),
        QueueingDiscipline("tbf rate 1mbit burst 3100 limit 9000"),
        CongestionControl("cubic"),
    ]
    .into_iter()
    .try_for_each(Requirement::check)
}

fn campaign(arguments: &Arguments) -> Result<Campaign> {
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    let beside = |given: &Option<PathBuf>, name: &str| {
        let given = given.clone();
        given.unwrap_or_else(|| own.with_file_name(name))
    };
    let or = |given: Option<u64>, [full, quick]: [u64; 2]| {
        given.unwrap_or(if arguments.quick { quick } else { full })
    };
    let out = arguments.out.as_deref();
    // Programs that are called in a border's namespaces do not look from this directory.
    let out = std::path::absolute(out.unwrap_or(Path::new("target/twin")));
    Ok(Campaign {
        loads: arguments.loads.clone(),
        seeds: or(arguments.seeds, [10, 3]),
        length: Duration::from_secs(or(arguments.seconds, [20, 10])),
        splitter: beside(&arguments.splitter, "splitter"),
        netsim: beside(&arguments.netsim, "netsim"),
        out: out.context("cannot tell the current directory")?,
    })
}

/// Measures on a thread of its own, so that signals are heard.
async fn measure(campaign: Campaign) -> Result<Vec<Run>> {
    let cancel = CancellationToken::new();
    let cancelled = cancel.clone();
    let measuring = tokio::task::spawn_blocking(move || campaign.run(&cancelled));
    let mut signals = Signals::listen()?;
    let mut measuring = std::pin::pin!(measuring);
    loop {
        tokio::select! {
            measured = &mut measuring => break measured.context("the measurement panicked")?,
            _ = signals.next() => cancel.cancel(),
        }
    }
}
