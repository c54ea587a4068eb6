//! No two flows share a slot, and the table counts as a map does.

use super::*;
use crate::flow::FlowKeyV4;
use proptest::prelude::*;

#[test]
fn protocols_and_families_do_not_mix() {
    let mut bench = Bench::new(64, 5);
    for number in [protocol::TCP, protocol::UDP, protocol::ESP, protocol::GRE] {
        let key = FlowKeyV4 {
            source: 1,
            destination: 2,
            ports: 3,
            protocol: number.into(),
        };
        assert_eq!(bench.packet(&FlowKey::V4(key)), 1);
        assert_eq!(bench.packet(&FlowKey::V6(FlowKey::V4(key).as_v6())), 1);
        assert_eq!(bench.packet(&FlowKey::V4(key)), 2);
    }
    assert_eq!(bench.known().len(), 8);
}

/// Two threads that claim at once: each flow has its own slot, or none.
#[test]
fn claims_of_several_cpus_never_meet() {
    let layout = Layout::for_flows(256, seeds(9));
    let groups = Groups::new(&layout);
    std::thread::scope(|scope| {
        for cpu in 0..2 {
            let (groups, layout) = (&groups, &layout);
            scope.spawn(move || {
                let table = Table {
                    memory: groups,
                    layout,
                };
                for number in 0..200_000u64 {
                    let key = random_v4(number % 2_000 * 2 + cpu);
                    let claim = || table.insert(&key, SECOND, IDLE_TIMEOUT_NS, || false);
                    if let Some(slot) = table.lookup(&key).or_else(claim) {
                        let mut entry = slot.entry(SECOND);
                        entry.packets += 1;
                        // The flow's own number, to tell whose entry this is.
                        let owner = number % 2_000 * 2 + cpu + 1;
                        assert!(entry.bytes == 0 || entry.bytes == owner);
                        entry.bytes = owner;
                        slot.commit(&entry, SECOND);
                    }
                }
            });
        }
    });
}

proptest! {
    /// Whatever comes, the table counts as a map without bounds does, as long as
    /// nothing is evicted.
    #[test]
    fn with_room_the_table_is_a_map(numbers in proptest::collection::vec((0u64..60, any::<bool>()), 1..400), seed: u64) {
        let mut bench = Bench::new(4_096, seed);
        let mut model: HashMap<FlowKey, u64> = HashMap::new();
        for (number, is_v6) in numbers {
            let key = if is_v6 { v6(number as u32, 7) } else { random_v4(number) };
            let count = model.entry(key).or_default();
            *count += 1;
            prop_assert_eq!(bench.packet(&key), *count);
        }
        prop_assert_eq!(bench.known(), model);
        prop_assert_eq!((bench.evicted, bench.untracked), (0, 0));
    }

    /// In the smallest table flows come and go; no count is ever another's, and
    /// none exceeds what the flow has sent.
    #[test]
    fn without_room_no_count_is_too_high(numbers in proptest::collection::vec((0u64..30, 0u64..10 * SECOND), 1..400), seed: u64) {
        let mut bench = Bench::new(GROUP_FLOWS, seed);
        let mut sent: HashMap<FlowKey, u64> = HashMap::new();
        for (number, gap_ns) in numbers {
            bench.now_ns += gap_ns;
            let key = random_v4(number);
            let sent = sent.entry(key).or_default();
            *sent += 1;
            prop_assert!(bench.packet(&key) <= *sent);
            bench.known();
        }
    }
}
