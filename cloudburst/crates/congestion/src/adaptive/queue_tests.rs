//! Whose queue stands, and what becomes of the window: bit by bit of a round trip.

use std::collections::VecDeque;

use super::{start::Start, *};

const ROUND_TRIP: Duration = Duration::from_millis(80);
const SLICES: usize = 32;
const SLICE: Duration = Duration::from_micros(2_500);
const DATAGRAM: u64 = MIN_DATAGRAM_BYTES as u64;
const EMPTY: Duration = Duration::ZERO;
const QUEUE: Duration = Duration::from_millis(20);

/// A controller and a path: what is sent in a slice of a round trip is acknowledged together.
struct Rig {
    controller: AdaptiveController,
    now: Time,
    /// When each slice under way ended, datagrams sent in it, and bytes before.
    under_way: VecDeque<(Time, u32, u64)>,
    sent_bytes: u64,
    /// Rate of the bottlenecks together, and how many they seem to be.
    bytes_per_s: Option<f64>,
    bottlenecks: usize,
}

impl Rig {
    fn new() -> Self {
        let now = Time::ZERO + Duration::from_secs(1);
        Self {
            controller: AdaptiveController::new(now, ROUND_TRIP),
            now,
            under_way: VecDeque::new(),
            sent_bytes: 0,
            bytes_per_s: None,
            bottlenecks: 1,
        }
    }

    /// Sends for a slice, and hears of the one a round trip before, in which so many were lost and the
    /// others met such a queue.
    fn slice(&mut self, lost: u32, queue: Duration) {
        let until = self.now + SLICE;
        let mut sent = 0;
        loop {
            let ready_at = self.controller.ready_at().max(self.now);
            if self.controller.credit(self.now) > 0 {
                self.controller.sent(self.now, MIN_DATAGRAM_BYTES);
                sent += 1;
            } else if ready_at < until {
                self.now = ready_at + Duration::from_nanos(1);
            } else {
                break;
            }
        }
        self.now = self.now.max(until);
        self.under_way.push_back((self.now, sent, self.sent_bytes));
        self.sent_bytes += u64::from(sent) * DATAGRAM;
        if self.under_way.len() <= SLICES {
            return;
        }
        let Some((newest, sent, sent_before)) = self.under_way.pop_front().filter(|it| it.1 > 0)
        else {
            return;
        };
        let in_flight: u32 = self.under_way.iter().map(|it| it.1).sum();
        let lost = lost.min(sent);
        let news = Acknowledged {
            sent,
            received: sent - lost,
            lost,
            resolved_bytes: u64::from(sent) * DATAGRAM,
            newest_sent_at: Some(newest),
            lost_since: [Some(newest); MAX_QUEUES],
            sent_before,
            delivered_since: u64::from(in_flight + sent - lost) * DATAGRAM,
            in_flight: u64::from(in_flight) * DATAGRAM,
            round_trip: Some((ROUND_TRIP + queue, ROUND_TRIP)),
            ..Acknowledged::default()
        };
        let paths = PathRates {
            datagram_bytes: MIN_DATAGRAM_BYTES,
            ack_timeout: ROUND_TRIP * 2,
            round_trip: Some(ROUND_TRIP),
            bytes_per_s: self.bytes_per_s,
            bottlenecks: self.bottlenecks,
            ..PathRates::default()
        };
        self.controller.acknowledged(self.now, &news, &paths);
    }

    /// Rounds that all meet the same queue.
    fn rounds(&mut self, count: usize, queue: Duration) {
        for _ in 0..count * SLICES {
            self.slice(0, queue);
        }
    }

    /// Until slow start has got so far, the queue being empty.
    fn start(&mut self, datagrams: f64) {
        while self.window() < datagrams {
            self.slice(0, EMPTY);
        }
    }

    /// A window that a loss in a full queue has just reduced, long after slow start.
    fn reduced() -> Self {
        let mut rig = Self::new();
        rig.start(200.0);
        rig.controller.threshold = rig.controller.window;
        rig.rounds(3, QUEUE);
        rig.slice(1, QUEUE);
        rig
    }

    fn window(&self) -> f64 {
        self.controller.window / DATAGRAM as f64
    }
}

#[test]
fn a_window_does_not_grow_by_what_met_a_queue() {
    let mut rig = Rig::new();
    rig.start(100.0);
    let before = rig.window();
    rig.rounds(1, QUEUE);
    assert!(rig.window() <= before, "{before} {}", rig.window());
    assert!(rig.controller.is_starting());
}

