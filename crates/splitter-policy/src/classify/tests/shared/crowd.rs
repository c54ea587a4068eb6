//! Laws of how flows on shared tunnels are counted.

use super::*;

#[test]
fn flows_that_have_ended_are_not_in_the_way() {
    let mut bench = Bench::new([100, 100]);
    let mut entries = [FlowEntry::default(); 4];
    let mut placed = |bench: &mut Bench, number: usize, now_ns| {
        for packet in 0..20 {
            let at_ns = now_ns + packet * 5 * MILLISECOND;
            bench.send(&mut entries[number], 1_448, at_ns);
        }
        entries[number].tunnel()
    };
    let [first, second] = [0, 1].map(|number| placed(&mut bench, number, SECOND));
    assert_eq!(second, first.other());
    let end = FlowPacket::new(66, 0, TcpFlags(0x11), &bench.config);
    let at_ns = SECOND + 100 * MILLISECOND;
    let models = &mut bench.models;
    classify(&mut entries[1], end, &bench.config, models, at_ns);
    for number in 2..4 {
        let placed = {
            let mut entry = FlowEntry::default();
            for packet in 0..20 {
                bench.send(&mut entry, 1_448, at_ns + packet * MILLISECOND);
            }
            let models = &mut bench.models;
            classify(
                &mut entry,
                end,
                &bench.config,
                models,
                at_ns + 20 * MILLISECOND,
            );
            entry.tunnel()
        };
        assert_eq!(placed, second, "flow {number}");
    }
}

#[test]
fn flows_that_wait_for_a_tunnel_are_seen_by_those_that_follow() {
    let mut bench = Bench::new([100, 100]);
    let config = bench.config;
    let chosen = [0; 6].map(|_| {
        let (here, was) = (TunnelRole::Short, Stage::Growing);
        bench.models.choose(&config, here, was, SECOND, SECOND)
    });
    let of_long = chosen.iter().filter(|it| **it == TunnelRole::Long);
    assert_eq!(of_long.count(), 3, "{chosen:?}");
    let active = bench.models.shared.lasting(SECOND);
    assert_eq!(active, [3, 3], "none has been placed yet");
}

#[test]
fn end_of_a_flow_that_was_silent_takes_no_other_off() {
    let mut bench = Bench::new([100, 40]);
    let mut silent = FlowEntry::default();
    for _ in 0..20 {
        bench.send(&mut silent, 1_448, SECOND);
    }
    let mut active = FlowEntry::default();
    for _ in 0..20 {
        bench.send(&mut active, 1_448, 10 * SECOND);
    }
    let count = |bench: &Bench| bench.models.shared.lasting(10 * SECOND)[0];
    assert_eq!(count(&bench), 1);
    let end = FlowPacket::new(66, 0, TcpFlags(0x11), &bench.config);
    let models = &mut bench.models;
    classify(&mut silent, end, &bench.config, models, 10 * SECOND);
    assert!(count(&bench) >= 1, "the other one goes on");
}

#[test]
fn end_of_a_flow_in_a_new_window_takes_itself_off() {
    const WINDOW_NS: u64 = 1 << 27;
    let mut bench = Bench::new([100, 40]);
    let mut flows = [FlowEntry::default(); 2];
    for _ in 0..20 {
        for flow in &mut flows {
            bench.send(flow, 1_448, 8 * WINDOW_NS);
        }
    }
    bench.send(&mut flows[0], 1_448, 9 * WINDOW_NS);
    let end = FlowPacket::new(66, 0, TcpFlags(0x11), &bench.config);
    let models = &mut bench.models;
    classify(&mut flows[1], end, &bench.config, models, 9 * WINDOW_NS);
    let lasting: u32 = bench.models.shared.lasting(9 * WINDOW_NS).iter().sum();
    assert_eq!(lasting, 1);
}

/// The client's side of a download: it sends a request, and acknowledges for long.
#[test]
fn flow_that_acknowledges_is_in_nobodys_way_and_its_end_takes_no_other_off() {
    let mut bench = Bench::new([100, 100]);
    let mut upload = FlowEntry::default();
    for _ in 0..20 {
        bench.send(&mut upload, 1_448, SECOND);
    }
    let idle = bench.models.shared.competition(SECOND);
    let mut download = FlowEntry::default();
    for payload in [0, 0, 300] {
        bench.send(&mut download, payload, SECOND);
    }
    assert_ne!(bench.models.shared.competition(SECOND), idle);
    for _ in 0..100 {
        bench.send(&mut download, 0, SECOND);
    }
    assert_eq!(bench.models.shared.competition(SECOND), idle);
    // It has a further request, and is done.
    bench.send(&mut download, 300, SECOND);
    assert_ne!(bench.models.shared.competition(SECOND), idle);
    let end = FlowPacket::new(66, 0, TcpFlags(0x11), &bench.config);
    classify(&mut download, end, &bench.config, &mut bench.models, SECOND);
    assert_eq!(bench.models.shared.competition(SECOND), idle);
}

#[test]
fn flows_that_start_a_round_trip_apart_see_each_other() {
    let mut bench = Bench::new([20, 20]);
    let mut flows = [FlowEntry::default(); 8];
    for (number, flow) in (0..).zip(&mut flows) {
        bench.send(flow, 0, SECOND + number * 22 * MILLISECOND);
    }
    let of_long = flows.iter().filter(|it| it.tunnel() == TunnelRole::Long);
    assert_eq!(of_long.count(), 4);
}
