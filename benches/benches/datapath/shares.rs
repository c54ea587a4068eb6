//! What becomes of flows in the table, besides what packets cost.

use std::fs;

use splitter_policy::config::PolicyConfig;
use splitter_policy::flow::{Class, TunnelRole};
use splitter_policy::pass_reason::PassReason;

use super::case::{RUNS_OF_A_TICK, TICK_NS};
use super::loaded::{Loaded, now_ns};
use super::support::packet::{Ip, Packet, Upper};
use super::{TABLE_SIZE, YARDSTICK, loaded, ordinary};

/// As the yardstick's flood has them.
const LONG_FLOWS: u32 = 10_000;
const LONG_EVERY: u32 = 64;
/// Packets that make each of them long.
const PACKETS_BEFORE: u32 = 100;
/// One-packet flows that the long ones are to withstand.
const FLOOD: u32 = 10_000_000;

/// Measures and writes `table_shares.json`.
pub(super) fn write() {
    let shares = [
        ("flood_long_kept_percent", long_flows_kept_percent()),
        ("random_1m_untracked_percent", untracked_percent()),
    ];
    let lines = shares.map(|(name, percent)| format!("  \"{name}\": {percent:.4}"));
    let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/table_shares.json");
    fs::write(path, format!("{{\n{}\n}}\n", lines.join(",\n"))).expect("can be written");
}

/// Sends each of the long flows' packets in front of the flood, through the
/// programs that know them.
pub(super) fn warm_up(loaded: &mut Loaded, programs: &[&str], frame: &[u8]) {
    loaded.pass_time(eager(), TICK_NS);
    for program in programs {
        let packets = LONG_FLOWS * PACKETS_BEFORE;
        loaded.run_xdp(program, frame, None, packets);
    }
}

/// Long flows that keep class, tunnel and count under the flood.
fn long_flows_kept_percent() -> f64 {
    let mut loaded = loaded(YARDSTICK, &["split_long_flows", "split_flood"]);
    warm_up(&mut loaded, &["split_long_flows"], &long_flow(0));
    let packets = FLOOD / (LONG_EVERY - 1) * LONG_EVERY;
    loaded.run_xdp("split_flood", &long_flow(0), None, packets);
    let of_each = u64::from(packets / LONG_EVERY / LONG_FLOWS);
    let mut kept = 0;
    loaded.tables().for_each(now_ns(), |found| {
        let entry = &found.entry;
        let is_long = entry.class() == Class::Long && entry.tunnel() == TunnelRole::Long;
        let is_whole = entry.packets >= u64::from(PACKETS_BEFORE) + of_each;
        kept += u32::from(is_long && is_whole);
    });
    100.0 * f64::from(kept) / f64::from(LONG_FLOWS)
}

/// Packets of 2^20 flows that find no room in a table made for so many.
fn untracked_percent() -> f64 {
    const TICKS: u32 = 8 * TABLE_SIZE / RUNS_OF_A_TICK;
    let mut loaded = loaded(YARDSTICK, &["split_random"]);
    let mut frame = long_flow(0);
    let mut run = || {
        // So few in a tick that it is no flood, which would pass the table by.
        for _ in 0..TICKS {
            loaded.pass_time(eager(), TICK_NS);
            let input = frame.clone();
            loaded.run_xdp("split_random", &input, Some(&mut frame), RUNS_OF_A_TICK);
        }
        loaded.counters().passed(PassReason::TableFull)
    };
    let before = run();
    let untracked = run() - before;
    100.0 * untracked as f64 / f64::from(TICKS * RUNS_OF_A_TICK)
}

fn eager() -> PolicyConfig {
    PolicyConfig {
        drain_margin_ns: 0,
        ..ordinary()
    }
}

/// A packet of a long flow, as the yardstick's flood makes it.
fn long_flow(number: u32) -> Vec<u8> {
    let ip = Ip::V4 {
        source: (10 << 24 | number).to_be_bytes(),
        destination: [10, 255, 0, 1],
        option_bytes: 0,
        fragment: None,
    };
    let upper = Upper::Tcp {
        ports: (40_000, 443),
        flags: 0x10,
        option_bytes: 0,
    };
    Packet {
        ip,
        upper,
        ..Packet::tcp_v4()
    }
    .bytes()
}
