//! Incast: eight servers answer one client at once, through 100 kB of switch buffer.
//!
//! Messages are the library's own, and those of TCP and QUIC that `cargo xtask msgbench` compares
//! with: the commands send from one host only.

use std::{net::Ipv4Addr, rc::Rc, sync::Arc, time::Instant};

use anyhow::{Context as _, Result};
use futures_util::future::{join_all, try_join_all};
use msgbench::{
    measurement::LIMIT,
    scheme::{self, Client, Scheme},
    server::Server,
};
use tokio::{
    runtime,
    task::LocalSet,
    time::{Duration, MissedTickBehavior, interval, timeout},
};

use super::rig::{Rig, loss};
use crate::scenario::{Figures, MESSAGE_SIZES, percentile};

/// Hosts that answer at once.
pub(super) const SERVERS: [Ipv4Addr; 8] = {
    let mut addresses = [Ipv4Addr::UNSPECIFIED; 8];
    let mut number = 0;
    while number < addresses.len() {
        addresses[number] = Ipv4Addr::new(10, 9, 0, 11 + number as u8);
        number += 1;
    }
    addresses
};
/// Rounds of each size: 200 messages, of which the p99 leaves out two.
const ROUNDS: usize = 25;
/// Messages from each server before those that count: each connection has carried some then.
const WARM_UP_ROUNDS: usize = 16;
const WARM_UP_BYTES: u32 = 20_000;
/// From one round to the next, in times that the link takes for it, and at least.
const GAP_LOADS: f64 = 4.0;
const LEAST_GAP: Duration = Duration::from_millis(200);

/// Measures the library, or else TCP and QUIC.
pub(super) fn measure(rig: &Rig, is_ours: bool) -> Result<Figures> {
    let schemes: &[_] = match is_ours {
        true => &[("", "cloudburst")],
        false => &[("tcp_", "tcp_cubic"), ("quic_", "quic")],
    };
    let mut figures = Figures::new();
    for (prefix, name) in schemes {
        let all = scheme::all();
        let scheme = all.iter().find(|scheme| scheme.name() == *name);
        let scheme = scheme.with_context(|| format!("msgbench has no scheme {name}"))?;
        for (bytes, times, loss) in messages(rig, scheme)? {
            let name = |what: &str| format!("{prefix}{what}_{}kB", bytes / 1_000);
            figures.insert(name("p99_ms"), percentile(times, 0.99));
            figures.insert(name("loss"), loss);
        }
    }
    Ok(figures)
}

/// Completion times of each size in ms, and the share of packets that the bottleneck dropped.
type Messages = Vec<(usize, Vec<f64>, f64)>;

fn messages(rig: &Rig, scheme: &Arc<dyn Scheme>) -> Result<Messages> {
    for requirement in scheme.requirements() {
        requirement.check()?;
    }
    let servers = SERVERS.map(|address| Server::start(scheme, &rig.client, address));
    let _servers = servers.into_iter().collect::<Result<Vec<_>>>()?;
    // Whoever asks is behind the bottleneck: what is answered goes through it.
    let asked = rig.server.enter(|| {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        LocalSet::new().block_on(&runtime, ask(rig, scheme))
    })?;
    asked.with_context(|| format!("cannot measure {}", scheme.name()))
}

async fn ask(rig: &Rig, scheme: &Arc<dyn Scheme>) -> Result<Messages> {
    let connecting = SERVERS.map(|address| scheme.connect(address));
    let clients = try_join_all(connecting).await?;
    for _ in 0..WARM_UP_ROUNDS {
        try_join_all(clients.iter().map(|it| it.request(WARM_UP_BYTES))).await?;
    }
    let mut messages = Vec::new();
    for bytes in MESSAGE_SIZES {
        let before = rig.counts()?;
        let times = rounds(rig, &clients, bytes).await;
        messages.push((bytes, times, loss(before, rig.counts()?)));
    }
    Ok(messages)
}

async fn rounds(rig: &Rig, clients: &[Rc<dyn Client>], bytes: usize) -> Vec<f64> {
    let load = (clients.len() * bytes) as f64 * 8.0 / rig.bits_per_s;
    let mut due = interval(Duration::from_secs_f64(GAP_LOADS * load).max(LEAST_GAP));
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        due.tick().await;
        let asked = clients.iter().map(|client| completion(&**client, bytes));
        times.extend(join_all(asked).await);
    }
    times
}

/// Until all of a message is there, in ms. One that fails counts as the longest that is waited for.
async fn completion(client: &dyn Client, bytes: usize) -> f64 {
    let began = Instant::now();
    let took = match timeout(LIMIT, client.request(bytes as u32)).await {
        Ok(Ok(_)) => began.elapsed(),
        Ok(Err(_)) | Err(_) => LIMIT,
    };
    took.as_secs_f64() * 1e3
}
