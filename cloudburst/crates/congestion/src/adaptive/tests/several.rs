//! Several queues that are told apart.

use super::*;
use crate::QueueShares;

/// A window beside others, with so much of what is sent through each queue.
pub(super) fn beside(parts: &[u64]) -> Rig {
    let mut rig = Rig::new();
    for _ in 0..5 {
        rig.round(0, QUEUE);
    }
    rig.controller.window = 64.0 * DATAGRAM as f64;
    rig.controller.threshold = rig.controller.window;
    // What is due was given before.
    for (queue, bytes) in parts.iter().enumerate() {
        rig.paths.shares.count(queue, *bytes);
    }
    rig.controller.flows.take(rig.paths.shares, Some(0.0));
    rig
}

/// The part of the window that a loss in the first queue leaves.
fn kept(parts: &[u64]) -> f64 {
    let mut rig = beside(parts);
    let before = rig.window();
    let sent = rig.send(ROUND_TRIP, u32::MAX);
    rig.acknowledge(sent, 1, QUEUE);
    rig.window() / before
}

#[test]
fn a_loss_reduces_the_part_that_went_through_its_queue() {
    assert!((kept(&[]) - BETA).abs() < 1e-2, "{}", kept(&[]));
    assert!((kept(&[1_000]) - BETA).abs() < 1e-2, "{}", kept(&[1_000]));
    let half = kept(&[1_000, 1_000]);
    assert!((half - 0.85).abs() < 1e-2, "{half}");
    let quarter = kept(&[1_000, 3_000]);
    assert!((quarter - 0.925).abs() < 1e-2, "{quarter}");
}

/// Bursts of TCP take much of what meets them in one queue, and nothing of what goes through others.
#[test]
fn heavy_losses_in_one_queue_leave_what_goes_through_others() {
    let kept = |parts: &[u64]| {
        let mut rig = beside(parts);
        let before = rig.window();
        let sent = rig.send(ROUND_TRIP, u32::MAX);
        rig.acknowledge(sent, sent - 4, QUEUE);
        rig.window() / before
    };
    assert!(kept(&[]) < 0.2, "{}", kept(&[]));
    let half = kept(&[1_000, 1_000]);
    assert!((0.49..0.51).contains(&half), "{half}");
    let quarter = kept(&[1_000, 3_000]);
    assert!((0.74..0.76).contains(&quarter), "{quarter}");
}

#[test]
fn losses_in_two_queues_reduce_both_parts_and_those_of_one_reduce_it_once() {
    for (second, least, most) in [(0, 0.84, 0.86), (1, 0.71, 0.73)] {
        let mut rig = beside(&[1_000, 1_000]);
        let before = rig.window();
        let sent = rig.send(ROUND_TRIP, u32::MAX);
        let sent_at = rig.now;
        rig.acknowledge_in(0, sent / 2, 1, QUEUE);
        // What is reported next was sent before that.
        rig.now = sent_at;
        rig.acknowledge_in(second, sent - sent / 2, 1, QUEUE);
        let kept = rig.window() / before;
        assert!((least..most).contains(&kept), "{second} {kept}");
    }
}

#[test]
fn a_loss_beside_one_that_counts_already_reduces_the_other_part() {
    let mut rig = beside(&[1_000, 1_000]);
    let sent = rig.send(ROUND_TRIP, u32::MAX);
    rig.controller.recovery_until[0] = rig.now;
    let before = rig.window();
    let mut both = QueueSet::default();
    (0..2).for_each(|queue| both.insert(queue));
    let news = Acknowledged {
        sent,
        received: sent - 2,
        lost: 2,
        queues: both,
        lossy: both,
        newest_sent_at: Some(Time::from_nanos(rig.now.as_nanos() - 1)),
        lost_since: [Some(Time::from_nanos(rig.now.as_nanos() - 1)); MAX_QUEUES],
        round_trip: Some((ROUND_TRIP + QUEUE, ROUND_TRIP)),
        ..Acknowledged::default()
    };
    rig.controller.acknowledged(rig.now, &news, &rig.paths);
    let kept = rig.window() / before;
    assert!((0.84..0.86).contains(&kept), "{kept}");
}

/// One queue was reduced for since these datagrams had left, and what the other one has lost was sent later than them.
#[test]
fn a_loss_that_counts_already_is_none_beside_a_later_one_of_another_queue() {
    let mut rig = beside(&[1_000, 1_000]);
    let sent = rig.send(ROUND_TRIP, u32::MAX);
    let before = rig.window();
    let (early, late) = (
        rig.now - Duration::from_millis(2),
        rig.now - Duration::from_nanos(1),
    );
    rig.controller.recovery_until[0] = rig.now - Duration::from_millis(1);
    let mut news = rig.news(0, sent, 2, QUEUE);
    news.lossy.insert(1);
    news.queues.insert(1);
    news.lost_since = [Some(early), Some(late), None, None];
    rig.take(&news);
    let kept = rig.window() / before;
    assert!((0.84..0.86).contains(&kept), "{kept}");
}

