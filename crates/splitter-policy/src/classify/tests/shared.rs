//! Laws of two tunnels that carry both classes.

mod crowd;

use crate::classify::{Verdict, classify};
use crate::config::{PolicyConfig, TunnelUse};
use crate::counters::FlowEvent;
use crate::flow::{Class, FlowEntry, TunnelRole};
use crate::flow_packet::FlowPacket;
use crate::models::{HostQueues, SharedEgress};
use crate::packet::TcpFlags;
use crate::share::*;
use crate::thresholds::Thresholds;
use flow_balance::ServiceTime;
use proptest::prelude::*;
use std::vec::Vec;

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const ACK: TcpFlags = TcpFlags(0x10);

/// Flows in front of one border.
struct Bench {
    config: PolicyConfig,
    models: HostQueues,
}

impl Bench {
    fn new(rates_mbit: [u64; 2]) -> Self {
        let [first, second] =
            rates_mbit.map(|rate| ServiceTime::from_bits_per_second(rate * 1_000_000));
        Self {
            config: PolicyConfig {
                tunnel_use: TunnelUse::SHARED,
                thresholds: Thresholds::uniform(10),
                drain_margin_ns: 500 * MICROSECOND,
                max_wait_ns: 10 * MILLISECOND,
                short_service: first,
                long_service: second,
                long_queue_ns: 18 * MILLISECOND,
                ..PolicyConfig::default()
            },
            models: HostQueues::default(),
        }
    }

    fn send(&mut self, entry: &mut FlowEntry, payload: u64, now_ns: u64) -> Verdict {
        let packet = FlowPacket::new(payload + 66, payload, ACK, &self.config);
        classify(entry, packet, &self.config, &mut self.models, now_ns)
    }

    /// Sends full packets, `gap_ns` apart, until the flow is placed; how and where.
    fn until_placed(&mut self, start_ns: u64, gap_ns: u64) -> (FlowEvent, TunnelRole) {
        self.until_this_is_placed(&mut FlowEntry::default(), start_ns, gap_ns)
    }

    /// A flow that has sent its first packet into the short tunnel, where a long one is already.
    fn crowded(&mut self, now_ns: u64) -> FlowEntry {
        let (mut long, mut entry) = (FlowEntry::default(), FlowEntry::default());
        self.config.usable = 0b01;
        for _ in 0..20 {
            self.send(&mut long, 1_448, now_ns - 50 * MILLISECOND);
        }
        self.send(&mut entry, 1_448, now_ns);
        self.config.usable = 0b11;
        entry
    }

    fn until_this_is_placed(
        &mut self,
        entry: &mut FlowEntry,
        start_ns: u64,
        gap_ns: u64,
    ) -> (FlowEvent, TunnelRole) {
        for number in 0..10_000 {
            let verdict = self.send(entry, 1_448, start_ns + number * gap_ns);
            if let Some(hand_over) = verdict.hand_over {
                assert_eq!(
                    (verdict.class, verdict.queue_class),
                    (Class::Long, Class::Long)
                );
                return (hand_over, verdict.tunnel);
            }
            assert_eq!(verdict.queue_class, Class::Short);
        }
        panic!("never placed");
    }
}

#[test]
fn short_flows_are_spread_and_ride_in_the_short_class() {
    let mut bench = Bench::new([100, 100]);
    let firsts: Vec<_> = (0..4)
        .map(|_| bench.send(&mut FlowEntry::default(), 100, SECOND))
        .collect();
    assert!(firsts.iter().all(|it| it.queue_class == Class::Short));
    let tunnels: Vec<_> = firsts.iter().map(|it| it.tunnel).collect();
    use TunnelRole::{Long, Short};
    assert_eq!(tunnels, [Short, Long, Short, Long]);
}

#[test]
fn short_flows_prefer_the_faster_tunnel() {
    let mut bench = Bench::new([40, 100]);
    let of_long = (0..70)
        .filter(|_| bench.send(&mut FlowEntry::default(), 100, SECOND).tunnel == TunnelRole::Long)
        .count();
    assert!(
        (48..=52).contains(&of_long),
        "{of_long}, five sevenths are 50"
    );
}

