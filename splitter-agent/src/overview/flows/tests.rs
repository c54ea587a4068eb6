use std::net::Ipv4Addr;

use super::*;

const SECOND: u64 = 1_000_000_000;

fn row(number: u16, packets: u64) -> FlowRow {
    FlowRow {
        source: Ipv4Addr::new(10, 0, (number >> 8) as u8, number as u8).into(),
        protocol: "tcp",
        source_port: Some(1_000 + number),
        destination: Ipv4Addr::new(10, 9, 0, 1).into(),
        destination_port: Some(443),
        identifier: None,
        class: if packets > 40 { "long" } else { "short" },
        tunnel: if packets > 50 { "long" } else { "short" },
        packets,
        bytes: packets * 1_000,
        age_s: 100.0,
        idle_s: 0.1,
        finished: false,
    }
}

fn selection(sort: SortBy) -> Selection {
    Selection {
        sort,
        reversed: false,
        filter: Filter::default(),
        limit: 100,
    }
}

fn look(
    selection: &Selection,
    earlier: Earlier,
    at_s: u64,
    rows: &[FlowRow],
) -> (Vec<Flow>, u64, Earlier) {
    let mut collector = Collector::new(selection.clone(), earlier, at_s * SECOND);
    rows.iter().for_each(|row| collector.take(alone(*row)));
    collector.finish()
}

/// A flow of which one direction alone is seen.
fn alone(flow: FlowRow) -> Connection {
    Connection {
        flow,
        reverse: None,
        fills: None,
    }
}

/// A flow that has got so many packets back, in the middle of things.
fn answered(flow: FlowRow, packets: u64) -> Connection {
    let reverse = Reverse {
        packets,
        bytes: packets * 1_500,
        idle_s: 0.1,
        tunnel: Some("long"),
    };
    Connection {
        reverse: Some(reverse),
        ..alone(flow)
    }
}

fn look_at(
    selection: &Selection,
    earlier: Earlier,
    at_s: u64,
    connections: &[Connection],
) -> (Vec<Flow>, u64, Earlier) {
    let mut collector = Collector::new(selection.clone(), earlier, at_s * SECOND);
    connections.iter().for_each(|it| collector.take(*it));
    collector.finish()
}

fn numbers(flows: &[Flow]) -> Vec<u16> {
    flows
        .iter()
        .map(|flow| flow.row.source_port.unwrap() - 1_000)
        .collect()
}

#[test]
fn rates_are_taken_over_the_time_between_two_looks() {
    let by_rate = selection(SortBy::Rate);
    let first = [row(1, 100), row(2, 100), row(3, 100)];
    let (flows, _, earlier) = look(&by_rate, Earlier::default(), 10, &first);
    assert!(
        flows.iter().all(|flow| flow.bits_per_s.is_none()),
        "nothing to compare with"
    );

    let silent = FlowRow {
        idle_s: 7.0,
        ..row(3, 100)
    };
    let new = FlowRow {
        age_s: 1.5,
        ..row(4, 30)
    };
    let restarted = FlowRow {
        age_s: 0.5,
        ..row(2, 4)
    };
    let second = [row(1, 150), restarted, silent, new, row(5, 9)];
    let (flows, matching, _) = look(&by_rate, earlier, 12, &second);
    assert_eq!(matching, 5);
    let rate = |number: u16| {
        let flow = flows
            .iter()
            .find(|flow| flow.row.source_port == Some(1_000 + number));
        let flow = flow.expect("it is listed");
        (flow.packets_per_s, flow.bits_per_s)
    };
    assert_eq!(rate(1), (Some(25.0), Some(200_000.0)));
    assert_eq!(
        rate(2),
        (Some(2.0), Some(16_000.0)),
        "it counts from zero again"
    );
    assert_eq!(rate(3), (Some(0.0), Some(0.0)));
    assert_eq!(rate(4), (Some(15.0), Some(120_000.0)), "all of it is new");
    assert_eq!(
        rate(5),
        (None, None),
        "it was not there to be seen, and is older"
    );
    assert_eq!(numbers(&flows), [1, 4, 2, 3, 5], "the unknown come last");
}

#[test]
fn download_is_as_fast_as_what_comes_back_and_comes_first() {
    let by_rate = selection(SortBy::Rate);
    let first = [
        answered(row(1, 100), 200),
        alone(row(2, 100)),
        alone(row(3, 9)),
    ];
    let (flows, _, earlier) = look_at(&by_rate, Earlier::default(), 10, &first);
    assert!(flows.iter().all(|it| it.both_bits_per_s().is_none()));
    let back = |packets| answered(row(3, 11), packets);
    let second = [
        answered(row(1, 110), 1_200),
        alone(row(2, 200)),
        // Nothing of it was seen before: all of that is new.
        back(2),
    ];
    let (flows, _, earlier) = look_at(&by_rate, earlier, 12, &second);
    assert_eq!(numbers(&flows), [1, 2, 3]);
    let [download, upload, _] = &flows[..] else {
        panic!("{flows:?}");
    };
    let reverse = download.reverse.expect("it is seen");
    assert_eq!(download.bits_per_s, Some(40_000.0));
    assert_eq!(
        (reverse.packets_per_s, reverse.bits_per_s),
        (Some(500.0), Some(6_000_000.0))
    );
    assert_eq!(download.fills, Some(Direction::In));
    assert_eq!((upload.reverse, upload.fills), (None, None));
    let reverse = flows[2].reverse.expect("it is seen");
    assert_eq!(reverse.packets_per_s, Some(1.0));
    // Its counts began again.
    let (flows, ..) = look_at(&by_rate, earlier, 14, &[back(1)]);
    let reverse = flows[0].reverse.expect("it is seen");
    assert_eq!(reverse.packets_per_s, Some(0.5));
}

