use super::*;
use crate::ServiceTime;
use crate::{PathView, Snapshot};
use proptest::prelude::*;
use std::vec::Vec;

const RTT_NS: u64 = 200_000;
const NOW_NS: u64 = 1_000_000;

/// One flow or more behind one switch.
struct Leaf {
    tr: Tr,
    short_flows: ShortFlows,
    paths: Snapshot,
}

impl Leaf {
    fn new(tr: Tr, propagation_ns: &[u64]) -> Self {
        let paths: Vec<_> = propagation_ns
            .iter()
            .map(|&propagation_ns| PathView {
                propagation_ns,
                ..PathView::default()
            })
            .collect();
        Self {
            tr,
            short_flows: ShortFlows::new(RTT_NS),
            paths: Snapshot::new(&paths),
        }
    }

    fn send(&mut self, flow: &mut TrFlow, flow_hash: u64, bytes: u32, now_ns: u64) -> usize {
        let packet = Packet {
            now_ns,
            bytes,
            flow_hash,
        };
        self.tr
            .choose(&mut self.short_flows, flow, &self.paths, &packet)
            .index()
    }

    fn wait_on(&mut self, index: usize, backlog_ns: u64) {
        self.paths.view_mut(path(index)).local_backlog_ns = backlog_ns;
    }
}

fn path(index: usize) -> PathId {
    PathId::new(index).expect("below 16")
}

/// A flow that has sent its 100 KB, all of it long ago.
fn long_flow() -> TrFlow {
    TrFlow {
        bytes: Tr::DEFAULT_THRESHOLD_BYTES,
        ..TrFlow::default()
    }
}

#[test]
fn a_flow_takes_48_bytes() {
    assert_eq!(size_of::<TrFlow>(), 48);
    const { assert!(size_of::<TrFlow>() <= 128) };
    assert_eq!(size_of::<ShortFlows>(), 1_176);
}

#[test]
fn tnl_is_the_sum_of_equation_1() {
    let mut leaf = Leaf::new(Tr::paper(), &[50_000]);
    *leaf.paths.view_mut(path(0)) = PathView {
        propagation_ns: 50_000,
        local_backlog_ns: 700,
        remote_backlog_ns: 30,
        service: ServiceTime::from_bits_per_second(1_000_000_000),
        weight: 1,
        ..PathView::default()
    };
    let mut flow = TrFlow::default();
    leaf.send(&mut flow, 1, 1_500, NOW_NS);
    assert_eq!(flow.tnl_ns(), NOW_NS + 50_730);
    leaf.tr.counts_serialisation = true;
    leaf.send(&mut flow, 1, 1_500, NOW_NS);
    assert_eq!(flow.tnl_ns(), NOW_NS + 62_730);
}

#[test]
fn a_short_flow_takes_the_fastest_path() {
    let mut leaf = Leaf::new(Tr::paper(), &[50_000, 40_000, 60_000]);
    leaf.wait_on(1, 15_000);
    let mut flow = TrFlow::default();
    assert_eq!(leaf.send(&mut flow, 1, 1_500, NOW_NS), 0);
}

#[test]
fn a_path_that_is_too_fast_waits_until_the_last_packet_has_arrived() {
    let mut leaf = Leaf::new(Tr::paper(), &[50_000, 40_000]);
    leaf.wait_on(1, 100_000);
    let mut flow = TrFlow::default();
    assert_eq!(leaf.send(&mut flow, 1, 1_500, NOW_NS), 0);
    leaf.wait_on(1, 0);
    assert_eq!(leaf.send(&mut flow, 1, 1_500, NOW_NS + 9_999), 0);
    // Predicted to arrive as the last packet does, which is in order (line 11).
    let mut earlier = TrFlow { ..flow };
    earlier.tnl_ns -= 9_999;
    assert_eq!(leaf.send(&mut earlier, 1, 1_500, NOW_NS + 10_000), 1);
}

#[test]
fn a_guard_keeps_a_flow_longer_where_it_is() {
    let guarded = Tr {
        guard_ns: 5_000,
        ..Tr::paper()
    };
    let mut leaf = Leaf::new(guarded, &[50_000, 40_000]);
    leaf.wait_on(1, 100_000);
    let mut flow = TrFlow::default();
    leaf.send(&mut flow, 1, 1_500, NOW_NS);
    leaf.wait_on(1, 0);
    let before = flow;
    assert_eq!(leaf.send(&mut flow, 1, 1_500, NOW_NS + 14_999), 0);
    flow = before;
    assert_eq!(leaf.send(&mut flow, 1, 1_500, NOW_NS + 15_000), 1);
}

