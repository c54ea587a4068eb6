//! The window, round trip by round trip, with paths that are made up.

mod burst;
mod marks;
mod ready;
mod several;
mod unused;

use super::*;
use crate::QueueSet;

const ROUND_TRIP: Duration = Duration::from_millis(20);
const DATAGRAM: u64 = MIN_DATAGRAM_BYTES as u64;

/// A controller whose datagrams are all in flight for a round trip.
struct Rig {
    controller: AdaptiveController,
    now: Time,
    paths: PathRates,
}

impl Rig {
    fn new() -> Self {
        let now = Time::ZERO + Duration::from_secs(1);
        Self {
            controller: AdaptiveController::new(now, Duration::from_millis(5)),
            now,
            paths: PathRates {
                datagram_bytes: MIN_DATAGRAM_BYTES,
                ack_timeout: ROUND_TRIP * 2,
                round_trip: None,
                ..PathRates::default()
            },
        }
    }

    /// Sends what may be sent within so long, `most` datagrams at most. How many were sent.
    fn send(&mut self, within: Duration, most: u32) -> u32 {
        let until = self.now + within;
        let mut sent = 0;
        while sent < most {
            if self.controller.credit(self.now) > 0 {
                self.controller.sent(self.now, MIN_DATAGRAM_BYTES);
                sent += 1;
                continue;
            }
            let ready_at = self.controller.ready_at();
            if ready_at >= until {
                break;
            }
            self.now = self.now.max(ready_at) + Duration::from_nanos(1);
        }
        self.now = self.now.max(until);
        sent
    }

    /// All that was sent is acknowledged but so many; a queue has delayed it.
    fn acknowledge(&mut self, sent: u32, lost: u32, queue: Duration) {
        self.acknowledge_in(0, sent, lost, queue);
    }

    /// All that was sent went through this queue.
    fn acknowledge_in(&mut self, through: usize, sent: u32, lost: u32, queue: Duration) {
        let news = self.news(through, sent, lost, queue);
        self.take(&news);
    }

    fn news(&mut self, through: usize, sent: u32, lost: u32, queue: Duration) -> Acknowledged {
        self.paths.round_trip = Some(ROUND_TRIP);
        let delivered = u64::from(sent - lost) * DATAGRAM;
        let (mut queues, mut lossy) = (QueueSet::default(), QueueSet::default());
        queues.insert(through);
        if lost > 0 {
            lossy.insert(through);
        }
        Acknowledged {
            queues,
            lossy,
            sent,
            received: sent - lost,
            lost,
            resolved_bytes: u64::from(sent) * DATAGRAM,
            newest_sent_at: Some(Time::from_nanos(self.now.as_nanos() - 1)),
            lost_since: lost_since(through, self.now - Duration::from_nanos(1)),
            sent_before: 0,
            delivered_since: delivered,
            in_flight: 0,
            round_trip: Some((ROUND_TRIP + queue, ROUND_TRIP)),
            ..Acknowledged::default()
        }
    }

    fn take(&mut self, news: &Acknowledged) {
        self.controller.acknowledged(self.now, news, &self.paths);
        self.now = self.now + Duration::from_micros(1);
    }

    /// A round trip in which as much is sent as may be. How many datagrams.
    fn round(&mut self, lost: u32, queue: Duration) -> u32 {
        let sent = self.send(ROUND_TRIP, u32::MAX);
        self.acknowledge(sent, lost.min(sent), queue);
        sent
    }

    fn window(&self) -> f64 {
        self.controller.window / DATAGRAM as f64
    }
}

/// All that was lost was sent then or later.
fn lost_since(queue: usize, at: Time) -> [Option<Time>; MAX_QUEUES] {
    let mut since = [None; MAX_QUEUES];
    since[queue] = Some(at);
    since
}

const EMPTY: Duration = Duration::ZERO;
const QUEUE: Duration = Duration::from_millis(10);

