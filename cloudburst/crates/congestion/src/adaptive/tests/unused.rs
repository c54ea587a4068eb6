//! What losses leave of windows that are not used, or of which several bottlenecks have a part each.

use super::*;

const DATAGRAMS: f64 = 40.0;

fn rig_with(datagrams: f64, threshold: f64) -> Rig {
    let mut rig = Rig::new();
    rig.round(0, EMPTY);
    rig.controller.window = datagrams * DATAGRAM as f64;
    rig.controller.threshold = threshold;
    rig
}

/// A round trip of two datagrams, of which one is lost in a queue.
fn lose_one_of_two(rig: &mut Rig) {
    let sent = rig.send(ROUND_TRIP, 2);
    rig.acknowledge(sent, 1, QUEUE);
}

#[test]
fn losses_leave_four_datagrams_of_a_window_that_is_not_used() {
    let mut rig = rig_with(DATAGRAMS, 0.0);
    for _ in 0..20 {
        lose_one_of_two(&mut rig);
    }
    assert!((rig.window() - 4.0).abs() < 0.1, "{}", rig.window());
    for _ in 0..20 {
        rig.round(1, QUEUE);
    }
    assert!(rig.window() < 2.0, "{}", rig.window());
}

#[test]
fn window_that_was_not_used_is_found_again_as_quickly_as_in_slow_start() {
    for threshold in [f64::INFINITY, 0.0] {
        let mut rig = rig_with(DATAGRAMS, threshold);
        lose_one_of_two(&mut rig);
        for _ in 0..6 {
            rig.round(0, EMPTY);
        }
        let window = rig.window();
        assert!(window > 0.65 * DATAGRAMS, "{threshold}: {window}");
    }
}

#[test]
fn loss_at_one_of_several_bottlenecks_reduces_its_part() {
    let rates = [(4, Some(1e7), 0.85), (4, None, BETA), (2, Some(1e7), BETA)];
    for (bottlenecks, bytes_per_s, remaining) in rates {
        let mut rig = rig_with(DATAGRAMS, 0.0);
        rig.paths.bottlenecks = bottlenecks;
        rig.paths.bytes_per_s = bytes_per_s;
        rig.round(1, QUEUE);
        let share = rig.window() / DATAGRAMS;
        assert!((share - remaining).abs() < 0.01, "{bottlenecks}: {share}");
    }
    // Two losses may be those of two.
    let mut rig = rig_with(DATAGRAMS, 0.0);
    (rig.paths.bottlenecks, rig.paths.bytes_per_s) = (4, Some(1e7));
    rig.round(2, QUEUE);
    assert!((rig.window() / DATAGRAMS - BETA).abs() < 0.01);
}
