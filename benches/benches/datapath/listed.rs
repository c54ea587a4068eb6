//! Flows from a list: Zipf's law over 2^20 of them, and short ones among long ones.

use aya::maps::Array;
use criterion::BenchmarkGroup;
use criterion::measurement::WallTime;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use rand_distr::{Distribution as _, Zipf};
use splitter_policy::config::PolicyConfig;
use splitter_policy::flow::{Class, TunnelRole};
use splitter_policy::thresholds::Thresholds;

use super::case::{Case, Pace, RUNS_OF_A_TICK};
use super::loaded::Loaded;
use super::support::packet::Packet;
use super::{TABLE_SIZE, TRACKED, YARDSTICK, full_segment, loaded_with_room, ordinary, split};

/// Packets of the list, as the yardstick has it.
pub(super) const LISTED: u32 = 1 << 20;

/// Mixed traffic: its long flows, which send three packets in four, and the packets of each short one.
const LONG_FLOWS: u32 = 1_000;
const SHORT_PACKETS: u32 = 8;

pub(super) fn measure(group: &mut BenchmarkGroup<'_, WallTime>) {
    let v6 = Packet {
        payload_bytes: 1_440,
        ..Packet::tcp_v6()
    };
    let (v4, v6) = (full_segment().bytes(), v6.bytes());
    let lists = [
        (
            40,
            zipf(),
            [
                "zipf_1m",
                "zipf_1m_v6",
                "lru_hash_zipf_1m",
                "lru_hash_zipf_1m_v6",
            ],
        ),
        // By which the short flows stay short, however often the list comes round.
        (
            1_000,
            mixed(),
            ["mixed", "mixed_v6", "lru_hash_mixed", "lru_hash_mixed_v6"],
        ),
    ];
    for (threshold, list, [ours, ours_v6, peer, peer_v6]) in lists {
        let programs = ["split_listed", "lru_hash_listed"];
        let mut fresh = loaded_with_room(YARDSTICK, &programs, TABLE_SIZE);
        write(&mut fresh, &list);
        let case = |name, program, frame: &Vec<u8>| Case {
            config: PolicyConfig {
                drain_margin_ns: 0,
                thresholds: Thresholds::uniform(threshold),
                ..ordinary()
            },
            frame: frame.clone(),
            // All of the list at least twice, until flows are what they will be.
            runs_before: 2 * LISTED,
            pace: Some(Pace::of_tick(RUNS_OF_A_TICK)),
            ..Case::new(name, program)
        };
        for (name, frame) in [(ours, &v4), (ours_v6, &v6)] {
            let case = Case {
                counts: Some(split),
                at_least: TRACKED,
                ..case(name, "split_listed", frame)
            };
            case.measure(group, &mut fresh);
        }
        let long = fresh.counters().packets(Class::Long, TunnelRole::Long);
        assert!(
            long > u64::from(LISTED),
            "{ours}: few packets are of long flows"
        );
        for (name, frame) in [(peer, &v4), (peer_v6, &v6)] {
            case(name, "lru_hash_listed", frame).measure(group, &mut fresh);
        }
    }
}

pub(super) fn write(yardstick: &mut Loaded, list: &[u32]) {
    let map = yardstick.map("LIST");
    let mut map: Array<_, u32> = map.try_into().expect("is an array");
    for (index, flow) in (0..).zip(list) {
        map.set(index, flow, 0).expect("can be written");
    }
}

/// The n-th flow has a packet for n of the first's.
fn zipf() -> Vec<u32> {
    let mut random = SmallRng::seed_from_u64(5);
    let zipf = Zipf::new(f64::from(TABLE_SIZE), 1.0).expect("more than one");
    let flow = |_| zipf.sample(&mut random) as u32 - 1;
    (0..LISTED).map(flow).collect()
}

/// Short flows are there with their 8 packets once in each round of the list; their packets lie between those of others.
fn mixed() -> Vec<u32> {
    const OPEN: u32 = 64;
    let mut random = SmallRng::seed_from_u64(6);
    let mut next_short = 0;
    let packet = |_| {
        if random.random_ratio(3, 4) {
            return random.random_range(0..LONG_FLOWS);
        }
        let (round, open) = (next_short / (OPEN * SHORT_PACKETS), next_short % OPEN);
        next_short += 1;
        LONG_FLOWS + round * OPEN + open
    };
    (0..LISTED).map(packet).collect()
}
