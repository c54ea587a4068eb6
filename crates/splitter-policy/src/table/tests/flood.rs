//! The stated load, and a flood.

use super::*;

#[test]
fn at_the_stated_load_less_than_one_flow_in_a_hundred_is_untracked() {
    const FLOWS: u32 = 1 << 16;
    type Make = fn(u32) -> FlowKey;
    let patterns: [Make; 4] = [
        |number| random_v4(number.into()),
        sequential_v4,
        |number| v6(number >> 6, number & 63),
        |number| v6(number.reverse_bits(), 80),
    ];
    for make in patterns {
        for seed in 0..4 {
            let mut bench = Bench::new(FLOWS, seed);
            for number in 0..FLOWS {
                // Protected, so that none is evicted.
                bench.packets(&make(number), PROTECTED_PACKETS);
            }
            let tracked = bench.known().len();
            let share = 1.0 - tracked as f64 / f64::from(FLOWS);
            assert!(share <= 0.01, "{:?}: {share}", make(0));
            assert!(bench.untracked >= u64::from(FLOWS) - tracked as u64);
            let counts_are_right = bench.known().values().all(|&count| count == 4);
            assert!(counts_are_right, "no two flows share a slot");
        }
    }
}

#[test]
fn a_flood_does_not_push_out_long_flows() {
    for is_hurried in [false, true] {
        flood(is_hurried);
    }
}

fn flood(is_hurried: bool) {
    const LONG: u64 = 1_000;
    let mut bench = Bench::new(1 << 14, 7);
    bench.is_hurried = is_hurried;
    let long: Vec<_> = (0..LONG).map(|n| random_v4(n << 40)).collect();
    long.iter().for_each(|key| bench.packets(key, 50));
    let mut misjudged = 0;
    for number in 0..1_000_000 {
        bench.packet(&random_v4(number));
        bench.now_ns += 1_000;
        if number % 64 == 0 {
            bench.packet(&long[(number / 64 % LONG) as usize]);
        }
        // Somebody's short flow in the midst of it: never taken for long.
        if number % 1_000 == 0 {
            let short = random_v4(!number);
            misjudged += (0..10).filter(|_| bench.packet(&short) > 10).count();
        }
    }
    let known = bench.known();
    let kept = long.iter().filter(|key| known.get(*key) >= Some(&65));
    assert!(kept.count() as u64 >= LONG * 99 / 100);
    assert_eq!(misjudged, 0);
    assert!(bench.evicted > 900_000);
}

#[test]
fn tags_rule_out_most_of_what_is_not_known_and_nothing_else() {
    const FLOWS: u64 = 1 << 14;
    for make in [random_v4, |number| v6(number as u32, 80)] {
        let mut bench = Bench::new(FLOWS as u32, 3);
        // Twice as many as there are slots, so that slots change hands.
        (0..4 * FLOWS).for_each(|number| {
            bench.packet(&make(number));
        });
        let table = Table {
            memory: &bench.groups,
            layout: &bench.layout,
        };
        let is_ruled_out = |key: &FlowKey| match key {
            FlowKey::V4(key) => table.line(key).expect("it is there").is_ruled_out(),
            FlowKey::V6(key) => table.line(key).expect("it is there").is_ruled_out(),
        };
        let known = bench.known();
        assert!(known.len() as u64 > FLOWS);
        assert!(!known.keys().any(is_ruled_out));
        let unknown = (4 * FLOWS..8 * FLOWS).map(make);
        let mistaken = unknown.filter(|key| !is_ruled_out(key)).count() as u64;
        // Eight tags of 256.
        assert!(mistaken < 4 * FLOWS / 25, "{mistaken}");
    }
}

/// Keys that whoever has a /64 can make: `source` or `destination` is in it, and of the other end
/// the prefix varies. Where two factors of the hash share a seed, their products add up to the same.
fn crafted_v6(number: u32, is_sender: bool) -> FlowKey {
    const SUM: u32 = 0x9abc_def0;
    const SAME: u32 = 0x1357_9bdf;
    let word = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
    let (own, far) = (word(0xb80d_0120, SAME), word(number, SAME));
    let (source, destination) = if is_sender {
        ([own, far], [word(SAME, SUM - number), 1])
    } else {
        ([word(SAME, SUM - number), 1], [own, far])
    };
    FlowKey::V6(FlowKeyV6 {
        source,
        destination,
        ports: 80,
        protocol: protocol::TCP.into(),
    })
}

#[test]
fn flows_of_one_prefix_spread_over_the_groups_under_every_seed() {
    const FLOWS: u32 = 1_000;
    for seed in 0..200 {
        let layout = Layout::for_flows(4 * FLOWS, seeds(seed));
        for is_sender in [true, false] {
            let mut groups = std::vec![0; layout.groups_v6 as usize];
            for number in 0..FLOWS {
                groups[layout.place(&crafted_v6(number, is_sender)).0 as usize] += 1;
            }
            // One a group on the average: of 400 such draws, one in 10^7 has so many in one.
            let most = groups.iter().max();
            assert!(most <= Some(&16), "{most:?} in one group under {seed}");
        }
    }
}
