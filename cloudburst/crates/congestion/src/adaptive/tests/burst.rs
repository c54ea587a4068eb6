//! Bursts that are longer than what a queue has room for, and what is heard of them in the end.

use super::*;

/// A burst of twenty through a window of as many, and what the reports tell of it.
struct Burst {
    rig: Rig,
    sent_at: Time,
    before: f64,
}

impl Burst {
    fn new() -> Self {
        let mut rig = Rig::new();
        rig.round(0, EMPTY);
        rig.controller.window = (20 * DATAGRAM) as f64;
        rig.controller.threshold = rig.controller.window;
        rig.now = rig.now + ROUND_TRIP * 10;
        rig.controller.restart(rig.now);
        let sent_at = rig.now;
        for _ in 0..20 {
            rig.controller.sent(rig.now, MIN_DATAGRAM_BYTES);
        }
        rig.now = rig.now + ROUND_TRIP + QUEUE;
        let before = rig.window();
        Self {
            rig,
            sent_at,
            before,
        }
    }

    /// So many of it are reported on; `all` are with that.
    fn report(&mut self, (sent, lost): (u32, u32), all: u32, delivered: u32) {
        let news = Acknowledged {
            sent,
            received: sent - lost,
            lost,
            resolved_bytes: u64::from(sent) * DATAGRAM,
            newest_sent_at: Some(self.sent_at),
            lost_since: lost_since(0, self.sent_at),
            sent_before: 0,
            delivered_since: u64::from(delivered) * DATAGRAM,
            in_flight: u64::from(20 - all) * DATAGRAM,
            round_trip: Some((ROUND_TRIP + QUEUE, ROUND_TRIP)),
            ..Acknowledged::default()
        };
        let rig = &mut self.rig;
        rig.controller.acknowledged(rig.now, &news, &rig.paths);
        rig.now = rig.now + Duration::from_millis(1);
    }

    /// A pause later a ping is answered, with a report on some of the burst.
    fn ping(&mut self, (sent, lost): (u32, u32)) {
        self.rig.now = self.rig.now + ROUND_TRIP * 10;
        self.sent_at = Time::from_nanos(self.rig.now.as_nanos() - 1);
        self.report((sent, lost), 20, 0);
    }
}

#[test]
fn a_ping_that_finds_the_losses_of_a_burst_does_not_tell_what_gets_through() {
    let mut burst = Burst::new();
    for all in [5, 10, 15, 17] {
        burst.report((all.min(5), 0), all, all);
    }
    burst.ping((4, 3));
    let (before, after) = (burst.before, burst.rig.window());
    assert!(after > before * 0.6 && after < before, "{before} {after}");
}

#[test]
fn a_loss_that_a_ping_finds_at_the_end_of_a_message_is_one_of_a_window() {
    let mut burst = Burst::new();
    for (sent, all) in [(5, 5), (5, 10), (5, 15), (4, 19)] {
        burst.report((sent, 0), all, all);
    }
    burst.ping((1, 0));
    burst.ping((2, 1));
    let (before, after) = (burst.before, burst.rig.window());
    assert!(after > before * 0.6 && after < before, "{before} {after}");
}

#[test]
fn what_gets_through_of_a_burst_is_known_when_all_of_it_is() {
    let mut burst = Burst::new();
    burst.report((12, 11), 12, 1);
    assert!(burst.rig.window() <= 1.01, "{}", burst.rig.window());
    burst.report((8, 0), 20, 9);
    burst.ping((1, 0));
    let after = burst.rig.window();
    assert!((7.9..10.0).contains(&after), "{after}");
}

#[test]
fn after_silence_nothing_of_before_counts() {
    let mut burst = Burst::new();
    burst.report((12, 11), 12, 1);
    burst.report((8, 0), 20, 9);
    let rig = &mut burst.rig;
    rig.controller.timed_out(rig.now, &rig.paths);
    burst.ping((1, 0));
    burst.ping((1, 0));
    assert!(burst.rig.window() <= 3.01, "{}", burst.rig.window());
}