#[test]
fn a_new_flow_is_free_even_at_time_zero() {
    let mut leaf = Leaf::new(Tr::guarded(), &[9_000, 4_000]);
    assert_eq!(leaf.send(&mut TrFlow::default(), 1, 1_500, 0), 1);
}

#[test]
fn a_flow_is_long_above_100_kb_and_not_at_it() {
    let mut leaf = Leaf::new(Tr::paper(), &[50_000, 60_000]);
    let mut flow = long_flow();
    flow.bytes -= 1_500;
    leaf.send(&mut flow, 1, 1_500, NOW_NS);
    assert_eq!(leaf.short_flows.on(path(0)), 1);
    // It counts no more, itself included: path 0 has as few as path 1.
    assert_eq!(leaf.send(&mut flow, 1, 1, NOW_NS), 0);
    assert_eq!(leaf.short_flows.on(path(0)), 0);
}

#[test]
fn a_long_flow_takes_the_path_with_the_fewest_short_flows() {
    let mut leaf = Leaf::new(Tr::paper(), &[50_000, 50_000, 90_000]);
    for (flow, busy) in [(1, 1), (2, 1), (3, 0)] {
        leaf.wait_on(1 - busy, 1_000);
        leaf.wait_on(busy, 0);
        assert_eq!(leaf.send(&mut TrFlow::default(), flow, 1_500, NOW_NS), busy);
    }
    leaf.wait_on(1, 0);
    // However slow it is: what a bound on slack is for.
    assert_eq!(leaf.send(&mut long_flow(), 9, 1_500, NOW_NS), 2);
    leaf.tr.slack_ns = 39_999;
    assert_eq!(leaf.send(&mut long_flow(), 9, 1_500, NOW_NS), 0);
    // After a round-trip time without packets all are as good; the fastest wins.
    leaf.wait_on(0, 10);
    assert_eq!(leaf.send(&mut long_flow(), 9, 1_500, NOW_NS + RTT_NS), 1);
}

#[test]
fn of_equal_paths_flows_take_each_alike() {
    let mut leaf = Leaf::new(Tr::paper(), &[50_000; 10]);
    leaf.paths.usable.remove(path(4));
    let mut flows = [0; 10];
    for flow_hash in 0..9_000 {
        flows[leaf.send(&mut TrFlow::default(), flow_hash, 1_500, NOW_NS)] += 1;
    }
    assert_eq!(flows[4], 0);
    for (path, count) in flows.iter().enumerate() {
        assert!(
            path == 4 || (850..1_150).contains(count),
            "{path}: {flows:?}"
        );
    }
    let choices = |seed| {
        let mut leaf = Leaf::new(
            Tr {
                seed,
                ..Tr::paper()
            },
            &[50_000; 10],
        );
        (0..64)
            .map(|flow| leaf.send(&mut TrFlow::default(), flow, 1_500, NOW_NS))
            .collect::<Vec<_>>()
    };
    assert_eq!(choices(1), choices(1));
    assert_ne!(choices(1), choices(2));
}

#[test]
fn a_failed_path_is_left_even_out_of_order() {
    let mut leaf = Leaf::new(Tr::paper(), &[90_000, 50_000]);
    leaf.paths.usable.remove(path(1));
    let mut flow = TrFlow::default();
    assert_eq!(leaf.send(&mut flow, 1, 1_500, NOW_NS), 0);
    leaf.paths.usable = PathSet::from_bits(0b10);
    assert_eq!(leaf.send(&mut flow, 1, 1_500, NOW_NS + 1), 1);
}