/// The model of a queue that stands still runs empty, and takes the next packet of another flow
/// for the only one.
#[test]
fn flow_waits_for_a_queue_that_stood_still_whatever_came_behind_it() {
    let mut bench = Bench::new([100, 100]);
    let mut flows = [FlowEntry::default(); 4];
    let firsts = flows
        .each_mut()
        .map(|it| bench.send(it, 1_448, SECOND).tunnel);
    assert_eq!(
        (firsts[0], firsts[2]),
        (TunnelRole::Short, TunnelRole::Short)
    );
    // The first one to turn long stays, and the other one has to change.
    for flow in [0, 2] {
        for _ in 0..11 {
            bench.send(&mut flows[flow], 1_448, SECOND);
        }
    }
    let resumed = |short_bytes: u64, behind: bool| {
        let (mut models, mut flow) = (bench.models.clone(), flows[2]);
        models.short_backlog = [short_bytes, 0];
        let [other, now] = [6_000, 6_050].map(|it| SECOND + it * MICROSECOND);
        let packet = FlowPacket::new(1_514, 1_448, ACK, &bench.config);
        if behind {
            let mut short = FlowEntry::default();
            let verdict = classify(&mut short, packet, &bench.config, &mut models, other);
            assert_eq!(verdict.tunnel, TunnelRole::Short);
        }
        classify(&mut flow, packet, &bench.config, &mut models, now).hand_over
    };
    const WAITING: u64 = 14 * 1_514;
    for behind in [false, true] {
        assert_eq!(resumed(0, behind), Some(FlowEvent::HandedOverDrained));
        assert_eq!(resumed(WAITING, behind), None, "{behind}");
    }
}

#[test]
fn flow_that_is_placed_where_it_is_changes_class_at_once() {
    let mut bench = Bench::new([100, 100]);
    let mut entry = FlowEntry::default();
    let verdicts: Vec<_> = (0..12)
        .map(|_| bench.send(&mut entry, 1_448, SECOND))
        .collect();
    assert_eq!(verdicts[10].hand_over, Some(FlowEvent::KeptTunnel));
    assert!(
        verdicts[..10]
            .iter()
            .all(|it| it.queue_class == Class::Short)
    );
    assert!(
        verdicts[10..]
            .iter()
            .all(|it| it.queue_class == Class::Long)
    );
    assert!(verdicts.iter().all(|it| it.tunnel == verdicts[0].tunnel));
}

#[test]
fn flow_starts_where_the_next_long_one_is_to_go_and_stays_there() {
    let mut bench = Bench::new([100, 100]);
    let placed: Vec<_> = (1..=4)
        .map(|round| bench.until_placed(SECOND * round, 5 * MILLISECOND))
        .collect();
    use FlowEvent::KeptTunnel;
    let [here, there] = [
        (KeptTunnel, TunnelRole::Short),
        (KeptTunnel, TunnelRole::Long),
    ];
    assert_eq!(placed, [here, there, here, there]);
}

#[test]
fn flow_that_pauses_before_it_is_long_changes_to_the_tunnel_with_fewer_flows() {
    let mut bench = Bench::new([100, 100]);
    let mut entry = bench.crowded(SECOND);
    let later_ns = SECOND + 5 * MILLISECOND;
    let placed = bench.until_this_is_placed(&mut entry, later_ns, 5 * MILLISECOND);
    assert_eq!(placed, (FlowEvent::KeptTunnel, TunnelRole::Long));
}

#[test]
fn flow_that_pauses_when_it_is_long_is_handed_over() {
    let mut bench = Bench::new([100, 100]);
    let mut entry = bench.crowded(SECOND);
    for _ in 0..10 {
        let verdict = bench.send(&mut entry, 1_448, SECOND);
        assert_eq!(
            (verdict.tunnel, verdict.hand_over),
            (TunnelRole::Short, None)
        );
    }
    let later_ns = SECOND + 5 * MILLISECOND;
    let verdict = bench.send(&mut entry, 1_448, later_ns);
    assert_eq!(
        (verdict.tunnel, verdict.hand_over),
        (TunnelRole::Long, Some(FlowEvent::HandedOverDrained))
    );
}

#[test]
fn flow_that_never_pauses_stays_at_the_cap_and_counts_where_it_is() {
    let mut bench = Bench::new([100, 100]);
    let mut entry = bench.crowded(SECOND);
    let placed = bench.until_this_is_placed(&mut entry, SECOND, 120 * MICROSECOND);
    assert_eq!(placed, (FlowEvent::KeptTunnelAtMaxWait, TunnelRole::Short));
    assert_eq!(bench.models.shared.lasting(SECOND), [2, 0]);
}

