//! `cloudburst paths`: what each path delivers.

use std::time::Duration;

use cloudburst::{EcnState, Endpoint, Health, PathReport, PeerId, TransportStatistics};
use flow_cli::ExitCode;
use flow_cli::{Signals, print, print_json};
use flow_report::Table;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::{CLOSE_WITHIN, warn_of_silence};
use crate::{
    cli::PathsArgs,
    summary::{millis, words},
};

/// Between two messages: often enough to see a path die.
const PAUSE: Duration = Duration::from_millis(20);

pub(crate) async fn run(args: &PathsArgs, as_json: bool) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::listen()?;
    let (endpoint, peer) = args.endpoint.connect(&args.begin.ports, &args.peer).await?;
    let delivered = tokio::select! {
        delivered = exercise(&endpoint, peer, args) => delivered,
        _ = signals.next() => 0,
    };
    let paths = endpoint.paths(peer).await?;
    let replaced = endpoint.statistics().await?.protocol;
    report(&endpoint, args, &paths, &replaced, as_json)?;
    endpoint.close(CLOSE_WITHIN).await;
    let is_good = delivered > 0 || paths.iter().any(|path| path.health == Health::Good);
    Ok(if is_good {
        ExitCode::Ok
    } else {
        warn_of_silence(&args.peer.peer);
        ExitCode::Failed
    })
}

/// Sends one message after another; how many were delivered.
async fn exercise(endpoint: &Endpoint, peer: PeerId, args: &PathsArgs) -> u64 {
    let end = Instant::now() + args.duration.0;
    let mut delivered = 0;
    while let Ok(result) = timeout_at(end, endpoint.send(peer, vec![0x5a; args.size.0])).await {
        delivered += u64::from(result.is_ok());
        if timeout_at(end, tokio::time::sleep(PAUSE)).await.is_err() {
            break;
        }
    }
    delivered
}

fn report(
    endpoint: &Endpoint,
    args: &PathsArgs,
    paths: &[PathReport],
    replaced: &TransportStatistics,
    as_json: bool,
) -> anyhow::Result<()> {
    let addresses = endpoint.local_addrs();
    let local = |path: &PathReport| {
        let address = addresses.get(usize::from(path.four_tuple.socket.0));
        address.map_or_else(|| "?".to_owned(), ToString::to_string)
    };
    if as_json {
        let paths: Vec<Value> = paths
            .iter()
            .map(|path| as_value(path, &local(path)))
            .collect();
        return print_json(&json!({
            "peer": args.peer.peer.to_string(),
            "paths": paths,
            "ports_rotated": replaced.ports_rotated,
            "paths_replaced": replaced.paths_replaced,
        }));
    }
    let mut table = Table::new([
        "path", "from", "to", "health", "sent", "loss %", "ecn", "marked", "rtt", "lag", "bytes",
    ]);
    for path in paths {
        let time = |time: Option<Duration>| time.map_or_else(|| "-".to_owned(), words);
        table.row([
            path.path.to_string(),
            local(path),
            path.four_tuple.remote.to_string(),
            health(path.health).to_owned(),
            path.sent.to_string(),
            format!("{:.1}", path.loss * 100.0),
            ecn(path.ecn).to_owned(),
            path.marked.to_string(),
            time(path.rtt),
            time(path.lag),
            path.datagram_bytes.to_string(),
        ]);
    }
    let mut text = table.to_text();
    let TransportStatistics {
        ports_rotated,
        paths_replaced,
        ..
    } = replaced;
    if ports_rotated + paths_replaced > 0 {
        text += &format!(
            "replaced, as they delivered too little: {ports_rotated} ports, {paths_replaced} pairs of ports\n"
        );
    }
    print(text)
}

fn as_value(path: &PathReport, local: &str) -> Value {
    json!({
        "path": path.path,
        "local": local,
        "remote": path.four_tuple.remote.to_string(),
        "health": health(path.health),
        "sent": path.sent,
        "delivered": path.delivered,
        "loss": path.loss,
        "ecn": ecn(path.ecn),
        "marked": path.marked,
        "rtt_ms": path.rtt.map(millis),
        "lag_ms": path.lag.map(millis),
        "datagram_bytes": path.datagram_bytes,
    })
}

pub(crate) const fn health(health: Health) -> &'static str {
    match health {
        Health::Good => "good",
        Health::Dead => "dead",
        _ => "unknown",
    }
}

const fn ecn(state: EcnState) -> &'static str {
    match state {
        EcnState::Testing => "testing",
        EcnState::Capable => "capable",
        EcnState::Failed => "failed",
        _ => "untested",
    }
}
