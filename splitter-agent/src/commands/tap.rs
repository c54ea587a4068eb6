//! `splitter tap`: when flows and packets pass which device.

use std::hash::{BuildHasher as _, RandomState};
use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::{Context as _, Result};
use flow_cli::{Signals, group_thousands, print, print_json};
use splitter_config::PacketLog;
use splitter_datapath::Object;
use splitter_datapath::tap::Taps;
use splitter_health::KeyRing;
use splitter_instance::privileges::check_capabilities;
use splitter_instance::tap_report::{TapReport, delay_text, delays_between};
use splitter_netlink::Netlink;
use splitter_policy::packet_selection::PacketSelection;

use crate::cli::TapArgs;

/// Notes flows until asked to stop, then reports; or joins two reports.
pub(crate) async fn run(args: &TapArgs, json: bool) -> Result<()> {
    if let [from, to] = &args.join[..] {
        let summary = delays_between(from, to)?;
        return match json {
            true => print_json(&summary),
            false => print(delay_text(&summary, group_thousands)),
        };
    }
    check_capabilities()?;
    let selection = selection(args)?;
    let interfaces = Netlink::connect()?.interfaces().await?;
    let object = Object::for_level(PacketLog::Off).context("cannot read the kernel object")?;
    // Anyone who reads that flows are noted may end it at once.
    let mut signals = Signals::listen()?;
    let taps = Taps::attach(&object, &args.points, &interfaces, &selection)?;
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
    let report = TapReport::collect(&taps, selection.is_any())?;
    match json {
        true => print_json(&report),
        false => print(report.to_text(group_thousands)),
    }
}

/// Without a key nobody else selects the same packets.
fn selection(args: &TapArgs) -> Result<PacketSelection> {
    let Some(n) = args.packets.and_then(NonZeroU32::new) else {
        return Ok(PacketSelection::NONE);
    };
    let random = RandomState::new();
    let key = match &args.packet_key {
        Some(file) => KeyRing::load(file)?.selection_key(),
        None => [0, 1].map(|it| random.hash_one(it)),
    };
    Ok(PacketSelection::one_in(n, key))
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