/// What it sent before has left long ago, so that nothing can overtake anything.
#[test]
fn flow_that_is_silent_after_it_was_placed_goes_where_it_has_more_and_not_for_ever() {
    let mut bench = Bench::new([100, 100]);
    let mut entry = bench.crowded(SECOND);
    bench.until_this_is_placed(&mut entry, SECOND, 120 * MICROSECOND);
    let mut now_ns = SECOND + 20 * MILLISECOND;
    let mut changes = 0;
    for round in 0..20 {
        now_ns += 300 * MILLISECOND;
        // Another one goes on where it is.
        bench.models.choose(
            &bench.config,
            entry.tunnel(),
            Stage::Growing,
            now_ns,
            now_ns,
        );
        let before = entry.tunnel();
        let first = bench.send(&mut entry, 1_448, now_ns);
        let has_changed = first.hand_over == Some(FlowEvent::ChangedTunnelLater);
        assert_eq!(has_changed, first.tunnel != before);
        assert_eq!(has_changed, round < FlowEntry::MOST_CHANGES, "{round}");
        changes += u64::from(has_changed);
        let next = bench.send(&mut entry, 1_448, now_ns + 100 * MILLISECOND);
        assert_eq!((next.tunnel, next.hand_over), (first.tunnel, None));
        now_ns += 100 * MILLISECOND;
    }
    assert_eq!((changes, entry.changes), (7, 7));
}

#[test]
fn silent_flow_stays_where_it_is_if_it_has_no_more_in_the_other_tunnel() {
    let mut bench = Bench::new([100, 100]);
    let mut entry = FlowEntry::default();
    bench.until_this_is_placed(&mut entry, SECOND, 120 * MICROSECOND);
    for round in 1..20 {
        let verdict = bench.send(&mut entry, 1_448, SECOND * (1 + round));
        assert_eq!(
            (verdict.tunnel, verdict.hand_over),
            (TunnelRole::Short, None)
        );
    }
}

#[test]
fn flow_that_has_only_shaken_hands_starts_again_where_it_has_more() {
    let mut bench = Bench::new([100, 100]);
    bench.crowded(SECOND);
    let mut entry = FlowEntry::default();
    bench.config.usable = 0b01;
    let shaken = [0; 2].map(|_| bench.send(&mut entry, 0, SECOND).tunnel);
    bench.config.usable = 0b11;
    let burst = [0; 10].map(|_| bench.send(&mut entry, 1_448, SECOND).tunnel);
    assert_eq!(shaken, [TunnelRole::Short; 2]);
    assert_eq!(burst, [TunnelRole::Long; 10]);
}

#[test]
fn pure_acknowledgements_are_short_whatever_their_flow_is() {
    let mut bench = Bench::new([100, 100]);
    let mut receiver = FlowEntry::default();
    for _ in 0..100 {
        let verdict = bench.send(&mut receiver, 0, SECOND);
        assert_eq!(
            (verdict.class, verdict.queue_class),
            (Class::Short, Class::Short)
        );
    }
    let end = FlowPacket::new(66, 0, TcpFlags(0x11), &bench.config);
    let models = &mut bench.models;
    let verdict = classify(&mut receiver, end, &bench.config, models, SECOND);
    assert_eq!(verdict.class, Class::Short, "its end carries no data");
    let mut sender = FlowEntry::default();
    for _ in 0..20 {
        bench.send(&mut sender, 1_448, 2 * SECOND);
    }
    assert_eq!(
        bench.send(&mut sender, 1_448, 2 * SECOND).queue_class,
        Class::Long
    );
    let ack = bench.send(&mut sender, 0, 2 * SECOND);
    assert_eq!((ack.class, ack.queue_class), (Class::Long, Class::Short));
}

#[test]
fn tunnel_that_is_down_is_left_out() {
    let mut bench = Bench::new([100, 100]);
    let mut entry = FlowEntry::default();
    assert_eq!(
        bench.send(&mut entry, 100, SECOND).tunnel,
        TunnelRole::Short
    );
    bench.config.usable = 0b10;
    assert_eq!(bench.send(&mut entry, 100, SECOND).tunnel, TunnelRole::Long);
    for round in 2..6 {
        assert_eq!(
            bench.until_placed(SECOND * round, MILLISECOND).1,
            TunnelRole::Long
        );
    }
    bench.config.usable = 0b11;
    assert_eq!(
        bench.send(&mut entry, 100, SECOND).tunnel,
        TunnelRole::Short
    );
    // Without any it is as if all were usable.
    bench.config.usable = 0;
    assert_eq!(
        bench.send(&mut entry, 100, SECOND).tunnel,
        TunnelRole::Short
    );
}

