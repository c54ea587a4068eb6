//! The part of `splitter status` on the tunnels' health.

use std::time::{Duration, SystemTime};

use anyhow::Result;
use flow_cli::{age_in_words, print};
use flow_report::Table;
use splitter_config::SiteName;
use splitter_instance::report::{Report, TunnelReport};

/// How many of the last moves are shown; `--json` has them all.
const MOVES: usize = 5;

/// Shows how the tunnels are, and where the classes went.
pub(super) fn show(report: &Report) -> Result<()> {
    for note in report.notes() {
        print(format_args!("  {note}"))?;
    }
    let has_sites = report
        .tunnels
        .iter()
        .any(|it| it.site != SiteName::default());
    let headers = [
        "site",
        "tunnel",
        "device",
        "weight",
        "in use",
        "health",
        "for",
        "known by",
        "loss",
        "round trip",
        "jitter",
    ];
    // A single site has no name as a rule.
    let first = usize::from(!has_sites);
    let mut table = Table::new(headers.into_iter().skip(first));
    for tunnel in &report.tunnels {
        table.row(cells(tunnel).into_iter().skip(first));
    }
    print(format_args!("\n{}", table.to_text()))?;
    if !report.moves.is_empty() {
        print("last moves:")?;
    }
    for moved in report.moves.iter().rev().take(MOVES) {
        let age = age_in_words(age(moved.unix_ms));
        print(format_args!("  {age} ago: {}", moved.description()))?;
    }
    Ok(())
}

fn cells(tunnel: &TunnelReport) -> [String; 11] {
    let milliseconds = |seconds: Option<f64>| {
        seconds.map_or_else(
            || "-".to_owned(),
            |seconds| format!("{:.2} ms", seconds * 1e3),
        )
    };
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    [
        tunnel.site.to_string(),
        tunnel.tunnel.clone(),
        tunnel.device.to_string(),
        tunnel.weight.to_string(),
        if tunnel.in_use { "yes" } else { "no" }.to_owned(),
        tunnel.condition.name().to_owned(),
        age_in_words(age(tunnel.since_unix_ms)),
        tunnel.evidence.name().to_owned(),
        tunnel.loss.map_or_else(|| "-".to_owned(), percent),
        milliseconds(tunnel.round_trip_s),
        milliseconds(tunnel.jitter_s),
    ]
}

fn age(unix_ms: u64) -> Duration {
    let then = SystemTime::UNIX_EPOCH + Duration::from_millis(unix_ms);
    then.elapsed().unwrap_or_default()
}
