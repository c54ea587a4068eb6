//! What a packet costs in the kernel, in nanoseconds of one CPU.
//!
//! The kernel runs a program some 100,000 times on end (`BPF_PROG_TEST_RUN`);
//! its thread's CPU time over that is what a packet takes. Of new flows it runs
//! as many as find room, and the kernel's own time counts, in whole nanoseconds. The clock goes on
//! between, as it does in traffic, and each row makes sure that the packets that it has timed were what its name
//! says, or there is no figure.
//! Driver, wire and cold caches are not in it. Each figure is absolute; what a program itself
//! costs is the difference to `bare_pass`, which
//! `cargo xtask bench-datapath` shows.
//!
//! | `datapath/` | measures |
//! |---|---|
//! | `bare_pass` | a program that passes everything: the floor |
//! | `known_flow` | a flow in the long tunnel, the steady state of bulk traffic |
//! | `known_short_flow` | a flow below its threshold |
//! | `known_short_flow_v6`, `known_short_flow_rated_v6` | both rows of short flows over IPv6 |
//! | `known_short_flow_rated` | the same, its full packets put into the modelled queue of a short tunnel of known rate, which takes the precise clock |
//! | `new_flow` | each packet the first of its flow, inserted where one was that is over, in a table of the default size |
//! | `new_flow_cached`, `new_flow_128k` | the same in a table for 8,192 flows, half a megabyte, and in one of 128 KiB; the result says how large this machine's caches are |
//! | `new_flow_v6`, `new_flow_cached_v6`, `new_flow_128k_v6` | the same over IPv6 |
//! | `insertion_100`, `_10k`, `_1m` | each packet the first of its flow at so many a second, whose clock ticks as in traffic; `insertion_v6_*` over IPv6; above `floor_*`, which does nothing at the same pace |
//! | `zipf_1m`, `zipf_1m_v6` | flows by Zipf's law (1.0) over 2^20 of them |
//! | `mixed`, `mixed_v6` | three packets in four of 1,000 long flows, the fourth of one of 32,768 short ones |
//! | `trace_10_minutes` | 200 flows a second for ten minutes, of sizes with a heavy tail, from an empty table on |
//! | `known_flow_N_cores`, `known_flow_rated_N_cores`, `known_short_flow_rated_N_cores`, `lru_hash_known_N_cores` | the same packets on so many cores at once, in CPU time of one of them |
//! | `known_short_flow_50_sites` | `known_short_flow` to one of 50 sites, which have 30 thresholds: it has been looked up |
//! | `new_flow_50_sites` | `new_flow` beside 50 sites |
//! | `new_long_flow` | `new_flow` with each packet long at once: as much as the packet costs that goes beyond a threshold, and no packet of a flow after it |
//! | `new_long_flow_50_sites` | the same with the flow's site looked up among 50 |
//! | `random_1m`, `random_1m_v6` | each packet of one of 2^20 flows, by chance, in a table of the default size |
//! | `flood`, `flood_v6` | each packet the first of a flow of chance, but every 64th of one of 10,000 long flows |
//! | `non_tcp` | a UDP datagram, which passes untreated |
//! | `ipv6_known` | `known_flow` over IPv6 |
//! | `lru_hash_known` | the peer: parse and count per flow in a plain `LRU_HASH` |
//! | `lru_hash_ktime_known` | the peer with the time of the last packet |
//! | `lru_hash_ipv6_known`, `lru_hash_new_flow`, `lru_hash_new_flow_cached`, `lru_hash_random_1m`, `lru_hash_flood`, `lru_hash_insertion_*`, `lru_hash_zipf_1m`, `lru_hash_mixed`, `lru_hash_trace_10_minutes` | the peer in the other cases; over IPv6 with `_v6` behind it |
//!
//! | `count_at_tunnel` | a packet that a tunnel's device is handed, counted by its mark; the floor is that of traffic control, some nanoseconds above `bare_pass` |
//! | `count_at_site` | a packet that a device of the site is handed, counted by its flow |
//! | `count_elsewhere` | the same program at a device that the agent has said nothing of: it looks and lets the packet go |
//! | `mark_known`, `mark_known_v6` | a flow in the long tunnel, by the program that ships for traffic control; the floor is as above |
//! | `tr_4_known`, `tr_16_known`, and with `_v6` | the same, each packet choosing by TR among so many idle tunnels: less `mark_known`, what the choice costs |
//! | `balance_ecmp`, `_rps`, `_drb`, `_presto`, `_letflow`, `_tr_short`, `_tr_long`, `_tr_long_guarded` | a packet's choice among ten paths that stand still, for one flow whose state lies in a hash map |
//! | `balance_nothing` | what is looked up for TR, without the choice |
//!
//! The peers are what one would write first, and what a comparable program
//! costs at the least: they know no classes, set no marks and never decide.
//!
//! A packet arrives unmarked and is marked. The kernel hands a program the same
//! buffer every time, so a mark would be found there from the second run on, and
//! not be written again. The splitter's figures are therefore of the split
//! program's body in the yardstick object, which takes the mark off again and,
//! for `new_flow`, goes on to the next source address. That is included. The
//! group `yardstick/` tells how much it is (`renew_*` less `bare_pass`), and
//! what the program that ships, bit for bit, takes of a flow whose packets
//! carry its mark already (`shipped_known_flow_marked`).
//!
//! `table_shares.json` in the target's temporary directory tells what became of
//! flows: how many long ones ten million packets of the flood left as they were,
//! and how many of 2^20 flows found no room.

