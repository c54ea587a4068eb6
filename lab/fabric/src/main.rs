//! A leaf-spine fabric measured: how long TCP flows take by each way to choose paths. `cargo xtask` builds and
//! calls it.

mod campaign;
mod cell;
mod change;
mod forecast;
mod measurement;
mod prediction;
mod program;
mod rig;
mod roles;
mod row;
mod schedule;
mod scheme;
mod tcp;

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, bail};
use clap::{Parser, ValueHint};
use flow_cli::{ExitCode, print_json};
use flow_testbed::campaign::{Campaign, Skip};

use crate::{
    campaign::Fabric,
    cell::{Cell, Shape},
    forecast::{ForecastArguments, MOST_SEEDS},
    measurement::Timing,
    rig::Rig,
    row::{Row, table},
    scheme::Scheme,
    tcp::{Control, Recovery, Tcp},
};

/// Measures completion times of TCP flows in a leaf-spine fabric whose leaves choose a path by kernel ECMP or by
/// the splitter's balancers, which take turns, in network namespaces that vanish with this process. Beside each
/// figure stands what the simulator predicts for the same flows.
#[derive(Debug, Parser)]
#[command(name = "fabric", bin_name = "cargo xtask fabric", version)]
struct Arguments {
    /// Print one JSON array with a row for each run and size class instead of a table.
    #[arg(long)]
    json: bool,
    /// Measure two cells, briefly and with three seeds: at most 10 minutes. Cells that are named are measured as
    /// briefly.
    #[arg(long)]
    quick: bool,
    /// Measure only cells whose name contains this: leaves and spines, asymmetry, sizes and load, as in
    /// 2x2-asym2.5-web_search-load0.6, or a fault: spine_dies or leaf_restarts.
    #[arg(long, value_name = "NAME")]
    cell: Option<String>,
    /// Take over the cells that lie in the directory of a run before, and measure the rest.
    #[arg(long)]
    resume: bool,
    /// Measure only these schemes, such as ecmp_flow,tr.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = scheme)]
    scheme: Vec<Scheme>,
    /// How many leaves.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(2..=4))]
    leaves: u8,
    /// How many spines: as many paths between two leaves.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(2..=4))]
    spines: u8,
    /// How many hosts at each leaf.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(2..=4))]
    hosts: u8,
    /// Rate of the links of spines that are not slow, in Mbit/s.
    #[arg(long, value_name = "N", default_value_t = 70, value_parser = clap::value_parser!(u32).range(10..=100))]
    rate_mbit: u32,
    /// Bytes that the shaper of a link lets out at once after a pause: two packets if left out, and at least one.
    #[arg(long, value_name = "N", default_value_t = 3_100, value_parser = clap::value_parser!(u32).range(1_600..=64_000))]
    burst_bytes: u32,
    /// Congestion control of the hosts.
    #[arg(long, value_name = "NAME", value_enum, default_value_t = Control::Cubic)]
    tcp: Control,
    /// Loss recovery of the hosts: as Linux has it, or without RACK and tail loss probes, which Linux has up to 6.16 alone.
    #[arg(long, value_name = "NAME", value_enum, default_value_t = Recovery::Rack)]
    recovery: Recovery,
    /// How many seeds; all schemes run once with each [default: 5, with --quick 3].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST_SEEDS))]
    seeds: Option<u64>,
    /// For how long flows start that count, in seconds [default: 10, with --quick 4].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: Option<u64>,
    /// Directory for a JSON file of each finished cell [default: target/fabric, with --quick target/fabric/quick].
    #[arg(long, value_name = "DIRECTORY", value_hint = ValueHint::DirPath)]
    out: Option<PathBuf>,
    /// The program `splitter` [default: the one next to this program].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    splitter: Option<PathBuf>,
    #[command(flatten)]
    forecast: ForecastArguments,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::process::ExitCode {
    let arguments = Arguments::parse();
    let code = match run(&arguments).await {
        Ok(()) => ExitCode::Ok,
        Err(error) => flow_cli::report_error("fabric", &error, ExitCode::Failed, arguments.json),
    };
    code.into()
}

async fn run(arguments: &Arguments) -> Result<()> {
    if arguments.forecast.predict {
        return predict(arguments);
    }
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    if let Some(obstacle) = arguments.recovery.obstacle(release.trim()) {
        bail!("{obstacle}");
    }
    let campaign = campaign(arguments)?;
    Rig::require()?;
    let cells = campaign.cells.clone();
    let (rows, skips) = campaign.run_until_signal().await?;
    print(arguments, &cells, &rows, &skips)
}

/// Says what the simulator has, and measures nothing.
fn predict(arguments: &Arguments) -> Result<()> {
    let timing = timing(arguments);
    let schemes = &arguments.scheme;
    let forecast = &arguments.forecast;
    // As with cells, what was measured says which.
    let seeds = if forecast.measured.is_empty() {
        seeds(arguments)
    } else {
        arguments.seeds.unwrap_or(MOST_SEEDS)
    };
    let rows = forecast
        .forecast(cells(arguments)?, schemes, seeds, timing)?
        .run()?;
    if arguments.json {
        return print_json(&rows);
    }
    let table = forecast::table(&rows);
    if !forecast.csv {
        println!("{}", table.to_text());
        return Ok(());
    }
    let mut csv = csv::Writer::from_writer(std::io::stdout());
    table.records().try_for_each(|it| csv.write_record(it))?;
    Ok(csv.flush()?)
}

fn shape(arguments: &Arguments) -> Shape {
    Shape {
        leaves: arguments.leaves,
        spines: arguments.spines,
        hosts: arguments.hosts,
        rate_mbit: arguments.rate_mbit,
        burst_bytes: arguments.burst_bytes,
        tcp: Tcp {
            control: arguments.tcp,
            recovery: arguments.recovery,
        },
    }
}

fn cells(arguments: &Arguments) -> Result<Vec<Cell>> {
    let shape = shape(arguments);
    // What was measured says which.
    let is_short = arguments.quick && arguments.forecast.measured.is_empty();
    let cells = cell::chosen(shape, arguments.cell.as_deref(), is_short);
    if cells.is_empty() {
        let all = cell::all(shape);
        bail!(
            "no cell has such a name; their names are like {} and {}",
            all[0],
            all[all.len() - 1]
        );
    }
    Ok(cells)
}

fn seeds(arguments: &Arguments) -> u64 {
    arguments
        .seeds
        .unwrap_or(if arguments.quick { 3 } else { 5 })
}

fn timing(arguments: &Arguments) -> Timing {
    let mut timing = if arguments.quick {
        Timing::QUICK
    } else {
        Timing::FULL
    };
    if let Some(seconds) = arguments.seconds {
        timing.counting = Duration::from_secs(seconds);
    }
    timing
}

fn campaign(arguments: &Arguments) -> Result<Campaign<Fabric>> {
    let cells = cells(arguments)?;
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    let splitter = arguments.splitter.clone();
    let schemes = arguments.scheme.clone();
    let out = if arguments.quick {
        "target/fabric/quick"
    } else {
        "target/fabric"
    };
    Ok(Campaign {
        measurement: Fabric {
            timing: timing(arguments),
            shape: shape(arguments),
            splitter: splitter.unwrap_or_else(|| own.with_file_name("splitter")),
        },
        cells,
        schemes: if schemes.is_empty() {
            Scheme::ALL.to_vec()
        } else {
            schemes
        },
        seeds: seeds(arguments),
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
    eprintln!("{} rows, {} not available", rows.len(), skips.len());
    for skip in skips {
        eprintln!("  {skip}");
    }
    Ok(())
}

fn scheme(name: &str) -> Result<Scheme, String> {
    let known = || Scheme::ALL.into_iter().chain(Scheme::CONTROLS);
    known().find(|it| it.name() == name).ok_or_else(|| {
        let names: Vec<_> = known().map(Scheme::name).collect();
        let names = names.join(", ");
        format!("there is no such scheme; there are {names}")
    })
}