#[test]
fn a_queue_that_empties_when_less_is_sent_was_ours() {
    let mut rig = Rig::new();
    rig.start(100.0);
    let before = rig.window();
    while !matches!(rig.controller.start, Start::Doubt { .. }) {
        rig.slice(0, QUEUE);
    }
    assert!(rig.window() < 0.9 * before, "{before} {}", rig.window());
    rig.rounds(3, EMPTY);
    assert!(!rig.controller.is_starting());
    assert!(rig.window() < before, "{before} {}", rig.window());
}

#[test]
fn a_queue_that_stands_when_less_is_sent_is_others() {
    let mut rig = Rig::new();
    rig.start(100.0);
    let before = rig.window();
    rig.rounds(10, QUEUE);
    assert!(rig.window() > 1.2 * before, "{before} {}", rig.window());
    assert!(!rig.controller.is_starting(), "it ends after some rounds");
}

/// A window that is cut down to see whether a queue of others empties takes seconds to be back.
#[test]
fn a_queue_that_holds_more_than_we_have_sent_is_others_at_once() {
    // In 30 ms the first carries a third of what is in flight, as one does whose queue is ours, and so does the second, of which
    // each port passes for a bottleneck; the third carries nine times as much.
    for (bytes_per_s, bottlenecks, is_others) in [
        (4.8e5, 1, false),
        (16.0 * 4.8e5, 16, false),
        (2.2e7, 1, true),
    ] {
        let mut rig = Rig::new();
        rig.start(40.0);
        rig.bytes_per_s = Some(bytes_per_s);
        rig.bottlenecks = bottlenecks;
        let (before, mut least) = (rig.window(), f64::MAX);
        for _ in 0..8 * SLICES {
            rig.slice(0, QUEUE * 3 / 2);
            least = least.min(rig.window());
        }
        assert_eq!(least >= before, is_others, "{before} {least}");
        assert!(rig.window() > 1.2 * before, "{before} {}", rig.window());
    }
}

#[test]
fn a_queue_that_comes_and_goes_while_we_send_does_not_end_slow_start() {
    let mut rig = Rig::new();
    rig.start(100.0);
    // A window leaves in half a round: the queue has to go while one does.
    for _ in 0..SLICES / 2 {
        rig.slice(0, EMPTY);
    }
    let before = rig.window();
    for slice in 0..3 * SLICES as u32 {
        // It takes longer to drain than its last datagram stands in it.
        let height = match slice % SLICES as u32 {
            it @ 0..8 => 2 * it,
            it @ 8..24 => 24 - it,
            _ => 0,
        };
        rig.slice(0, QUEUE * height / 16);
    }
    assert_eq!(rig.controller.start, Start::Beside);
    assert!(rig.window() > 3.0 * before, "{before} {}", rig.window());
}

#[test]
fn a_queue_that_grows_beside_others_ends_slow_start() {
    let mut rig = Rig::new();
    rig.start(100.0);
    rig.controller.start = Start::Beside;
    for round in 0..12 {
        rig.rounds(1, QUEUE * round);
    }
    assert!(!rig.controller.is_starting());
}

#[test]
fn what_a_reduction_has_emptied_is_left_to_all() {
    let mut rig = Rig::reduced();
    let before = rig.window();
    rig.rounds(12, EMPTY);
    assert!(rig.window() < 1.3 * before, "{before} {}", rig.window());
}

#[test]
fn what_has_emptied_by_itself_is_taken() {
    let mut rig = Rig::reduced();
    rig.rounds(4, QUEUE);
    let before = rig.window();
    rig.rounds(12, EMPTY);
    assert!(rig.window() > 2.0 * before, "{before} {}", rig.window());
}

#[test]
fn a_loss_in_front_of_a_full_queue_is_not_chance() {
    let mut rig = Rig::new();
    rig.start(200.0);
    rig.controller.threshold = rig.controller.window;
    rig.rounds(1, EMPTY);
    let before = rig.window();
    rig.slice(1, QUEUE);
    assert!(rig.window() < 0.8 * before, "{before} {}", rig.window());
}

/// The window is no more than got through, so that it is not reduced again to see whose queue stands; and in front of one that
/// does it grows carefully.
#[test]
fn slow_start_after_a_loss_does_not_look_whose_queue_stands() {
    let mut rig = Rig::new();
    rig.start(100.0);
    rig.slice(4, QUEUE);
    rig.controller.threshold = 4.0 * rig.controller.window;
    let after = rig.window();
    assert!(after < 100.0, "{after}");
    for _ in 0..4 {
        rig.rounds(1, QUEUE);
        assert!(rig.window() >= after, "{after} {}", rig.window());
    }
    let grown = rig.window() / after;
    assert!((1.2..3.0).contains(&grown), "{grown}");
}
