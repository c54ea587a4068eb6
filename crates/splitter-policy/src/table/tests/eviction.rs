//! Eviction: which flows are evicted, which are displaced, which stay.

use super::*;

#[test]
fn young_flows_give_way_oldest_first_and_protected_ones_never() {
    // One group.
    let mut bench = Bench::new(GROUP_FLOWS, 3);
    let flow = |number| random_v4(number);
    for number in 0..6 {
        bench.packets(&flow(number), PROTECTED_PACKETS);
    }
    bench.packet(&flow(6));
    bench.now_ns += SECOND;
    bench.packet(&flow(7));
    bench.now_ns += SECOND;
    assert_eq!(bench.packet(&flow(8)), 1);
    // Where both are of one line; where they are not, the home line's goes.
    let known = bench.known();
    assert_eq!(known.len(), GROUP_SLOTS);
    assert!(known.contains_key(&flow(8)));
    assert_eq!(bench.evicted, 1);
    let mut survivor = if known.contains_key(&flow(7)) {
        flow(7)
    } else {
        flow(6)
    };
    for (key, name) in [(&mut survivor, "survivor"), (&mut flow(8), "new")] {
        bench.packets(key, PROTECTED_PACKETS);
        assert!(bench.known()[key] >= PROTECTED_PACKETS, "{name}");
    }
    assert_eq!(bench.packet(&flow(9)), 0, "all eight are protected");
    assert_eq!(bench.untracked, 1);
    assert!((0..6).all(|number| bench.known()[&flow(number)] == PROTECTED_PACKETS));

    // A flow that is silent for long enough is evicted after all.
    bench.now_ns += bench.idle_timeout_ns + SECOND;
    assert_eq!(bench.packet(&flow(9)), 1);
    assert_eq!(bench.evicted, 1, "an idle flow is not evicted, it is over");
}

#[test]
fn a_displaced_flow_is_found_until_its_home_has_room_and_after() {
    let mut bench = Bench::new(GROUP_FLOWS, 11);
    let flows: Vec<_> = (0..8).map(random_v4).collect();
    flows
        .iter()
        .for_each(|key| bench.packets(key, PROTECTED_PACKETS));
    // With eight flows in eight slots some are displaced.
    bench.clear_overflow();
    for key in &flows {
        assert_eq!(bench.packet(key), PROTECTED_PACKETS + 1);
    }
    let at_home = |bench: &Bench| {
        let slots = (0..GROUP_SLOTS).filter_map(|index| {
            let found = bench.groups.v4[0].read(index, bench.now_ns)?;
            Some((bench.layout.place(&found.key).1, index & !1))
        });
        slots.filter(|(home, line)| home == line).count()
    };
    assert!(at_home(&bench) < GROUP_SLOTS);
    // When all are gone, so are the marks.
    for index in 0..GROUP_SLOTS {
        let found = bench.groups.v4[0].read(index, bench.now_ns).expect("full");
        assert!(bench.groups.v4[0].remove(index, &found));
    }
    bench.clear_overflow();
    let group = &bench.groups.v4[0];
    assert!((0..GROUP_SLOTS).all(|index| group.slot(index).record().owner() == Owner(0)));
}

#[test]
fn a_packet_in_between_keeps_a_slot_from_being_freed() {
    let mut bench = Bench::new(GROUP_FLOWS, 1);
    let key = random_v4(1);
    bench.packet(&key);
    let index = (0..GROUP_SLOTS)
        .find(|&index| bench.groups.v4[0].read(index, bench.now_ns).is_some())
        .expect("is there");
    let found = bench.groups.v4[0]
        .read(index, bench.now_ns)
        .expect("is there");
    bench.now_ns += SECOND;
    bench.packet(&key);
    assert!(!bench.groups.v4[0].remove(index, &found));
    assert_eq!(bench.packet(&key), 3);
}
