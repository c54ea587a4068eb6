//! `splitter demo`: what the split buys, measured on this machine.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use flow_testbed::demo::{self, Comparison, Contest, Options};
use flow_testbed::experiment::{Progress, Status};
use indicatif::{ProgressBar, ProgressStyle};
use tokio_util::sync::CancellationToken;

use super::print_json;
use crate::cli::DemoArgs;

/// Where the page with plots goes when nothing else is said.
const DEFAULT_PAGE: &str = "splitter-demo.html";

/// Measures all modes; the traffic stays within namespaces that vanish with
/// this process.
pub(crate) async fn run(args: &DemoArgs, json: bool) -> Result<()> {
    let mut options = Options {
        splitter: Some(std::env::current_exe().context("cannot find this program's own file")?),
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
        println!("{}", demo::render_text(&comparison));
    }
    match page(args, json) {
        Some(path) => write_page(&comparison, path, json),
        None => Ok(()),
    }
}

/// Measures on a thread of its own, so that Ctrl-C is heard.
async fn measure(options: Options) -> Result<Comparison> {
    let cancel = CancellationToken::new();
    let cancelled = cancel.clone();
    let measuring = tokio::task::spawn_blocking(move || {
        let mut progress = Bar::new(options.total);
        let result = demo::run(&options, &mut progress, &cancelled);
        progress.0.finish_and_clear();
        result
    });
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
        .context("cannot listen for SIGTERM")?;
    let mut measuring = std::pin::pin!(measuring);
    let result = loop {
        tokio::select! {
            result = &mut measuring => break result,
            _ = tokio::signal::ctrl_c() => cancel.cancel(),
            _ = terminate.recv() => cancel.cancel(),
        }
    };
    Ok(result.context("the measurement panicked")??)
}

/// With `--json` a page is written only where it was asked for.
fn page(args: &DemoArgs, json: bool) -> Option<PathBuf> {
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
