//! One TCP flow over two unequal tunnels of a site (`balance`).

use std::fs;
use std::ops::Range;

use anyhow::{Context as _, Result, ensure};

use super::agent::{CONFIG, bring_up, expected_hook, go_down, json};
use super::network::{CABLES, LAN, Network};

/// Slow enough for an emulated processor, three to one.
const RATES_MBIT: [u32; 2] = [6, 2];
/// A second and a half at that.
const BYTES: usize = 1_500_000;
/// The balancers, and the part of the bytes that the slower tunnel then has. By chance, weighted, it is
/// a quarter. By the earliest arrival in order it is whatever an emulated processor's sending makes it: a
/// flow that pauses here and there leaves a tunnel alone for a time, and one that never has more
/// under way than the slower tunnel carries needs no other. That both have carried packets is all that holds.
const SHARES: [(&str, Range<f64>); 2] = [("tr", 0.0..1.0), ("rps", 0.18..0.32)];
/// Packets that each tunnel has to have carried.
const LEAST_PACKETS: u64 = 20;
/// Transfers in which that has to come about: nothing says how the first one is timed.
const TRANSFERS: usize = 6;

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
        let outcome = transfer_over_both(network)?;
        eprintln!("{balance}: {outcome:?}");
        let [fast, slow] = outcome.bytes;
        let share = slow as f64 / (fast + slow) as f64;
        ensure!(
            shares.contains(&share) && outcome.has_used_both(),
            "with {balance}, after {TRANSFERS} transfers at most: {outcome:?}"
        );
    }
    Ok(vec![hook])
}

/// What the tunnels have carried: bytes as their devices count them, packets of long flows as the
/// programs do.
#[derive(Debug)]
struct Outcome {
    bytes: [u64; 2],
    packets: [u64; 2],
}

impl Outcome {
    fn has_used_both(&self) -> bool {
        self.packets.iter().all(|packets| *packets > LEAST_PACKETS)
    }
}

/// Sends over one connection until both tunnels have carried some of it, or it has had its chance.
fn transfer_over_both(network: &Network) -> Result<Outcome> {
    let before = sent()?;
    let mut connection = network.connect()?;
    let mut outcome = None;
    for _ in 0..TRANSFERS {
        connection.transfer(BYTES)?;
        let (after, status) = (sent()?, json(&["status"])?);
        let packets = |it: usize| {
            let long = status["chosen"][it]["packets"]["long"].as_u64();
            long.with_context(|| format!("nothing is said of what was chosen: {status}"))
        };
        let seen = outcome.insert(Outcome {
            bytes: [0, 1].map(|it| after[it] - before[it]),
            packets: [packets(0)?, packets(1)?],
        });
        if seen.has_used_both() {
            break;
        }
    }
    outcome.context("there was no transfer")
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
