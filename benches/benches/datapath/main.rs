//! What a packet costs in the kernel, in nanoseconds of one CPU.
//!
//! The kernel runs a program some 100,000 times on end (`BPF_PROG_TEST_RUN`);
//! its thread's CPU time over that is what a packet takes. Of new flows it runs
//! as many as find room, and the kernel's own time counts, in whole nanoseconds.
//! Driver, wire and cold caches are not in it. Each figure is absolute; what a program itself
//! costs is the difference to `bare_pass`, which
//! `cargo xtask bench-datapath` shows.
//!
//! | `datapath/` | measures |
//! |---|---|
//! | `bare_pass` | a program that passes everything: the floor |
//! | `known_flow` | a flow in the long tunnel, the steady state of bulk traffic |
//! | `known_short_flow` | a flow below its threshold |
//! | `known_short_flow_rated` | the same, its full packets put into the modelled queue of a short tunnel of known rate, which takes the precise clock |
//! | `new_flow` | each packet the first of its flow, inserted where one was that is over, in a table of the default size |
//! | `new_flow_cached` | the same in a table for 8,192 flows, half a megabyte, which the second-level cache holds |
//! | `known_short_flow_50_sites` | `known_short_flow` to one of 50 sites, which have 30 thresholds: it has been looked up |
//! | `new_flow_50_sites` | `new_flow` beside 50 sites |
//! | `new_long_flow` | `new_flow` with each packet long at once: as much as the packet costs that goes beyond a threshold, and no packet of a flow after it |
//! | `new_long_flow_50_sites` | the same with the flow's site looked up among 50 |
//! | `random_1m` | each packet of one of 2^20 flows, by chance, in a table of the default size |
//! | `flood` | each packet the first of a flow of chance, but every 64th of one of 10,000 long flows |
//! | `non_tcp` | a UDP datagram, which passes untreated |
//! | `ipv6_known` | `known_flow` over IPv6 |
//! | `lru_hash_known` | the peer: parse and count per flow in a plain `LRU_HASH` |
//! | `lru_hash_ktime_known` | the peer with the time of the last packet |
//! | `lru_hash_ipv6_known`, `lru_hash_new_flow`, `lru_hash_new_flow_cached`, `lru_hash_random_1m`, `lru_hash_flood` | the peer in the other cases |
//!
//! | `count_at_tunnel` | a packet that a tunnel's device is handed, counted by its mark; the floor is that of traffic control, some nanoseconds above `bare_pass` |
//! | `count_at_site` | a packet that a device of the site is handed, counted by its flow |
//! | `count_elsewhere` | the same program at a device that the agent has said nothing of: it looks and lets the packet go |
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
mod counting;
mod shares;
mod sites;

use std::time::Duration;

use aya::include_bytes_aligned;
use case::Case;
use criterion::measurement::WallTime;
use criterion::{
    BenchmarkGroup, Criterion, SamplingMode, Throughput, criterion_group, criterion_main,
};
use flow_balance::ServiceTime;
use flow_testbed::require;
use flow_testbed::require::Requirement::Root;
use loaded::Loaded;
use splitter_policy::config::PolicyConfig;
use splitter_policy::counters::{Counters, FlowEvent};
use splitter_policy::flow::{Class, TunnelRole};
use splitter_policy::pass_reason::PassReason;
use splitter_policy::thresholds::Thresholds;
use support::packet::{Packet, Upper};

static YARDSTICK: &[u8] = include_bytes_aligned!("../../bpf/yardstick.o");
static SHIPPED: &[u8] =
    include_bytes_aligned!("../../../splitter-agent/crates/datapath/bpf/splitter.o");

/// The configuration's default.
const TABLE_SIZE: u32 = 1 << 20;

/// A flow that sends more than some 170,000 full segments in the short tunnel
/// takes a slower path.
const SHORT_RUNS: u32 = 100_000;

/// Of which the second-level cache holds all.
const CACHED_TABLE_SIZE: u32 = 1 << 13;

fn datapath(criterion: &mut Criterion) {
    require!(Root);
    let mut group = group(criterion, "datapath");
    shares::write();
    let floods = [
        ("flood", "split_flood", "split_long_flows"),
        ("lru_hash_flood", "lru_hash_flood", "lru_hash_long_flows"),
    ];
    for (name, program, long_flows) in floods {
        let mut fresh = loaded(YARDSTICK, &[program, long_flows]);
        shares::warm_up(&mut fresh, &[long_flows]);
        Case::new(name, program).measure(&mut group, &mut fresh);
    }
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
    let names = ["new_flow", "lru_hash_new_flow"];
    let names_cached = ["new_flow_cached", "lru_hash_new_flow_cached"];
    for (names, table_size) in [(names, TABLE_SIZE), (names_cached, CACHED_TABLE_SIZE)] {
        let programs = ["lru_hash_new_flow", "split_new_flow"];
        let mut fresh = loaded_with_room(YARDSTICK, &programs, table_size);
        for case in new_flows(names, table_size) {
            case.measure(&mut group, &mut fresh);
        }
    }
    sites::measure(&mut group);
    counting::measure(&mut group);
    balancers::measure(&mut group);
    group.finish();
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
        ..PolicyConfig::default()
    };
    let rated = PolicyConfig {
        short_service: ServiceTime::from_bits_per_second(1_000_000_000),
        ..never_long
    };
    let datagram = Packet {
        upper: Upper::Udp {
            ports: (40_000, 443),
        },
        ..full_segment()
    };
    let segment_v6 = Packet {
        payload_bytes: 1_440,
        ..Packet::tcp_v6()
    };
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
        Case {
            // Until every flow has come several times.
            runs_before: 8 * TABLE_SIZE,
            ..Case::new("random_1m", "split_random")
        },
        Case {
            runs_before: 8 * TABLE_SIZE,
            ..Case::new("lru_hash_random_1m", "lru_hash_random")
        },
    ]
}

/// Each packet the first of its flow, in tables for so many flows.
fn new_flows(names: [&'static str; 2], table_size: u32) -> [Case; 2] {
    let [ours, peer] = names;
    // Until the table is full and each new flow takes another's place.
    let runs_before = 4 * table_size;
    // As many as find room: more were a flood, which passes the table by.
    let runs_of_a_moment = table_size.min(SHORT_RUNS);
    let case = |name, program| {
        let case = Case::new(name, program);
        Case {
            config: PolicyConfig {
                idle_timeout_ns: 1,
                ..case.config
            },
            runs_before,
            runs_of_a_moment: Some(runs_of_a_moment),
            ..case
        }
    };
    [
        Case {
            counts: Some(|counters| counters.events(FlowEvent::Started)),
            ..case(ours, "split_new_flow")
        },
        case(peer, "lru_hash_new_flow"),
    ]
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

fn from_port(port: u16, packet: Packet) -> Vec<u8> {
    let upper = Upper::Tcp {
        ports: (port, 443),
        flags: 0x10,
        option_bytes: 0,
    };
    Packet { upper, ..packet }.bytes()
}

/// Goes on to another flow: raises the source port of a frame without options.
fn next_port(frame: &mut [u8]) {
    const SOURCE_PORT: std::ops::Range<usize> = 34..36;
    let port = u16::from_be_bytes([frame[SOURCE_PORT.start], frame[SOURCE_PORT.start + 1]]);
    frame[SOURCE_PORT].copy_from_slice(&port.wrapping_add(2).to_be_bytes());
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
