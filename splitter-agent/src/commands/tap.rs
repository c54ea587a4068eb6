//! `splitter tap`: when flows pass which device.

use std::time::Duration;

use anyhow::{Context as _, Result};
use flow_cli::{Signals, group_thousands, print, print_json};
use flow_report::Table;
use serde_json::json;
use splitter_config::PacketLog;
use splitter_datapath::Object;
use splitter_datapath::tap::{CAPACITY, Tap, TappedFlow, Taps};
use splitter_instance::privileges::check_capabilities;
use splitter_netlink::Netlink;

use crate::cli::TapArgs;

/// Notes flows until asked to stop, then reports.
pub(crate) async fn run(args: &TapArgs, json: bool) -> Result<()> {
    check_capabilities()?;
    let interfaces = Netlink::connect()?.interfaces().await?;
    let object = Object::for_level(PacketLog::Off).context("cannot read the kernel object")?;
    // Anyone who reads that flows are noted may end it at once.
    let mut signals = Signals::listen()?;
    let taps = Taps::attach(&object, &args.points, &interfaces)?;
    let names = taps
        .iter()
        .map(|tap| format!("{} by {}", tap.point(), tap.hook().as_str()));
    tracing::info!(
        event = "tap_started",
        points = names.collect::<Vec<_>>().join(", "),
        "noting flows"
    );
    let time = args.seconds.map(|it| Duration::from_secs(it.into()));
    wait(time, &mut signals).await;

    for tap in taps.iter() {
        if tap.flows()?.len() >= CAPACITY {
            tracing::warn!(event = "tap_full", point = %tap.point(), "full: flows after the first {CAPACITY} are missing");
        }
    }
    let flows = taps.collect()?;
    if json {
        let hooks: Vec<_> = taps.iter().map(Tap::hook).collect();
        return print_json(&json!({ "points": args.points, "hooks": hooks, "flows": flows }));
    }
    print(table(&flows).to_text())
}

/// Waits until the time has passed or a signal comes.
async fn wait(time: Option<Duration>, signals: &mut Signals) {
    let passed = async {
        match time {
            Some(time) => tokio::time::sleep(time).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = passed => {}
        _ = signals.next() => {}
    }
}

/// A line for each flow and tap; times count from the first packet of all.
fn table(flows: &[TappedFlow]) -> Table {
    let mut table = Table::new([
        "flow",
        "seen at",
        "first s",
        "last s",
        "duration ms",
        "packets",
        "bytes",
        "completion ms",
    ]);
    let passages = flows.iter().flat_map(|flow| &flow.seen);
    let begin_ns = passages.map(|passage| passage.first_ns).min().unwrap_or(0);
    let seconds = |at_ns: u64| format!("{:.6}", (at_ns - begin_ns) as f64 / 1e9);
    for flow in flows {
        for (index, passage) in flow.seen.iter().enumerate() {
            let is_first = index == 0;
            let name = format!(
                "{}:{} -> {}:{}",
                flow.source, flow.source_port, flow.destination, flow.destination_port
            );
            let completion = flow.completion_ms.filter(|_| is_first);
            table.row([
                if is_first { name } else { String::new() },
                passage.point.to_string(),
                seconds(passage.first_ns),
                seconds(passage.last_ns),
                format!("{:.3}", passage.duration_ms),
                group_thousands(passage.packets),
                group_thousands(passage.bytes),
                completion.map_or_else(String::new, |ms| format!("{ms:.3}")),
            ]);
        }
    }
    table
}