#[test]
fn a_peer_of_which_nothing_is_known_is_sent_ten_datagrams() {
    let mut rig = Rig::new();
    assert_eq!(rig.send(Duration::from_millis(900), u32::MAX), 10);
}

#[test]
fn a_window_doubles_while_queues_are_empty() {
    let mut rig = Rig::new();
    rig.round(0, EMPTY);
    let before = rig.window();
    rig.round(0, EMPTY);
    assert!(
        (rig.window() / before - 2.0).abs() < 0.1,
        "{}",
        rig.window()
    );
}

#[test]
fn a_loss_in_a_queue_reduces_the_window_once_in_a_round_trip() {
    let mut rig = Rig::new();
    for _ in 0..5 {
        rig.round(0, QUEUE);
    }
    rig.controller.threshold = rig.controller.window;
    let before = rig.window();
    let sent = rig.send(ROUND_TRIP, u32::MAX);
    rig.acknowledge(sent / 2, 1, QUEUE);
    let after = rig.window();
    assert!(after <= before * BETA + 0.01, "{before} {after}");
    // Sent before the reduction.
    rig.controller.recovery_until = [rig.now; MAX_QUEUES];
    rig.acknowledge(sent - sent / 2, 1, QUEUE);
    assert!((rig.window() - after).abs() < 0.01);
}

#[test]
fn a_few_losses_without_a_queue_are_chance_and_many_are_not() {
    let mut rig = Rig::new();
    for _ in 0..4 {
        rig.round(0, EMPTY);
    }
    let before = rig.window();
    rig.round(1, EMPTY);
    assert!(rig.window() >= before, "{before} {}", rig.window());
}

/// Messages end with round trips of two datagrams, and then every loss is half of what was sent.
#[test]
fn a_loss_at_the_end_of_a_message_is_chance_where_few_are_lost_over_many() {
    for (losses, is_chance) in [(1, true), (20, false)] {
        let mut rig = Rig::new();
        rig.controller.threshold = 0.0;
        for _ in 0..20 {
            rig.round(0, EMPTY);
        }
        let before = rig.window();
        for _ in 0..losses {
            let sent = rig.send(ROUND_TRIP, 2);
            rig.acknowledge(sent, 1, EMPTY);
            for _ in 0..9 {
                let sent = rig.send(ROUND_TRIP, 2);
                rig.acknowledge(sent, 0, EMPTY);
            }
        }
        assert_eq!(
            rig.window() >= before,
            is_chance,
            "{before} {}",
            rig.window()
        );
    }
}

/// Four bottlenecks carry two datagrams each while one carries eight in a row.
#[test]
fn two_leave_together_for_each_bottleneck_if_that_is_little_of_a_round_trip() {
    let burst = |window: f64, bottlenecks, round_trip| {
        let mut controller = AdaptiveController::new(Time::ZERO, round_trip);
        controller.window = window * DATAGRAM as f64;
        controller.threshold = 0.0;
        controller.bottlenecks = bottlenecks;
        controller.pace(Time::ZERO);
        controller.credit(Time::ZERO).div_ceil(MIN_DATAGRAM_BYTES)
    };
    let millis = Duration::from_millis;
    assert_eq!(burst(4.0, 4.0, millis(10)), 1, "a small window");
    assert_eq!(
        burst(9.0, 4.0, millis(100)),
        2,
        "it takes eight milliseconds"
    );
    assert_eq!(burst(40.0, 1.0, millis(10)), 2);
    assert_eq!(
        burst(40.0, 4.0, millis(40)),
        5,
        "what leaves in four milliseconds"
    );
    assert_eq!(
        burst(20.0, 4.0, millis(10)),
        7,
        "and in a quarter of a round trip"
    );
    assert_eq!(burst(80.0, 4.0, millis(10)), 8);
    assert_eq!(burst(80.0, 16.0, millis(10)), 8, "they may share one");
}