#[allow(dead_code, reason = "the tests use the other part of it")]
#[path = "../../../splitter-agent/tests/it/support/loaded.rs"]
mod loaded;
#[allow(dead_code, reason = "the tests use the other part of it")]
#[path = "../../../crates/splitter-policy/tests/support/mod.rs"]
mod support;

mod balancers;
mod case;
mod cores;
mod counting;
mod fresh;
mod listed;
mod paced;
mod shares;
mod sites;
mod trace;
mod tunnels;

use std::time::Duration;

use aya::include_bytes_aligned;
use case::{Case, Pace, RUNS_OF_A_TICK};
use criterion::measurement::WallTime;
use criterion::{
    BenchmarkGroup, Criterion, SamplingMode, Throughput, criterion_group, criterion_main,
};
use flow_balance::ServiceTime;
use flow_testbed::require;
use flow_testbed::require::Requirement::Root;
use loaded::Loaded;
use splitter_policy::config::PolicyConfig;
use splitter_policy::counters::Counters;
use splitter_policy::flow::{Class, TunnelRole};
use splitter_policy::pass_reason::PassReason;
use splitter_policy::thresholds::Thresholds;
use support::packet::{Packet, Upper};

static YARDSTICK: &[u8] = include_bytes_aligned!("../../bpf/yardstick.o");
static SHIPPED: &[u8] =
    include_bytes_aligned!("../../../splitter-agent/crates/datapath/bpf/splitter.o");

/// The configuration's default.
const TABLE_SIZE: u32 = 1 << 20;

/// The settings of an agent at a LAN with an MTU of 1,500 bytes: with more payload a segment is an aggregate.
fn ordinary() -> PolicyConfig {
    PolicyConfig {
        segment_bytes: 1_460,
        ..PolicyConfig::default()
    }
}

/// A flow that sends more than some 170,000 full segments in the short tunnel
/// takes a slower path.
const SHORT_RUNS: u32 = 100_000;

