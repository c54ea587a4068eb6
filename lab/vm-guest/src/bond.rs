//! One TCP flow over two unequal tunnels of a site (`balance`).

use std::fs;
use std::ops::Range;

use anyhow::{Context as _, Result, ensure};

use super::agent::{CONFIG, bring_up, expected_hook, go_down, json};
use super::network::{CABLES, LAN, Network};

/// Slow enough for an emulated processor, three to one.
const RATES_MBIT: [u32; 2] = [6, 2];
/// One and a half seconds at that.
const BYTES: usize = 1_500_000;
/// The balancers, and the part of the bytes that the slower tunnel then has. By chance, weighted, it is
/// a quarter. By the earliest arrival in order it depends on when an emulated processor comes to send: a
/// flow that pauses here and there leaves a tunnel alone for a time, and one that never has more
/// under way than the slower tunnel carries needs no other.
const SHARES: [(&str, Range<f64>); 2] = [("tr", 0.03..0.97), ("rps", 0.18..0.32)];

/// Packets of a single connection take both tunnels.
pub(crate) fn takes_both_tunnels(network: &Network) -> Result<Vec<&'static str>> {
    let taken = take_both_tunnels(network);
    // Also where it failed: the next attempt wants another mode of steering.
    let down = go_down(network);
    taken.and_then(|hook| down.map(|_| hook))
}

fn take_both_tunnels(network: &Network) -> Result<Vec<&'static str>> {
    let hook = expected_hook()?;
    network.send_single_packets()?;
    for (balance, shares) in SHARES {
        configure(balance)?;
        bring_up(hook)?;
        let before = sent()?;
        network.connect()?.transfer(BYTES)?;
        let after = sent()?;
        let sent = [0, 1].map(|it| after[it] - before[it]);
        let share = sent[1] as f64 / (sent[0] + sent[1]) as f64;
        eprintln!("{balance}: {sent:?} bytes");
        let status = json(&["status"])?;
        ensure!(
            shares.contains(&share),
            "with {balance} the tunnels have sent {sent:?} bytes: {}",
            status["chosen"]
        );
        let packets = |it: usize| status["chosen"][it]["packets"]["long"].as_u64();
        ensure!(
            packets(0) > Some(20) && packets(1) > Some(20),
            "what was chosen is not what was sent: {status}"
        );
    }
    Ok(vec![hook])
}

fn configure(balance: &str) -> Result<()> {
    let mut text = format!(
        "lan = '{LAN}'\npolicy = 'share'\nbalance = '{balance}'\n[flows]\ntable_size = 1024\n"
    );
    for (tunnel, rate_mbit) in CABLES.iter().zip(RATES_MBIT) {
        text += &format!(
            "[[tunnels]]\ndevice = '{}'\ngateway = '{}'\nrate_mbit = {rate_mbit}\n\
             weight = {rate_mbit}\ndelay_ms = 1\n",
            tunnel.device,
            tunnel.gateway(),
        );
    }
    text += "[short]\n[long]\n[steering]\nmode = 'mark'\n[share]\nshape_percent = 100\nqueue_ms = 200\n";
    Ok(fs::write(CONFIG, text)?)
}

/// Bytes that each tunnel's device has sent.
fn sent() -> Result<[u64; 2]> {
    let read = |device: &str| {
        let text = fs::read_to_string(format!("/sys/class/net/{device}/statistics/tx_bytes"))?;
        text.trim()
            .parse::<u64>()
            .with_context(|| format!("{device} has sent {text}"))
    };
    Ok([read(CABLES[0].device)?, read(CABLES[1].device)?])
}
