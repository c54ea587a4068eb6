//! The first packets of flows, in tables of several sizes, and a flood of them.

use criterion::BenchmarkGroup;
use criterion::measurement::WallTime;
use splitter_policy::config::PolicyConfig;
use splitter_policy::counters::FlowEvent;

use super::case::{Case, FEWEST_RUNS, Pace, RUNS_OF_A_TICK};
use super::support::packet::Packet;
use super::{
    TABLE_SIZE, YARDSTICK, full_segment, full_segment_v6, loaded, loaded_with_room, shares,
};

/// Half a megabyte, of which most second-level caches hold all.
const CACHED_TABLE_SIZE: u32 = 1 << 13;

/// 128 KiB: its slots of IPv4 take 64 bytes a flow.
const SMALL_TABLE_SIZE: u32 = 1 << 11;

/// A row of ours and one of the peer, and their packets.
type Rows = ([&'static str; 2], fn() -> Packet);

/// 63 packets of new flows to each of 10,000 long ones.
pub(super) fn measure_floods(group: &mut BenchmarkGroup<'_, WallTime>) {
    let rows: [Rows; 2] = [
        (["flood", "lru_hash_flood"], full_segment),
        (["flood_v6", "lru_hash_flood_v6"], full_segment_v6),
    ];
    for (names, packet) in rows {
        let programs = [
            ("split_flood", "split_long_flows"),
            ("lru_hash_flood", "lru_hash_long_flows"),
        ];
        for (name, (program, long_flows)) in names.into_iter().zip(programs) {
            let mut fresh = loaded(YARDSTICK, &[program, long_flows]);
            let frame = packet().bytes();
            shares::warm_up(&mut fresh, &[long_flows], &frame);
            let case = Case {
                frame,
                ..Case::new(name, program)
            };
            case.measure(group, &mut fresh);
        }
    }
}

/// Each packet the first of its flow.
pub(super) fn measure_first_packets(group: &mut BenchmarkGroup<'_, WallTime>) {
    let v4: [Rows; 3] = [
        (["new_flow", "lru_hash_new_flow"], full_segment),
        (
            ["new_flow_cached", "lru_hash_new_flow_cached"],
            full_segment,
        ),
        (["new_flow_128k", "lru_hash_new_flow_128k"], full_segment),
    ];
    let v6: [Rows; 3] = [
        (["new_flow_v6", "lru_hash_new_flow_v6"], full_segment_v6),
        (
            ["new_flow_cached_v6", "lru_hash_new_flow_cached_v6"],
            full_segment_v6,
        ),
        (
            ["new_flow_128k_v6", "lru_hash_new_flow_128k_v6"],
            full_segment_v6,
        ),
    ];
    for rows in [v4, v6] {
        let sizes = [TABLE_SIZE, CACHED_TABLE_SIZE, SMALL_TABLE_SIZE];
        for ((names, packet), table_size) in rows.into_iter().zip(sizes) {
            let programs = ["lru_hash_new_flow", "split_new_flow"];
            let mut fresh = loaded_with_room(YARDSTICK, &programs, table_size);
            for case in new_flows(names, &packet().bytes(), table_size) {
                case.measure(group, &mut fresh);
            }
        }
    }
}

/// Rows of ours and of the peer, in a table for so many flows.
pub(super) fn new_flows(names: [&'static str; 2], frame: &[u8], table_size: u32) -> [Case; 2] {
    let [ours, peer] = names;
    // Until the table is full and each new flow takes another's place.
    let runs_before = 4 * table_size;
    // As many as find slots whose flows are over: with more, those of the same time evict each other (of IPv6 a line
    // has one slot), which is a flood, and passes the table by.
    let pace = Pace {
        runs: (table_size / 16).min(RUNS_OF_A_TICK),
        step_ns: 250_000_000,
        fewest: FEWEST_RUNS,
    };
    let case = |name, program| {
        let case = Case::new(name, program);
        Case {
            config: PolicyConfig {
                idle_timeout_ns: 1,
                ..case.config
            },
            frame: frame.to_vec(),
            runs_before,
            pace: Some(pace),
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