fn datapath(criterion: &mut Criterion) {
    require!(Root);
    let mut group = group(criterion, "datapath");
    shares::write();
    write_once();
    fresh::measure_floods(&mut group);
    let mut yardstick = loaded(
        YARDSTICK,
        &[
            "bare_pass",
            "lru_hash",
            "lru_hash_ktime",
            "lru_hash_random",
            "split_unmarked",
            "split_random",
        ],
    );
    let fifty = sites::thresholds(PolicyConfig::DEFAULT_THRESHOLD, u64::MAX);
    sites::fill(&mut yardstick, &fifty, u64::MAX);
    for case in cases() {
        case.measure(&mut group, &mut yardstick);
    }
    drop(yardstick);
    fresh::measure_first_packets(&mut group);
    paced::measure(&mut group);
    listed::measure(&mut group);
    sites::measure(&mut group);
    counting::measure(&mut group);
    tunnels::measure(&mut group);
    balancers::measure(&mut group);
    group.finish();
}

/// Measures what criterion cannot time: several cores at once, and a trace from its beginning to its end, in
/// ns a packet above a program that does nothing there.
fn write_once() {
    let mut figures = cores::measure();
    figures.extend(trace::measure());
    let lines: Vec<_> = figures
        .iter()
        .map(|(name, ns)| format!("  \"{name}_ns\": {ns:.2}"))
        .collect();
    let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/datapath_once.json");
    let json = format!("{{\n{}\n}}\n", lines.join(",\n"));
    std::fs::write(path, json).expect("can be written");
}

fn yardstick(criterion: &mut Criterion) {
    require!(Root);
    let mut group = group(criterion, "yardstick");
    let renewals = [
        "renew_unmarked",
        "renew_new_flow",
        "renew_random",
        "renew_flood",
    ];
    let mut yardstick = loaded(YARDSTICK, &renewals);
    for program in renewals {
        Case::new(program, program).measure(&mut group, &mut yardstick);
    }
    let mut shipped = loaded(SHIPPED, &["split"]);
    let case = Case {
        counts: Some(|counters| counters.packets(Class::Long, TunnelRole::Long)),
        frame: marked_long(full_segment()),
        ..Case::new("shipped_known_flow_marked", "split")
    };
    case.measure(&mut group, &mut shipped);
    group.finish();
}

fn cases() -> Vec<Case> {
    let never_long = PolicyConfig {
        thresholds: Thresholds::uniform(u64::MAX),
        ..ordinary()
    };
    let rated = PolicyConfig {
        short_service: gigabit(),
        ..never_long
    };
    let datagram = Packet {
        upper: Upper::Udp {
            ports: (40_000, 443),
        },
        ..full_segment()
    };
    let segment_v6 = full_segment_v6();
    let long: fn(&Counters) -> u64 = |counters| counters.packets(Class::Long, TunnelRole::Long);
    let short: fn(&Counters) -> u64 = |counters| counters.packets(Class::Short, TunnelRole::Short);
    vec![
        Case::new("bare_pass", "bare_pass"),
        Case {
            counts: Some(long),
            ..Case::new("known_flow", "split_unmarked")
        },
        Case {
            counts: Some(short),
            config: never_long,
            frame: from_port(1, full_segment()),
            runs_of_a_flow: SHORT_RUNS,
            ..Case::new("known_short_flow", "split_unmarked")
        },
        Case {
            counts: Some(short),
            config: rated,
            frame: from_port(2, full_segment()),
            runs_of_a_flow: SHORT_RUNS,
            ..Case::new("known_short_flow_rated", "split_unmarked")
        },
        Case {
            counts: Some(short),
            config: never_long,
            frame: from_port(1, full_segment_v6()),
            runs_of_a_flow: SHORT_RUNS,
            ..Case::new("known_short_flow_v6", "split_unmarked")
        },
        Case {
            counts: Some(short),
            config: rated,
            frame: from_port(2, full_segment_v6()),
            runs_of_a_flow: SHORT_RUNS,
            ..Case::new("known_short_flow_rated_v6", "split_unmarked")
        },
        Case {
            counts: Some(short),
            config: PolicyConfig {
                thresholds: sites::thresholds(PolicyConfig::DEFAULT_THRESHOLD, u64::MAX),
                ..never_long
            },
            frame: from_port(3, full_segment()),
            runs_of_a_flow: SHORT_RUNS,
            ..Case::new("known_short_flow_50_sites", "split_unmarked")
        },
        Case {
            counts: Some(long),
            frame: segment_v6.bytes(),
            ..Case::new("ipv6_known", "split_unmarked")
        },
        Case {
            counts: Some(|counters| counters.passed(PassReason::Udp)),
            frame: datagram.bytes(),
            ..Case::new("non_tcp", "split_unmarked")
        },
        Case::new("lru_hash_known", "lru_hash"),
        Case::new("lru_hash_ktime_known", "lru_hash_ktime"),
        Case {
            frame: segment_v6.bytes(),
            ..Case::new("lru_hash_ipv6_known", "lru_hash")
        },
        by_chance("random_1m", full_segment()),
        by_chance("random_1m_v6", full_segment_v6()),
        Case {
            counts: None,
            at_least: 1.0,
            program: "lru_hash_random",
            ..by_chance("lru_hash_random_1m", full_segment())
        },
        Case {
            counts: None,
            at_least: 1.0,
            program: "lru_hash_random",
            ..by_chance("lru_hash_random_1m_v6", full_segment_v6())
        },
    ]
}

