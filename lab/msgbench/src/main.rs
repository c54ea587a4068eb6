//! Measures how long small messages take over several paths. `cargo xtask msgbench` builds and
//! calls it.

mod arguments;

use std::{fs, path::Path, process::ExitCode, thread, time::Duration};

use anyhow::{Context as _, Result, bail};
use clap::Parser as _;
use indicatif::{ProgressBar, ProgressStyle};
use msgbench::{
    campaign::{Campaign, Observer},
    cell::Cell,
    goals, output,
    rig::Rig,
    summary::Row,
};
use tokio::{runtime, signal};
use tokio_util::sync::CancellationToken;

use crate::arguments::Arguments;

/// Exit code by which shells report that Ctrl-C has ended a program.
const INTERRUPTED: u8 = 130;
/// One Ctrl-C may arrive twice, from the terminal and from a program in between.
const INTERRUPT_PAUSE: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let cancel = CancellationToken::new();
    match run(&Arguments::parse(), &cancel) {
        Ok(code) => code,
        Err(_) if cancel.is_cancelled() => {
            eprintln!(
                "Cancelled. The namespaces are gone; --resume goes on after the last run that ended."
            );
            ExitCode::from(INTERRUPTED)
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments, cancel: &CancellationToken) -> Result<ExitCode> {
    if let Some(file) = &arguments.goals {
        println!("{}", goals::table(&read(file)?).to_text());
        return Ok(ExitCode::SUCCESS);
    }
    Rig::require().context("cannot measure here")?;
    let campaign = arguments.campaign()?;
    require_splitter(&campaign).context("cannot measure with splitters at the borders")?;
    eprintln!(
        "cells: {}, runs: {}; about {} minutes",
        campaign.cells.len(),
        campaign.count(),
        campaign.length().as_secs().div_ceil(60)
    );
    cancel_on_interrupt(cancel)?;

    let mut progress = Progress::new(&campaign);
    let rows = campaign.run(&mut progress, cancel)?;
    progress.bar.finish_and_clear();

    let page = output::write(&campaign.out, &rows, &about(&campaign));
    let page =
        page.with_context(|| format!("cannot write the plots into {}", campaign.out.display()))?;
    if arguments.json {
        let json = serde_json::to_string_pretty(&rows).context("cannot encode the results")?;
        println!("{json}");
    } else {
        for (title, table) in output::tables(&rows) {
            println!("{title}\n{}\n", table.to_text());
        }
        println!("{}\nPlots: {}", about(&campaign), page.display());
    }
    if progress.failures > 0 {
        eprintln!("{} measurements are missing, see above.", progress.failures);
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads rows that `--json` printed.
fn read(file: &Path) -> Result<Vec<Row>> {
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    serde_json::from_str(&text)
        .with_context(|| format!("{} is no array that --json printed", file.display()))
}

/// Checks what cells with splitters at the borders need, if there are some.
fn require_splitter(campaign: &Campaign) -> Result<()> {
    let needs = |cell: &Cell| {
        let schemes = campaign.schemes_of(cell);
        let mut schemes = schemes.iter();
        schemes.any(|it| cell.scenario.borders(it.as_ref()).is_some())
    };
    if !campaign.cells.iter().any(needs) {
        return Ok(());
    }
    Rig::require_borders()?;
    if !campaign.splitter.is_file() {
        bail!(
            "there is no program {}; build splitter-agent, or name it with --splitter",
            campaign.splitter.display()
        );
    }
    Ok(())
}

/// Describes the campaign in a sentence or two.
fn about(campaign: &Campaign) -> String {
    format!(
        "4 paths of {} Mbit/s, {} messages a second; {} s of each scheme with each of {} seeds, in rotation.",
        campaign.rate_mbit,
        campaign.workload.per_second,
        campaign.workload.length.as_secs_f64(),
        campaign.seeds.len(),
    )
}

/// The first Ctrl-C lets the measurement end in order, the second one ends it at once.
fn cancel_on_interrupt(cancel: &CancellationToken) -> Result<()> {
    let cancel = cancel.clone();
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot watch for Ctrl-C")?;
    thread::Builder::new()
        .name("interrupt".to_owned())
        .spawn(move || {
            while runtime.block_on(signal::ctrl_c()).is_ok() {
                if cancel.is_cancelled() {
                    std::process::exit(INTERRUPTED.into());
                }
                cancel.cancel();
                thread::sleep(INTERRUPT_PAUSE);
            }
        })
        .context("cannot watch for Ctrl-C")?;
    Ok(())
}

/// On standard error, and only on a terminal.
struct Progress {
    bar: ProgressBar,
    failures: usize,
}

impl Progress {
    fn new(campaign: &Campaign) -> Self {
        let bar = ProgressBar::new(campaign.count() as u64);
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len}, {eta} left: {msg}");
        let bar = match style {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        };
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { bar, failures: 0 }
    }
}

impl Observer for Progress {
    fn begins(&mut self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    fn ends(&mut self) {
        self.bar.inc(1);
    }

    fn takes_over(&mut self, cell: &Cell, runs: usize) {
        self.bar.inc(runs as u64);
        self.bar
            .suspend(|| eprintln!("{cell}: {runs} runs taken over"));
    }

    fn fails(&mut self, error: &anyhow::Error) {
        self.failures += 1;
        self.bar.suspend(|| eprintln!("left out: {error:#}"));
    }
}
