//! Other traffic beside a recording, links of hosts, and observers.

use super::super::super::{CrossPacket, Observer, Passage, run_twin_beside};
use super::*;

/// Writes down all that it sees.
#[derive(Debug, Default)]
struct Seen {
    passages: Vec<Passage>,
    completed: Vec<(u64, u64)>,
}

impl Observer for Seen {
    fn arrived(&mut self, passage: Passage) {
        self.passages.push(passage);
    }

    fn completed(&mut self, flow: u64, at_ns: u64) {
        self.completed.push((flow, at_ns));
    }
}

fn beside(
    flows: &[FlowRecord],
    settings: &TwinSettings,
    scheme: &str,
    cross: Vec<CrossPacket>,
) -> (TwinOutcome, Seen) {
    let bytes = recording(flows, 1);
    let reader = Reader::new(bytes.as_slice()).expect("a recording");
    let scheme = scheme.parse().expect("a scheme");
    let mut seen = Seen::default();
    let cross = &mut cross.into_iter();
    let outcome = run_twin_beside(reader, settings, &scheme, cross, &mut seen);
    (outcome.expect("it is whole"), seen)
}

fn datagram(at_ns: u64, uplink: usize) -> CrossPacket {
    CrossPacket {
        at_ns,
        to_site: false,
        uplink,
        bytes: 1_250,
    }
}

#[test]
fn flow_waits_for_datagrams_of_other_traffic_in_its_direction_alone() {
    let (flows, uplinks) = ([flow(0, 1_000, 0)], settings(&["10mbit/20ms"]));
    let mean_ms = |cross| beside(&flows, &uplinks, "ecmp", cross).0.short.mean_ms;
    assert_eq!(mean_ms(Vec::new()), Some(31.024));
    // It waits for the SYN, and has left when the flow's next packet comes after a round trip.
    assert_eq!(mean_ms(vec![datagram(0, 0)]), Some(31.024));
    // The answer to the SYN has come after 20.1184 ms, and finds a datagram of a millisecond that came a little before.
    assert_eq!(mean_ms(vec![datagram(20_100_000, 0)]), Some(32.005_6));
    let other_way = CrossPacket {
        to_site: true,
        ..datagram(20_100_000, 0)
    };
    assert_eq!(mean_ms(vec![other_way]), Some(31.024));
}

#[test]
fn datagrams_are_dropped_where_a_queue_is_full_and_count_as_carried_else() {
    let uplinks = settings(&["10mbit/20ms"]);
    let burst = (0..100).map(|_| datagram(0, 0)).collect();
    let (outcome, seen) = beside(&[flow(500, 1_000, 0)], &uplinks, "ecmp", burst);
    // 62,500 bytes wait, and one is under way.
    assert_eq!(outcome.dropped_packets, 49);
    let own = 74 + 66 + 1_066;
    let carried = (51.0 * 1_250.0 + f64::from(own)) * 8.0 / 10e6;
    assert!((outcome.utilisation[0][0] - carried).abs() < 1e-9);
    // An observer sees the flow alone.
    assert!(seen.passages.iter().all(|it| it.flow == 0));
    assert_eq!(seen.passages.len(), 5);
}

#[test]
fn other_traffic_rides_with_long_flows() {
    let flows = [flow(100, 1_000, 1_000)];
    let uplinks = settings(&["10mbit/20ms", "10mbit/20ms"]);
    // More than both carry, in both queues all the time.
    let flood = || {
        let each = (0..400_u64).map(|it| [0, 1].map(|uplink| datagram(it * 500_000, uplink)));
        each.flatten().collect()
    };
    let mean_ms = |scheme| {
        let (outcome, _) = beside(&flows, &uplinks, scheme, flood());
        outcome.short.mean_ms.expect("a flow")
    };
    // A packet waits for one that is under way at the most.
    assert!(mean_ms("share") < 45.0, "{}", mean_ms("share"));
    assert!(mean_ms("ecmp") > 100.0, "{}", mean_ms("ecmp"));
}

#[test]
fn observer_sees_flows_from_border_to_border_and_their_end() {
    let flows = [flow(0, 1_000, 0), flow(500, 1_000, 1_000)];
    let (_, seen) = beside(&flows, &settings(&["10mbit/20ms"]), "ecmp", Vec::new());
    let [first, .., last] = [0, 1].map(|it| seen.passages[it]);
    assert_eq!((first.flow, first.to_site, first.left_ns), (0, false, 0));
    assert_eq!(first.arrived_ns, 10_059_200);
    assert_eq!((last.to_site, last.left_ns), (true, 10_059_200));
    let ends: Vec<u64> = seen.completed.iter().map(|it| it.0).collect();
    assert_eq!(ends, [0, 1]);
    assert_eq!(seen.completed[0].1, 31_024_000);
}

#[test]
fn link_of_hosts_takes_its_time_and_loses_nothing() {
    let alone = settings(&["10mbit/20ms"]);
    let bound = TwinSettings {
        access_bits_per_second: Some(10_000_000),
        ..alone.clone()
    };
    let run = |settings| beside(&[flow(0, 1_000, 0)], settings, "ecmp", Vec::new());
    // SYN and answer are serialised twice, and the segment of 1,066 bytes as well.
    assert_eq!(
        run(&bound).0.short.mean_ms,
        Some(31.024 + 0.118_4 + 0.852_8)
    );
    // The tap is behind it.
    assert_eq!(run(&bound).1.passages[0].left_ns, 59_200);
    let large = [flow(0, 400_000, 0)];
    let (outcome, _) = beside(&large, &bound, "ecmp", Vec::new());
    assert_eq!(outcome.dropped_packets + outcome.retransmitted, 0);
    let (outcome, _) = beside(&large, &alone, "ecmp", Vec::new());
    assert!(
        outcome.dropped_packets > 0,
        "the uplink's own queue is full"
    );
}

#[test]
fn spraying_takes_uplinks_in_turn() {
    let uplinks = settings(&["10mbit/20ms", "10mbit/20ms"]);
    let (outcome, seen) = beside(&[flow(0, 100_000, 0)], &uplinks, "spray", Vec::new());
    let [one, other] = [0, 1].map(|it| outcome.utilisation[it][0]);
    assert!((one / other - 1.0).abs() < 0.05, "{one} {other}");
    assert_eq!(seen.completed.len(), 1);
    let (outcome, _) = beside(&[flow(0, 100_000, 0)], &uplinks, "ecmp", Vec::new());
    let carried = outcome.utilisation.iter().filter(|it| it[0] > 0.0);
    assert_eq!(carried.count(), 1);
}