/// Each packet of one of 2^20 flows, by chance.
fn by_chance(name: &'static str, packet: Packet) -> Case {
    Case {
        // Until every flow has come several times.
        runs_before: 8 * TABLE_SIZE,
        pace: Some(Pace::of_tick(RUNS_OF_A_TICK)),
        counts: Some(split),
        at_least: TRACKED,
        frame: packet.bytes(),
        ..Case::new(name, "split_random")
    }
}

/// The part of 2^20 random flows that finds a slot in a table made for as many.
const TRACKED: f64 = 0.98;

/// Packets that were counted in a flow.
fn split(counters: &Counters) -> u64 {
    let classes = Class::ALL.into_iter();
    let sent = classes.flat_map(|class| TunnelRole::ALL.map(|it| counters.packets(class, it)));
    sent.sum()
}

fn loaded(object: &[u8], programs: &[&str]) -> Loaded {
    loaded_with_room(object, programs, TABLE_SIZE)
}

fn loaded_with_room(object: &[u8], programs: &[&str], table_size: u32) -> Loaded {
    let mut loaded = Loaded::new(object, table_size);
    programs.iter().for_each(|name| loaded.load_xdp(name));
    loaded
}

fn full_segment() -> Packet {
    Packet {
        payload_bytes: 1_460,
        ..Packet::tcp_v4()
    }
}

fn full_segment_v6() -> Packet {
    Packet {
        payload_bytes: 1_440,
        ..Packet::tcp_v6()
    }
}

fn from_port(port: u16, packet: Packet) -> Vec<u8> {
    let upper = Upper::Tcp {
        ports: (port, 443),
        flags: 0x10,
        option_bytes: 0,
    };
    Packet { upper, ..packet }.bytes()
}

/// Goes on to another flow: raises the source port of a frame without options or extension headers.
fn next_port(frame: &mut [u8]) {
    const IPV6: [u8; 2] = 0x86dd_u16.to_be_bytes();
    let at = if frame[12..14] == IPV6 { 54 } else { 34 };
    let port = u16::from_be_bytes([frame[at], frame[at + 1]]);
    frame[at..at + 2].copy_from_slice(&port.wrapping_add(2).to_be_bytes());
}

const fn gigabit() -> ServiceTime {
    ServiceTime::from_bits_per_second(1_000_000_000)
}

fn marked_long(packet: Packet) -> Vec<u8> {
    let traffic_class = PolicyConfig::DEFAULT_LONG_MARK.applied_to(0);
    Packet {
        traffic_class,
        ..packet
    }
    .bytes()
}

fn group<'a>(criterion: &'a mut Criterion, name: &str) -> BenchmarkGroup<'a, WallTime> {
    let mut group = criterion.benchmark_group(name);
    group
        .sampling_mode(SamplingMode::Flat)
        .sample_size(30)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .throughput(Throughput::Elements(1));
    group
}

criterion_group!(benches, datapath, yardstick);
criterion_main!(benches);
