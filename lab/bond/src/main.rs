//! Bonding measured: one TCP flow, or several, over unequal tunnels. `cargo xtask` builds and calls it.

mod bulk;
mod campaign;
mod cell;
mod measurement;
mod rig;
mod row;
mod scheme;

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, bail};
use clap::{Parser, ValueHint};
use flow_cli::{ExitCode, print_json};
use flow_testbed::campaign::{Campaign, Skip};

use crate::{
    campaign::Bonding,
    cell::Cell,
    measurement::Timing,
    rig::Rig,
    row::{Row, table},
    scheme::Scheme,
};

/// Measures what one TCP flow, or several, get of unequal tunnels, and in which order their packets arrive: the
/// best single tunnel, kernel ECMP, MPTCP and the splitter's balancers take turns, in network namespaces that
/// vanish with this process.
#[derive(Debug, Parser)]
#[command(name = "bond", bin_name = "cargo xtask bond", version)]
struct Arguments {
    /// Print one JSON array with a row for each run instead of a table.
    #[arg(long)]
    json: bool,
    /// Measure three cells, briefly and with three seeds: at most 10 minutes. Cells that are named are measured
    /// as briefly.
    #[arg(long)]
    quick: bool,
    /// Measure only cells whose name contains this: tunnels, flows, direction, loss in percent and jitter in ms,
    /// as in 30+8-f1-up-loss0.5-jitter1, or a tunnel that is cut, as in 30+8-f1-up-cut0.
    #[arg(long, value_name = "NAME")]
    cell: Option<String>,
    /// Take over the cells that lie in the directory of a run before, and measure the rest.
    #[arg(long)]
    resume: bool,
    /// Measure only these schemes, such as best_single,tr.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = scheme)]
    scheme: Vec<Scheme>,
    /// How many seeds; all schemes run once with each [default: 5, with --quick 3].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: Option<u64>,
    /// How long each run counts, in seconds [default: 6, with --quick 3].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: Option<u64>,
    /// Directory for a JSON file of each finished cell [default: target/bond, with --quick target/bond/quick].
    #[arg(long, value_name = "DIRECTORY", value_hint = ValueHint::DirPath)]
    out: Option<PathBuf>,
    /// The program `splitter` [default: the one next to this program].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    splitter: Option<PathBuf>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::process::ExitCode {
    let arguments = Arguments::parse();
    let code = match run(&arguments).await {
        Ok(()) => ExitCode::Ok,
        Err(error) => flow_cli::report_error("bond", &error, ExitCode::Failed, arguments.json),
    };
    code.into()
}

async fn run(arguments: &Arguments) -> Result<()> {
    let campaign = campaign(arguments)?;
    Rig::require()?;
    let cells = campaign.cells.clone();
    let (rows, skips) = campaign.run_until_signal().await?;
    print(arguments, &cells, &rows, &skips)
}

fn campaign(arguments: &Arguments) -> Result<Campaign<Bonding>> {
    let quick = arguments.quick;
    let cells = cell::chosen(arguments.cell.as_deref(), quick);
    if cells.is_empty() {
        bail!(
            "no cell has such a name; their names are like {} and {}",
            cell::all()[0],
            cell::all()[107]
        );
    }
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    let splitter = arguments.splitter.clone();
    let schemes = arguments.scheme.clone();
    let mut timing = if quick { Timing::QUICK } else { Timing::FULL };
    if let Some(seconds) = arguments.seconds {
        timing = timing.counting_for(Duration::from_secs(seconds));
    }
    let out = if quick {
        "target/bond/quick"
    } else {
        "target/bond"
    };
    let measurement = Bonding {
        timing,
        splitter: splitter.unwrap_or_else(|| own.with_file_name("splitter")),
    };
    Ok(Campaign {
        measurement,
        cells,
        schemes: if schemes.is_empty() {
            Scheme::ALL.to_vec()
        } else {
            schemes
        },
        seeds: arguments.seeds.unwrap_or(if quick { 3 } else { 5 }),
        out: arguments.out.clone().unwrap_or_else(|| out.into()),
        resume: arguments.resume,
    })
}

fn print(arguments: &Arguments, cells: &[Cell], rows: &[Row], skips: &[Skip]) -> Result<()> {
    if arguments.json {
        print_json(&rows)?;
    } else {
        println!("{}", table(cells, rows, skips).to_text());
    }
    // Nothing that was not measured passes for measured.
    eprintln!("{} runs, {} not available", rows.len(), skips.len());
    for skip in skips {
        eprintln!("  {skip}");
    }
    Ok(())
}

fn scheme(name: &str) -> Result<Scheme, String> {
    let known = Scheme::ALL.into_iter().find(|it| it.name() == name);
    known.ok_or_else(|| {
        let names = Scheme::ALL.map(Scheme::name).join(", ");
        format!("there is no such scheme; there are {names}")
    })
}