/// Datagrams that the window grows by in ten round trips beside others.
fn grown(parts: &[u64]) -> f64 {
    let mut rig = beside(parts);
    let sent = rig.send(ROUND_TRIP, u32::MAX);
    rig.acknowledge(sent, 1, QUEUE);
    let before = rig.window();
    for _ in 0..10 {
        rig.round(0, QUEUE);
    }
    rig.window() - before
}

#[test]
fn a_window_through_several_queues_grows_as_so_many_flows() {
    let (one, four) = (grown(&[1_000]), grown(&[1_000; 4]));
    assert!(one > 4.0, "{one}");
    assert!((3.0..5.0).contains(&(four / one)), "{one} {four}");
}

#[test]
fn queues_that_are_told_apart_are_due_a_window_each() {
    let mut rig = beside(&[]);
    let before = rig.window();
    let mut shares = QueueShares::default();
    for queue in 0..2 {
        shares.count(queue, 1_000);
    }
    rig.paths.shares = shares;
    for _ in 0..6 {
        rig.round(0, QUEUE);
    }
    let after = rig.window() / before;
    assert!((1.9..2.3).contains(&after), "{after}");
}

#[test]
fn nothing_is_due_after_a_silence_or_of_what_little_got_through() {
    let apart = || {
        let mut rig = beside(&[]);
        let mut shares = QueueShares::default();
        for queue in 0..4 {
            shares.count(queue, 1_000);
        }
        rig.paths.shares = shares;
        rig.round(0, QUEUE);
        rig
    };
    let growth = |mut rig: Rig| {
        let before = rig.window();
        rig.round(0, QUEUE);
        rig.window() / before
    };
    assert!(growth(apart()) > 1.3, "{}", growth(apart()));
    let mut silent = apart();
    silent.controller.timed_out(silent.now, &silent.paths);
    let window = silent.controller.window;
    assert_eq!(silent.controller.flows.grow_to_due(window, 1e6), None);
    let mut fallen = apart();
    let sent = fallen.send(ROUND_TRIP, u32::MAX);
    fallen.acknowledge(sent, sent * 3 / 4, QUEUE);
    let window = fallen.controller.window;
    assert_eq!(fallen.controller.flows.grow_to_due(window, 1e6), None);
    let mut idle = apart();
    idle.now = idle.now + VALID_FOR + VALID_FOR;
    idle.controller.restart(idle.now);
    let window = idle.controller.window;
    assert_eq!(idle.controller.flows.grow_to_due(window, 1e6), None);
    let mut joined = apart();
    joined.paths.shares = QueueShares::NONE;
    joined.round(0, QUEUE);
    assert!(growth(joined) < 1.1);
}

#[test]
fn slow_start_multiplies_nothing() {
    let mut flows = Flows::default();
    let mut shares = QueueShares::default();
    for queue in 0..2 {
        shares.count(queue, 1_000);
    }
    flows.take(shares, None);
    assert_eq!(flows.grow_to_due(1e3, 1e3), None);
    flows.take(shares, Some(1e4));
    assert_eq!(flows.grow_to_due(1e4, 1e3), Some(1.05e4));
}

/// Losses without a queue may be chance, which is found out by sending 0.7 of what it was.
#[test]
fn losses_without_a_queue_reduce_all_of_the_window() {
    let mut rig = beside(&[1_000; 4]);
    for _ in 0..3 {
        rig.round(0, EMPTY);
    }
    let before = rig.window();
    let sent = rig.send(ROUND_TRIP, u32::MAX);
    rig.acknowledge(sent, sent * 3 / 10, EMPTY);
    let kept = rig.window() / before;
    assert!(kept <= BETA + 0.01, "{kept}");
}

#[test]
fn long_burst_leaves_in_two_trains_unless_a_queue_stands() {
    let train = |round_trip, queue| {
        let mut rig = Rig::new();
        rig.controller.window = 80.0 * DATAGRAM as f64;
        rig.controller.threshold = 0.0;
        rig.paths.round_trip = Some(round_trip);
        rig.paths.bottlenecks = 4;
        let news = Acknowledged {
            sent: 1,
            received: 1,
            round_trip: Some((round_trip + queue, round_trip)),
            ..Acknowledged::default()
        };
        rig.controller.acknowledged(rig.now, &news, &rig.paths);
        let train = rig.controller.train_bytes();
        train.map(|bytes| bytes / MIN_DATAGRAM_BYTES)
    };
    let millis = Duration::from_millis;
    assert_eq!(train(millis(2), EMPTY), Some(6), "of twelve");
    assert_eq!(train(millis(2), QUEUE), None);
    assert_eq!(train(millis(20), EMPTY), None, "a pair for each path");
}
