//! New flows at the rates of traffic: 100, 10,000 and a million a second.
//!
//! At the lowest rate each has a clock tick of its own, and no packet finds warm what it needs: that is
//! in the figure. The kernel's measurement of so few packets is a part of it, too; `floor_*` tells how
//! much, and is what `cargo xtask bench-datapath` takes from these rows.

use criterion::BenchmarkGroup;
use criterion::measurement::WallTime;
use splitter_policy::config::PolicyConfig;
use splitter_policy::counters::{Counters, FlowEvent};

use super::case::{Case, FEWEST_RUNS, Pace, TICK_NS};
use super::support::packet::Packet;
use super::{TABLE_SIZE, YARDSTICK, full_segment, loaded_with_room, ordinary};

/// A rate: the endings of its rows, how its packets come, and when flows are over. The last one's have to be sooner than
/// by default: of those of 30 s no table has room for all.
struct Rate {
    names: [&'static str; 4],
    pace: Pace,
    idle_timeout_ns: u64,
}

const RATES: [Rate; 3] = [
    Rate {
        names: [
            "floor_100",
            "insertion_100",
            "insertion_v6_100",
            "lru_hash_insertion_100",
        ],
        pace: Pace {
            runs: 1,
            step_ns: 10_000_000,
            fewest: 5_000,
        },
        idle_timeout_ns: PolicyConfig::DEFAULT_IDLE_TIMEOUT_NS,
    },
    Rate {
        names: [
            "floor_10k",
            "insertion_10k",
            "insertion_v6_10k",
            "lru_hash_insertion_10k",
        ],
        pace: Pace {
            runs: 40,
            step_ns: TICK_NS,
            fewest: 40_000,
        },
        idle_timeout_ns: PolicyConfig::DEFAULT_IDLE_TIMEOUT_NS,
    },
    Rate {
        names: [
            "floor_1m",
            "insertion_1m",
            "insertion_v6_1m",
            "lru_hash_insertion_1m",
        ],
        pace: Pace {
            runs: 4_000,
            step_ns: TICK_NS,
            fewest: FEWEST_RUNS,
        },
        // Short, so that first packets of IPv6, of which a line has one slot, seldom find one that is live.
        idle_timeout_ns: 5_000_000,
    },
];

pub(super) fn measure(group: &mut BenchmarkGroup<'_, WallTime>) {
    let programs = ["renew_new_flow", "split_new_flow", "lru_hash_new_flow"];
    let started: fn(&Counters) -> u64 = |counters| counters.events(FlowEvent::Started);
    let v6 = Packet {
        payload_bytes: 1_440,
        ..Packet::tcp_v6()
    };
    for Rate {
        names: [floor, ours, ours_v6, peer],
        pace,
        idle_timeout_ns,
    } in RATES
    {
        let mut fresh = loaded_with_room(YARDSTICK, &programs, TABLE_SIZE);
        let case = |name, program| Case {
            config: PolicyConfig {
                idle_timeout_ns,
                ..ordinary()
            },
            frame: full_segment().bytes(),
            runs_before: 200_000,
            pace: Some(pace),
            ..Case::new(name, program)
        };
        let ours = Case {
            counts: Some(started),
            ..case(ours, "split_new_flow")
        };
        let ours_v6 = Case {
            counts: Some(started),
            frame: v6.bytes(),
            ..case(ours_v6, "split_new_flow")
        };
        for case in [
            case(floor, "renew_new_flow"),
            ours,
            ours_v6,
            case(peer, "lru_hash_new_flow"),
        ] {
            case.measure(group, &mut fresh);
        }
    }
}