#[test]
fn losses_by_chance_leave_a_datagram_for_each_bottleneck() {
    let least = |bottlenecks| {
        let mut rig = Rig::new();
        rig.paths.bottlenecks = bottlenecks;
        for _ in 0..200 {
            let sent = rig.send(ROUND_TRIP, u32::MAX);
            rig.acknowledge(sent, sent * 2 / 3, EMPTY);
        }
        rig.window()
    };
    let [one, four, sixteen] = [1, 4, 16].map(least);
    assert!((1.9..4.0).contains(&one), "{one}");
    assert!(four >= 3.9 && sixteen < 2.0 * four, "{four} {sixteen}");
}

#[test]
fn a_bottleneck_without_a_queue_is_not_taken_for_chance() {
    let mut rig = Rig::new();
    let (mut all_sent, mut all_lost) = (0, 0);
    for round in 0..200 {
        let sent = rig.send(ROUND_TRIP, u32::MAX);
        let lost = sent.saturating_sub(100);
        rig.acknowledge(sent, lost, EMPTY);
        if round >= 20 {
            all_sent += sent;
            all_lost += lost;
        }
    }
    assert!(all_lost * 12 < all_sent, "{all_lost} of {all_sent}");
}

#[test]
fn a_share_that_is_lost_whatever_is_sent_costs_little() {
    let mut rig = Rig::new();
    for _ in 0..60 {
        let sent = rig.send(ROUND_TRIP, 200);
        rig.acknowledge(sent, sent / 12, EMPTY);
    }
    assert!(rig.window() > 100.0, "{}", rig.window());
}

/// Where many begin together, no one has seen the queue empty, and no one's window changes what is lost.
#[test]
fn a_share_as_of_too_many_senders_is_never_taken_for_chance() {
    let mut rig = Rig::new();
    for _ in 0..200 {
        let sent = rig.send(ROUND_TRIP, 200);
        rig.acknowledge(sent, (sent * 3).div_ceil(10), EMPTY);
    }
    assert!(rig.window() < 5.0, "{}", rig.window());
}

#[test]
fn a_window_that_is_not_used_does_not_grow() {
    let mut rig = Rig::new();
    for _ in 0..100 {
        let sent = rig.send(ROUND_TRIP, 3);
        rig.acknowledge(sent, 0, EMPTY);
    }
    assert!(rig.window() <= 10.0, "{}", rig.window());
}

#[test]
fn a_window_that_was_not_used_is_validated() {
    let mut rig = Rig::new();
    for _ in 0..5 {
        rig.round(0, EMPTY);
    }
    let before = rig.window();
    rig.now = rig.now + VALID_FOR / 2;
    rig.controller.restart(rig.now);
    assert!((rig.window() - before).abs() < 0.01, "it is believed");
    let sent = rig.send(ROUND_TRIP, u32::MAX);
    rig.acknowledge(sent, sent * 3 / 4, QUEUE);
    let through = f64::from(sent - sent * 3 / 4);
    assert!(rig.window() <= through + 0.01, "{through} {}", rig.window());
    rig.controller.window *= 100.0;
    rig.now = rig.now + VALID_FOR * 2;
    rig.controller.restart(rig.now);
    assert!(rig.window() <= INITIAL_DATAGRAMS);
}

/// One report may be of datagrams from before a reduction and after it, and what it has lost was most likely sent before, with the rest
/// of what found no place.
#[test]
fn losses_that_may_be_of_before_a_reduction_do_not_reduce_the_window_again() {
    for (is_of_before, is_reduced) in [(true, false), (false, true)] {
        let mut rig = Rig::settled();
        let lost = Time::from_nanos(rig.now.as_nanos() + 1);
        rig.round(1, QUEUE);
        let after = rig.window();
        let sent = rig.send(ROUND_TRIP, u32::MAX);
        let mut news = rig.news(0, sent, 1, QUEUE);
        if is_of_before {
            news.lost_since = lost_since(0, lost);
        }
        rig.take(&news);
        assert_eq!(rig.window() < 0.9 * after, is_reduced, "{}", rig.window());
        assert!(rig.window() <= after, "what was lost is no growth");
    }
}