#[test]
fn lone_long_flow_goes_to_the_faster_tunnel() {
    for (rates, faster) in [
        ([100, 40], TunnelRole::Short),
        ([40, 100], TunnelRole::Long),
    ] {
        let mut bench = Bench::new(rates);
        for round in 1..6 {
            let placed = bench.until_placed(SECOND * round, 5 * MILLISECOND);
            assert_eq!(placed.1, faster);
        }
    }
}

#[test]
fn long_flows_at_once_are_placed_in_proportion_to_rates() {
    let mut bench = Bench::new([100, 40]);
    let mut flows = [FlowEntry::default(); 35];
    for round in 0..200 {
        for (number, flow) in (0..).zip(&mut flows) {
            let now_ns = SECOND + (round * 5 + number / 10) * MILLISECOND;
            bench.send(flow, 1_448, now_ns);
        }
    }
    let first = flows.iter().filter(|it| it.tunnel() == TunnelRole::Short);
    assert_eq!(first.count(), 25);
}

/// Two tunnels with strict priority, simulated packet by packet.
#[derive(Default)]
struct Simulated {
    /// Per tunnel: what waits in the short and in the long class.
    waiting: [[Vec<(usize, u64)>; 2]; 2],
    free_at_ns: [u64; 2],
    /// Flow and number of packets, with when each has left.
    left: Vec<(u64, usize, u64)>,
}

impl Simulated {
    /// Sends what can leave before `now_ns`.
    fn run(&mut self, now_ns: u64, service: [ServiceTime; 2]) {
        for (tunnel, service) in service.into_iter().enumerate() {
            while self.free_at_ns[tunnel] <= now_ns {
                let [short, long] = &mut self.waiting[tunnel];
                let queue = if short.is_empty() { long } else { short };
                if queue.is_empty() {
                    self.free_at_ns[tunnel] = self.free_at_ns[tunnel].max(now_ns);
                    break;
                }
                let (flow, number) = queue.remove(0);
                self.free_at_ns[tunnel] += service.of(1_514);
                self.left.push((self.free_at_ns[tunnel], flow, number));
            }
        }
    }
}

proptest! {
    /// Whatever flows send and whenever they pause, no packet leaves before an
    /// earlier one of its flow.
    #[test]
    fn no_flow_overtakes_itself(
        steps in proptest::collection::vec((0usize..5, 1u64..20, 0u64..3_000), 1..200),
        rates in prop_oneof![Just([100, 100]), Just([100, 40]), Just([40, 100])],
    ) {
        let mut bench = Bench::new(rates);
        // What a full packet in front of it may cost at 40 Mbit/s comes on top.
        bench.config.drain_margin_ns = 1_000 * MICROSECOND;
        let service = [bench.config.short_service, bench.config.long_service];
        let mut entries = [FlowEntry::default(); 5];
        let mut numbers = [0; 5];
        let mut simulated = Simulated::default();
        let mut now_ns = SECOND;
        simulated.free_at_ns = [now_ns; 2];
        for (flow, burst, pause_us) in steps {
            now_ns += pause_us * MICROSECOND;
            simulated.run(now_ns, service);
            for _ in 0..burst {
                let verdict = bench.send(&mut entries[flow], 1_448, now_ns);
                let queue = &mut simulated.waiting[verdict.tunnel as usize][verdict.queue_class as usize];
                queue.push((flow, numbers[flow]));
                numbers[flow] += 1;
            }
        }
        simulated.run(now_ns + 100 * SECOND, service);
        simulated.left.sort_unstable();
        let mut next = [0; 5];
        for (_, flow, number) in simulated.left {
            prop_assert_eq!(number, next[flow]);
            next[flow] += 1;
        }
    }
}

#[test]
fn flow_that_waits_is_in_the_short_class_for_no_more_than_made_it_long() {
    let mut bench = Bench::new([100, 100]);
    bench.config.max_wait_ns = SECOND;
    let mut entry = bench.crowded(SECOND);
    let queue_class: Vec<_> = (0..29)
        .map(|number| bench.send(&mut entry, 1_448, SECOND + number * 120 * MICROSECOND))
        .map(|verdict| verdict.queue_class)
        .collect();
    let in_short = queue_class.iter().filter(|it| **it == Class::Short).count();
    assert_eq!(
        in_short as u64,
        2 * bench.config.thresholds.common(),
        "{queue_class:?}"
    );
}
