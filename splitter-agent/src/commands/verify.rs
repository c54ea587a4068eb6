//! `splitter verify`: proves with real packets where flows go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};
use flow_cli::{ExitCode, Signals, print, print_json};
use splitter_config::Config;
use splitter_instance::Instance;
use splitter_verify::{Targets, Verdict, survey, verify};

use crate::cli::VerifyArgs;

/// Probes; a signal ends it, and then everything is as before, too.
pub(crate) async fn run(config: Config, args: &VerifyArgs, json: bool) -> Result<ExitCode> {
    let mut signals = Signals::listen()?;
    let instance = Instance::new(config)?;
    let targets = Targets {
        addresses: args.to.clone(),
        port: args.tcp,
        count: args.count,
    };
    let survey = survey(&instance, &targets).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let is_over = Arc::clone(&stop);
    let mut probing = tokio::task::spawn_blocking(move || verify(&survey, &is_over));
    let report = tokio::select! {
        report = &mut probing => report,
        _ = signals.next() => {
            stop.store(true, Ordering::Relaxed);
            probing.await
        }
    };
    let report = report.context("probing has failed")??;
    match json {
        true => print_json(&report)?,
        false => print(&report)?,
    }
    Ok(match report.verdict {
        Verdict::Ok => ExitCode::Ok,
        Verdict::Wrong => ExitCode::Failed,
        Verdict::Unknown => ExitCode::Unknown,
    })
}