#[test]
fn after_a_silence_no_more_leaves_at_once_than_otherwise() {
    let mut rig = Rig::new();
    for _ in 0..5 {
        rig.round(0, EMPTY);
    }
    rig.now = rig.now + ROUND_TRIP * 10;
    rig.controller.restart(rig.now);
    let at_once = rig.controller.credit(rig.now) as f64;
    let quarter_of_a_millisecond = rig.controller.bytes_per_s() * 250e-6;
    assert!(
        at_once <= quarter_of_a_millisecond.max(2_400.0),
        "{at_once}"
    );
    assert!(rig.controller.window > 4.0 * at_once, "{}", rig.window());
}

#[test]
fn silence_is_answered_by_pauses_that_double_up_to_a_second() {
    let mut rig = Rig::new();
    rig.round(0, EMPTY);
    rig.controller.timed_out(rig.now, &rig.paths);
    let sent: Vec<u32> = (0..12)
        .map(|_| rig.send(Duration::from_secs(1), u32::MAX))
        .collect();
    assert!((3..=6).contains(&sent[0]), "{sent:?}");
    assert!(sent[3..].iter().all(|&sent| sent <= 1), "{sent:?}");
}

#[test]
fn what_was_only_late_leaves_the_window_as_it_was() {
    let mut rig = Rig::new();
    rig.round(0, EMPTY);
    let before = rig.window();
    let sent = rig.send(ROUND_TRIP, u32::MAX);
    rig.controller.timed_out(rig.now + ROUND_TRIP, &rig.paths);
    assert!(rig.window() < before);
    rig.acknowledge(sent, 0, EMPTY);
    assert!(rig.window() >= before, "{before} {}", rig.window());
}

#[test]
fn a_full_window_of_which_nothing_is_heard_is_probed() {
    let mut rig = Rig::new();
    rig.round(0, EMPTY);
    rig.send(ROUND_TRIP, u32::MAX);
    let probes = rig.send(rig.paths.ack_timeout * 4, u32::MAX);
    assert!((1..=3).contains(&probes), "{probes}");
}

/// Symbols are cut to equal lengths, somewhat below the longest datagram. Who sends takes any credit that is left for
/// one more.
#[test]
fn a_probe_is_one_datagram_however_long() {
    let mut rig = Rig::new();
    rig.round(0, EMPTY);
    rig.send(ROUND_TRIP, u32::MAX);
    rig.now = rig.now + Duration::from_secs(1);
    for _ in 0..2 {
        let credit = rig.controller.credit(rig.now);
        assert_eq!(credit.div_ceil(MIN_DATAGRAM_BYTES - 2), 1);
        rig.controller.timed_out(rig.now, &rig.paths);
    }
}

/// One that gets through now and then says nothing of the rest (after Karn's algorithm).
#[test]
fn pauses_last_while_most_is_lost_whatever_gets_through_now_and_then() {
    let mut rig = Rig::new();
    rig.round(0, EMPTY);
    let mut sent = 0;
    for _ in 0..20 {
        rig.controller.timed_out(rig.now, &rig.paths);
        sent += rig.send(Duration::from_millis(500), u32::MAX);
        rig.acknowledge(10, 9, EMPTY);
    }
    assert!((10..60).contains(&sent), "{sent} in ten seconds");
    // All gets through again.
    for _ in 0..8 {
        let sent = rig.send(Duration::from_secs(1), 2);
        rig.acknowledge(sent, 0, EMPTY);
    }
    rig.controller.timed_out(rig.now, &rig.paths);
    let sent = rig.send(Duration::from_millis(500), u32::MAX);
    assert!((3..8).contains(&sent), "{sent} in half a second");
}