proptest! {
    /// Whatever the views say: a usable path, and never an earlier prediction
    /// than the last one on another path.
    #[test]
    fn choices_are_usable_and_in_order_as_predicted(
        tr in prop_oneof![Just(Tr::paper()), Just(Tr::guarded())],
        packets in proptest::collection::vec(
            (0u64..50_000, 40u32..9_000, 0u16..1 << 10, any::<[u16; 10]>(), any::<[u16; 10]>()),
            1..100,
        ),
    ) {
        let mut leaf = Leaf::new(tr, &[50_000, 50_000, 50_000, 50_000, 50_000, 75_000, 75_000, 75_000, 75_000, 75_000]);
        let (mut flow, mut now_ns) = (TrFlow::default(), NOW_NS);
        for (gap_ns, bytes, usable, local, far) in packets {
            now_ns += gap_ns;
            leaf.paths.usable = PathSet::from_bits(usable);
            for (index, (local, far)) in local.into_iter().zip(far).enumerate() {
                let view = leaf.paths.view_mut(path(index));
                (view.local_backlog_ns, view.remote_backlog_ns) = (local as u64, far as u64);
            }
            let before = flow;
            let chosen = path(leaf.send(&mut flow, 7, bytes, now_ns));
            let candidates = leaf.paths.candidates();
            prop_assert!(candidates.contains(chosen));
            if let Some(last) = before.last.within(candidates) {
                prop_assert!(chosen == last || flow.tnl_ns >= before.tnl_ns + tr.guard_ns);
            }
        }
    }

    /// The choice among all paths at once is the one that is made step by step, with equals in
    /// abundance, paths that fail and flows that turn long.
    #[test]
    fn it_is_algorithm_1(
        slack_ns in prop_oneof![Just(u64::MAX), 0u64..500],
        guard_ns in 0u64..500,
        counts_serialisation: bool,
        packets in proptest::collection::vec(
            (0usize..6, 0u64..300, 40u32..9_000, prop_oneof![Just(u16::MAX), any::<u16>()], any::<[u8; 10]>()),
            1..200,
        ),
    ) {
        let tr = Tr { threshold_bytes: 40_000, guard_ns, slack_ns, counts_serialisation, seed: 5 };
        let mut leaf = Leaf::new(tr, &[100; 10]);
        leaf.short_flows = ShortFlows::new(3_000);
        let (mut flows, mut now_ns) = ([TrFlow::default(); 6], NOW_NS);
        for (number, gap_ns, bytes, usable, delays) in packets {
            now_ns += gap_ns;
            leaf.paths.usable = PathSet::from_bits(usable);
            for (index, delay) in delays.into_iter().enumerate() {
                let view = leaf.paths.view_mut(path(index));
                view.local_backlog_ns = u64::from(delay & 3) * 100;
                view.remote_backlog_ns = u64::from(delay >> 2 & 3) * 100;
                view.service = ServiceTime::from_bits_per_second(40_000_000_000);
            }
            let packet = Packet { now_ns, bytes, flow_hash: number as u64 };
            let (best, tnl_ns) = step_by_step(&leaf, flows[number], &packet);
            let chosen = path(leaf.send(&mut flows[number], packet.flow_hash, bytes, now_ns));
            prop_assert_eq!(chosen, best.pick(draw(tr.seed, packet.flow_hash, 0)));
            prop_assert_eq!(flows[number].tnl_ns, tnl_ns[chosen.index()]);
        }
    }
}

/// Lines 6 to 21 of Algorithm 1, one after the other: the paths that are as good, and all TNL.
fn step_by_step(leaf: &Leaf, flow: TrFlow, packet: &Packet) -> (PathSet, [u64; MAX_PATHS]) {
    let Leaf { tr, paths, .. } = leaf;
    let candidates = paths.candidates();
    let tnl_ns = candidates.map(u64::MAX, |path| {
        let it = paths.view(path);
        let delay_ns = it.propagation_ns + it.local_backlog_ns + it.remote_backlog_ns;
        let service_ns = if tr.counts_serialisation {
            it.service.of(packet.bytes.into())
        } else {
            0
        };
        packet.now_ns + delay_ns + service_ns
    });
    let last = flow.last.get();
    let mut in_order = candidates.those(|path| {
        last.is_none_or(|last| path == last || tnl_ns[path.index()] >= flow.tnl_ns + tr.guard_ns)
    });
    if in_order.is_empty() {
        in_order = candidates;
    }
    let mut best = in_order;
    if flow.bytes + u64::from(packet.bytes) > tr.threshold_bytes {
        let (mut short_flows, mut presence) = (leaf.short_flows, flow.presence);
        short_flows.advance(packet.now_ns);
        short_flows.leave(&mut presence);
        best = in_order.at_most(in_order.least(&tnl_ns).saturating_add(tr.slack_ns), &tnl_ns);
        best = best.smallest(short_flows.counts());
    }
    (best.smallest(&tnl_ns), tnl_ns)
}