#[test]
fn packets_and_bytes_that_order_are_those_of_both_directions() {
    let all = [alone(row(1, 60)), answered(row(2, 50), 40)];
    for sort in [SortBy::Packets, SortBy::Bytes] {
        let (flows, ..) = look_at(&selection(sort), Earlier::default(), 10, &all);
        assert_eq!(numbers(&flows), [2, 1], "{sort:?}");
    }
}

#[test]
fn flows_that_have_ended_come_after_those_that_live_in_any_order() {
    let ended = FlowRow {
        finished: true,
        ..row(1, 1_000)
    };
    let rows = [ended, row(2, 5), row(3, 9)];
    for sort in SortBy::ALL {
        for reversed in [false, true] {
            let selection = Selection {
                reversed,
                ..selection(sort)
            };
            let (flows, ..) = look(&selection, Earlier::default(), 10, &rows);
            assert_eq!(numbers(&flows).last(), Some(&1), "{sort:?} {reversed}");
            // Nor does one take the place of one that lives.
            let one = Selection {
                limit: 1,
                ..selection
            };
            let (flows, ..) = look(&one, Earlier::default(), 10, &rows);
            assert_ne!(numbers(&flows), [1], "{sort:?} {reversed}");
        }
    }
}

#[test]
fn each_column_orders_and_reverses() {
    let rows = [
        FlowRow {
            age_s: 1.0,
            idle_s: 0.9,
            ..row(1, 45)
        },
        FlowRow {
            age_s: 3.0,
            idle_s: 0.1,
            ..row(2, 60)
        },
        FlowRow {
            age_s: 2.0,
            idle_s: 0.5,
            bytes: 1_000_000,
            ..row(3, 5)
        },
    ];
    let cases = [
        (SortBy::Packets, [2, 1, 3]),
        (SortBy::Bytes, [3, 2, 1]),
        (SortBy::Age, [2, 3, 1]),
        (SortBy::Idle, [1, 3, 2]),
        (SortBy::Class, [2, 1, 3]),
        (SortBy::Tunnel, [2, 1, 3]),
        (SortBy::Flow, [1, 2, 3]),
    ];
    for (sort, expected) in cases {
        let (flows, _, _) = look(&selection(sort), Earlier::default(), 1, &rows);
        assert_eq!(numbers(&flows), expected, "{sort:?}");
        let reversed = Selection {
            reversed: true,
            ..selection(sort)
        };
        let (flows, _, _) = look(&reversed, Earlier::default(), 1, &rows);
        let first = numbers(&flows)[0];
        // Where two are equal the larger one comes first either way.
        let last = if matches!(sort, SortBy::Tunnel) {
            1
        } else {
            expected[2]
        };
        assert_eq!(first, last, "{sort:?}");
    }
}

#[test]
fn the_first_of_many_are_kept_whatever_their_order() {
    let mut first_ten = selection(SortBy::Packets);
    first_ten.limit = 10;
    let rows: Vec<FlowRow> = (0..20_000)
        .map(|number| row(number, u64::from(number) * 7 % 20_011))
        .collect();
    let (flows, matching, earlier) = look(&first_ten, Earlier::default(), 1, &rows);
    let mut packets: Vec<u64> = rows.iter().map(|row| row.packets).collect();
    packets.sort_unstable_by_key(|it| std::cmp::Reverse(*it));
    let kept: Vec<u64> = flows.iter().map(|flow| flow.row.packets).collect();
    assert_eq!(kept, packets[..10]);
    assert_eq!((matching, earlier.counts.len()), (20_000, 20_000));
}

#[test]
fn of_a_large_table_the_active_flows_are_remembered() {
    let mut collector = Collector::new(selection(SortBy::Rate), Earlier::default(), SECOND);
    let all = 5 * REMEMBERED as u32;
    for number in 0..all {
        let active = number % 10 == 3;
        collector.take(alone(FlowRow {
            source: Ipv4Addr::from(number).into(),
            idle_s: if active { 0.01 } else { 20.0 },
            ..row(1, 9)
        }));
    }
    let (flows, matching, earlier) = collector.finish();
    assert_eq!((flows.len(), matching), (100, u64::from(all)));
    assert_eq!(earlier.counts.len(), REMEMBERED);
    let remembers = |number: u32| {
        let row = FlowRow {
            source: Ipv4Addr::from(number).into(),
            ..row(1, 9)
        };
        earlier.counts.contains_key(&Key::of(&row))
    };
    assert!((0..all).filter(|number| number % 10 == 3).all(remembers));
}

#[test]
fn filters_want_all_of_their_words() {
    let (short, long) = (row(1, 5), row(2, 90));
    let passes = |text: &str| {
        (
            Filter::new(text).passes(&short),
            Filter::new(text).passes(&long),
        )
    };
    assert_eq!(passes(""), (true, true));
    assert_eq!(passes("  "), (true, true));
    assert_eq!(passes("10.0.0.2:1002"), (false, true));
    assert_eq!(passes("CLASS=Short"), (true, false));
    assert_eq!(passes("tunnel=long :443"), (false, true));
    assert_eq!(passes("class=short class=long"), (false, false));
}

#[test]
fn steps_go_round_through_all_columns() {
    let mut seen = SortBy::Rate;
    for _ in 0..SortBy::ALL.len() {
        seen = seen.step(1);
    }
    assert_eq!(seen, SortBy::Rate);
    assert_eq!(SortBy::Rate.step(-1), SortBy::Flow);
}
