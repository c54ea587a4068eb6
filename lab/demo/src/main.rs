//! The demonstration of the flow splitter: what the split buys, measured on this machine.
//!
//! Per-flow ECMP, per-packet ECMP, an nftables split and the splitter's policies carry the same
//! traffic, by turns, in network namespaces that vanish with this process.

mod parallel;
mod playground;

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Parser, ValueHint};
use flow_cli::{ExitCode, Signals, print_json};
use flow_testbed::demo::{self, Comparison, Contest, Options};
use flow_testbed::experiment::{Progress, Status};
use indicatif::{ProgressBar, ProgressStyle};
use tokio_util::sync::CancellationToken;

/// Where the page with plots goes when nothing else is said.
const DEFAULT_PAGE: &str = "splitter-demo.html";

/// Measure what splitting buys, on real traffic between network namespaces on this machine.
#[derive(Debug, Parser)]
#[command(
    name = "splitter-demo",
    version,
    args_conflicts_with_subcommands = true
)]
struct Arguments {
    #[command(subcommand)]
    instead: Option<Instead>,
    /// How long traffic runs, in all five modes together; at least 5, and 70 if left out. Building
    /// and clearing up take some 20 s more.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(5..=86_400))]
    seconds: Option<u32>,
    /// Where to write the page with plots, which opens without a network: splitter-demo.html if
    /// left out, or nowhere with --json.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    html: Option<PathBuf>,
    /// Background load, in percent of both tunnels, its packets' headers included.
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = 40,
        value_parser = clap::value_parser!(u8).range(0..=95)
    )]
    load: u8,
    /// Rates of the two tunnels, in Mbit/s: if left out the highest of 100, 50, 20 and 10 that this
    /// machine can emulate under this load.
    #[arg(long, value_name = "N,N", value_parser = two_rates)]
    rates: Option<[u32; 2]>,
    /// Compare the policies with ECMP instead, in so many rounds, each with a seed of its own.
    /// They take 10 s a mode and round, whatever --seconds says.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    seeds: Option<u32>,
    /// Put the tunnels' queues behind the borders, which then shape shared tunnels to 97 %.
    #[arg(long)]
    queue_behind: bool,
    #[command(flatten)]
    transfers: parallel::Transfers,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
    /// The program `splitter` [default: the one next to this program, else that in PATH]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    splitter: Option<PathBuf>,
}

/// What there is besides the measurement.
#[derive(Debug, clap::Subcommand)]
enum Instead {
    /// Keep two sites with traffic between them, and what watches them, until Ctrl-C.
    Playground(playground::Playground),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::process::ExitCode {
    let mut arguments = Arguments::parse();
    let result = match arguments.instead.take() {
        Some(Instead::Playground(it)) => match splitter(it.splitter.as_ref()) {
            Ok(splitter) => it.run(splitter).await,
            Err(error) => Err(error),
        },
        None => run(&arguments).await,
    };
    let code = match result {
        Ok(()) => ExitCode::Ok,
        Err(error) => {
            let code = ExitCode::Failed;
            flow_cli::report_error("splitter-demo", &error, code, arguments.json)
        }
    };
    code.into()
}

async fn run(args: &Arguments) -> Result<()> {
    let json = args.json;
    if args.transfers.are_wanted() {
        return args
            .transfers
            .run(splitter(args.splitter.as_ref())?, json)
            .await;
    }
    let mut options = Options {
        splitter: Some(splitter(args.splitter.as_ref())?),
        load_percent: args.load.into(),
        queue_behind_border: args.queue_behind,
        rates_mbit: args.rates,
        ..Options::default()
    };
    if let Some(seeds) = args.seeds {
        options.contest = Contest::Policies { seeds };
    }
    if let Some(seconds) = args.seconds {
        options.total = Duration::from_secs(seconds.into());
    }
    let comparison = measure(options).await?;
    if json {
        print_json(&comparison)?;
    } else {
        println!(
            "{}",
            coloured(&demo::render_text(&comparison), comparison.valid)
        );
    }
    match page(args, json) {
        Some(path) => write_page(&comparison, path, json),
        None => Ok(()),
    }
}

/// In red up to the end of its first paragraph where the comparison is not valid, on a terminal.
fn coloured(text: &str, valid: bool) -> String {
    let colours = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    match text.split_once("\n\n") {
        Some((alarm, rest)) if colours && !valid => {
            format!("\x1b[1;31m{alarm}\x1b[0m\n\n{rest}")
        }
        _ => text.to_owned(),
    }
}

/// The program that is measured: both are built into the same directory.
fn splitter(given: Option<&PathBuf>) -> Result<PathBuf> {
    if let Some(path) = given {
        return Ok(path.clone());
    }
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    let sibling = own.with_file_name("splitter");
    if sibling.exists() {
        return Ok(sibling);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut candidates = std::env::split_paths(&path).map(|it| it.join("splitter"));
    candidates.find(|it| it.exists()).with_context(|| {
        format!(
            "there is no {} and no `splitter` in PATH; build it (`cargo build -p splitter-agent`) or name it with --splitter",
            sibling.display()
        )
    })
}

/// Measures on a thread of its own, so that signals are heard.
async fn measure(options: Options) -> Result<Comparison> {
    let cancel = CancellationToken::new();
    let cancelled = cancel.clone();
    let measuring = tokio::task::spawn_blocking(move || {
        let mut progress = Bar::new(options.total);
        let result = demo::run(&options, &mut progress, &cancelled);
        progress.0.finish_and_clear();
        result
    });
    let mut signals = Signals::listen()?;
    let mut measuring = std::pin::pin!(measuring);
    let result = loop {
        tokio::select! {
            result = &mut measuring => break result,
            _ = signals.next() => cancel.cancel(),
        }
    };
    Ok(result.context("the measurement panicked")??)
}

/// With `--json` a page is written only where it was asked for.
fn page(args: &Arguments, json: bool) -> Option<PathBuf> {
    args.html
        .clone()
        .or_else(|| (!json).then(|| DEFAULT_PAGE.into()))
}

fn write_page(comparison: &Comparison, path: PathBuf, json: bool) -> Result<()> {
    std::fs::write(&path, demo::render_html(comparison))
        .with_context(|| format!("cannot write the page {}", path.display()))?;
    if !json {
        println!("Plots: {}", path.display());
    }
    Ok(())
}

struct Bar(ProgressBar);

impl Bar {
    fn new(total: Duration) -> Self {
        let style = ProgressStyle::with_template("{msg:<34} {bar:30} {percent:>3}% {elapsed}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        // In milliseconds; drawn on standard error, and only if that is a terminal.
        Self(ProgressBar::new(total.as_millis() as u64).with_style(style))
    }
}

impl Progress for Bar {
    fn update(&mut self, status: &Status<'_>) {
        self.0
            .set_position((status.done * self.0.length().unwrap_or(0) as f64) as u64);
        self.0.set_message(status.mode.to_owned());
    }
}

fn two_rates(text: &str) -> Result<[u32; 2], String> {
    let rate = |text: &str| {
        text.trim()
            .parse()
            .ok()
            .filter(|it| (1..=10_000).contains(it))
    };
    let rates: Option<Vec<u32>> = text.split(',').map(rate).collect();
    rates
        .and_then(|rates| rates.try_into().ok())
        .ok_or_else(|| "give two rates from 1 to 10000, such as 100,40".to_owned())
}
