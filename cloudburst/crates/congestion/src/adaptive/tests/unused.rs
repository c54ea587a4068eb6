//! Losses of windows that are not used, and how these are found again.

use super::*;

const DATAGRAMS: f64 = 40.0;

/// A rig whose window is so many datagrams, which slow start may double up to `threshold`.
fn rig_with(threshold: f64) -> Rig {
    let mut rig = Rig::new();
    rig.round(0, EMPTY);
    rig.controller.window = DATAGRAMS * DATAGRAM as f64;
    rig.controller.threshold = threshold;
    // What got through then is forgotten.
    rig.now = rig.now + Duration::from_secs(2);
    rig
}

/// A round trip of two datagrams, of which one is lost in a queue.
fn lose_one_of_two(rig: &mut Rig) {
    let sent = rig.send(ROUND_TRIP, 2);
    rig.acknowledge(sent, 1, QUEUE);
}

#[test]
fn losses_leave_four_datagrams_of_a_window_that_is_not_used() {
    let mut rig = rig_with(0.0);
    for _ in 0..20 {
        lose_one_of_two(&mut rig);
    }
    assert!((rig.window() - 4.0).abs() < 0.1, "{}", rig.window());
    for _ in 0..20 {
        rig.round(1, QUEUE);
    }
    assert!(rig.window() < 1.0, "{}", rig.window());
}

#[test]
fn losses_of_nearly_all_leave_less_than_four_datagrams() {
    let mut rig = rig_with(0.0);
    for _ in 0..20 {
        let sent = rig.send(ROUND_TRIP, 2);
        rig.acknowledge(sent, sent, QUEUE);
    }
    assert!(rig.window() < 2.1, "{}", rig.window());
}

#[test]
fn window_that_was_not_used_is_found_again_as_quickly_as_in_slow_start() {
    let mut rig = rig_with(f64::INFINITY);
    lose_one_of_two(&mut rig);
    assert!(rig.window() < 5.0, "{}", rig.window());
    for _ in 0..6 {
        rig.round(0, EMPTY);
    }
    assert!(rig.window() > 0.65 * DATAGRAMS, "{}", rig.window());
}

/// It carried as much a moment ago (RFC 7661 §4.4.1), as where a message ended before others filled the queue.
#[test]
fn losses_leave_what_got_through_of_late_of_a_window_that_is_not_used() {
    for (millis, expected) in [(100, 20.0), (400, 20.0), (2_000, 4.0)] {
        let mut rig = rig_with(f64::INFINITY);
        let sent = rig.send(ROUND_TRIP, 20);
        rig.acknowledge(sent, 0, EMPTY);
        rig.now = rig.now + Duration::from_millis(millis);
        rig.controller.restart(rig.now);
        lose_one_of_two(&mut rig);
        assert!(
            (rig.window() - expected).abs() < 0.5,
            "{millis} {}",
            rig.window()
        );
    }
}

#[test]
fn each_loss_lowers_what_is_sought_again_by_as_much() {
    let mut rig = rig_with(f64::INFINITY);
    for _ in 0..3 {
        lose_one_of_two(&mut rig);
    }
    let sought = rig.controller.threshold / DATAGRAM as f64;
    let expected = DATAGRAMS * BETA.powi(3);
    assert!((sought - expected).abs() < 0.1, "{sought} {expected}");
}

#[test]
fn small_window_does_not_take_its_own_datagrams_for_a_queue_while_rates_are_unknown() {
    let least = Duration::from_micros(200);
    for (datagrams, bytes_per_s, has_queue) in
        [(4, None, false), (20, None, true), (4, Some(1e8), true)]
    {
        let mut rig = rig_with(0.0);
        rig.controller.window = f64::from(datagrams) * DATAGRAM as f64;
        rig.paths.bytes_per_s = bytes_per_s;
        rig.paths.round_trip = Some(least);
        let news = Acknowledged {
            sent: 1,
            received: 1,
            round_trip: Some((least + Duration::from_micros(400), least)),
            ..Acknowledged::default()
        };
        rig.controller.acknowledged(rig.now, &news, &rig.paths);
        assert_eq!(
            rig.controller.queues().1,
            has_queue,
            "{datagrams} {bytes_per_s:?}"
        );
    }
}

/// Paths die again and again then, and with each what was in flight by it is forgotten.
#[test]
fn pauses_are_kept_where_nearly_all_is_lost_and_paths_die() {
    let mut rig = rig_with(0.0);
    for _ in 0..10 {
        let sent = rig.send(ROUND_TRIP, 2);
        rig.acknowledge(sent, sent, EMPTY);
    }
    let mut left = 0;
    for _ in 0..1_000 {
        if rig.controller.credit(rig.now) > 0 {
            rig.controller.sent(rig.now, MIN_DATAGRAM_BYTES);
            left += 1;
        }
        rig.controller.set_in_flight(0);
        rig.now = rig.now + Duration::from_millis(1);
    }
    assert!((3..=8).contains(&left), "{left} datagrams in a second");
}

/// Five minutes long a window is believed, as after a pause in which nothing was sent.
#[test]
fn window_of_before_a_silence_is_taken_back_while_it_is_believed() {
    for (silence, expected) in [(Duration::from_secs(200), DATAGRAMS), (VALID_FOR * 2, 10.0)] {
        let mut rig = rig_with(0.0);
        rig.controller.timed_out(rig.now, &rig.paths);
        assert!(rig.window() < 1.1, "{}", rig.window());
        rig.controller.discount_silence(rig.now + silence);
        assert!((rig.window() - expected).abs() < 0.1, "{}", rig.window());
    }
}
