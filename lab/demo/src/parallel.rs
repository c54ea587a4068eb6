//! `--parallel`: transfers that start together, by per-flow ECMP and both policies.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use flow_cli::{Signals, print_json};
use flow_testbed::demo::preflight;
use flow_testbed::parallel::{Cell, Options, Row};
use tokio_util::sync::CancellationToken;

/// Which transfers to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Transfers {
    /// Measure transfers that start together instead, as iperf3 -P starts them: how many, such as
    /// 1,2,4,8. Over 2 x 20, 2 x 100 and 100 + 40 Mbit/s, both ways, with and without short flows
    /// beside; the mean of ten repetitions, from two seconds on. Needs iperf3.
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=128))]
    parallel: Vec<u32>,
    /// Round trips without queues, in milliseconds: up to 1 that of the namespaces themselves.
    #[arg(
        long,
        value_name = "MS,...",
        value_delimiter = ',',
        default_value = "0.2,22",
        requires = "parallel"
    )]
    rtt_ms: Vec<f64>,
    /// Only cells whose name contains this, such as 100+40-p2-22ms-down or -mix-.
    #[arg(long, value_name = "NAME", requires = "parallel")]
    cell: Option<String>,
    /// Three repetitions and a choice of cells, in ten minutes at the most.
    #[arg(long, requires = "parallel")]
    quick: bool,
    /// Take over what lies in the directory of a run before, and measure the rest.
    #[arg(long, requires = "parallel")]
    resume: bool,
    /// Directory for a JSON file of each cell.
    #[arg(long, value_name = "DIRECTORY", default_value = "target/fct-parallel")]
    out: PathBuf,
}

impl Transfers {
    pub(crate) fn are_wanted(&self) -> bool {
        !self.parallel.is_empty()
    }

    /// Measures all cells and prints their rows.
    pub(crate) async fn run(&self, splitter: PathBuf, json: bool) -> Result<()> {
        preflight()?;
        let options = Options {
            splitter,
            parallel: self.parallel.clone(),
            round_trips_ms: self.rtt_ms.clone(),
            cell: self.cell.clone(),
            quick: self.quick,
        };
        let cells = options.cells();
        if cells.is_empty() {
            bail!(
                "no cell has such a name; their names are like 20+20-p4-22ms-up and 100+40-mix-p2-0.2ms-down"
            );
        }
        fs::create_dir_all(&self.out)
            .with_context(|| format!("cannot make the directory {}", self.out.display()))?;
        let (out, resume, cancel) = (self.out.clone(), self.resume, CancellationToken::new());
        let cancelled = cancel.clone();
        let measuring = tokio::task::spawn_blocking(move || {
            measure_all(&options, &cells, &out, resume, &cancelled)
        });
        let mut signals = Signals::listen()?;
        let mut measuring = std::pin::pin!(measuring);
        let rows = loop {
            tokio::select! {
                rows = &mut measuring => break rows.context("the measurement panicked")??,
                _ = signals.next() => cancel.cancel(),
            }
        };
        if json {
            return print_json(&rows);
        }
        println!("{}", table(&rows));
        Ok(())
    }
}

fn measure_all(
    options: &Options,
    cells: &[Cell],
    out: &Path,
    resume: bool,
    cancel: &CancellationToken,
) -> Result<Vec<Row>> {
    let mut all = Vec::new();
    for (number, cell) in (1..).zip(cells) {
        let file = out.join(format!("{cell}.json"));
        let known = resume.then(|| read(&file)).flatten();
        let rows = match known {
            Some(rows) => rows,
            None => {
                if cancel.is_cancelled() {
                    bail!("cancelled");
                }
                eprintln!("{number} of {}: {cell}", cells.len());
                let rows = options.measure(cell, cancel)?;
                let text = serde_json::to_string_pretty(&rows).context("rows are plain data")?;
                fs::write(&file, text)
                    .with_context(|| format!("cannot write {}", file.display()))?;
                rows
            }
        };
        all.extend(rows);
    }
    Ok(all)
}

/// The rows of a run before, if they are whole.
fn read(file: &Path) -> Option<Vec<Row>> {
    serde_json::from_str(&fs::read_to_string(file).ok()?).ok()
}

fn table(rows: &[Row]) -> String {
    let mut lines = vec![format!(
        "{:<14} {:>2} {:>7} {:<4} {:<10} {:>9} {:>7} {:>7} {:>8} {:>5} {:>8}",
        "case",
        "P",
        "RTT ms",
        "way",
        "mode",
        "sum",
        "least",
        "shaped",
        "short ms",
        "PAWS",
        "retrans"
    )];
    lines.extend(rows.iter().map(|it| {
        let short_ms = it
            .short_mean_ms
            .map_or_else(|| "-".to_owned(), |it| format!("{it:.2}"));
        format!(
            "{:<14} {:>2} {:>7} {:<4} {:<10} {:>9.1} {:>7.1} {:>7.0} {:>8} {:>5} {:>8}",
            it.case,
            it.parallel,
            it.rtt_ms,
            it.direction.name(),
            it.mode,
            it.sum_mbit,
            it.sum_mbit_min,
            it.shaped_mbit,
            short_ms,
            it.paws_estab,
            it.retransmits
        )
    }));
    lines.join("\n")
}
