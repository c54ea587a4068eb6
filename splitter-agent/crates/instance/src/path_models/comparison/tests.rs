use std::cell::Cell;

use flow_balance::ServiceTime;
use proptest::prelude::*;
use splitter_policy::paths::{PathId, TunnelQueues};

use super::*;

const MBIT: u64 = 1_000_000;

/// A tunnel of 8 Mbit/s without a shaper.
fn tunnel() -> TunnelPath {
    TunnelPath {
        service: ServiceTime::from_bits_per_second(8 * MBIT),
        queue_ns: 50_000_000,
        weight: 1,
        ..TunnelPath::default()
    }
}

/// The same behind a shaper, which lets two full packets go at once.
fn shaped() -> TunnelPath {
    TunnelPath {
        burst_ns: tunnel().service.of(2 * 1_514),
        ..tunnel()
    }
}

fn first() -> PathId {
    PathId::new(0).unwrap()
}

/// A shaper with a queue: packets leave in order, each when its time begins, after a pause some ahead of that.
struct Shaper {
    tunnel: TunnelPath,
    /// Time and length of what has come, with when it leaves.
    packets: Vec<(u64, u64, u64)>,
    free_at_ns: u64,
}

impl Shaper {
    fn new(tunnel: TunnelPath) -> Self {
        Self {
            tunnel,
            packets: Vec::new(),
            free_at_ns: 0,
        }
    }

    fn take(&mut self, now_ns: u64, bytes: u64) {
        let leaves_ns = self
            .free_at_ns
            .saturating_sub(self.tunnel.burst_ns)
            .max(now_ns);
        self.packets.push((now_ns, bytes, leaves_ns));
        self.free_at_ns = self.free_at_ns.max(now_ns) + self.tunnel.service.of(bytes);
    }

    /// What a right model holds at a time.
    fn right_ns(&self, now_ns: u64) -> u64 {
        let come = self.packets.iter().filter(|it| it.0 <= now_ns);
        come.fold(0, |free_at_ns, it| {
            free_at_ns.max(it.0) + self.tunnel.service.of(it.1)
        })
    }

    /// A look while what should have left in the last `late_ns` is still there.
    fn look(&self, now_ns: u64, late_ns: u64) -> QueueLook {
        let waits = |it: &&(u64, u64, u64)| it.0 <= now_ns && it.2 > now_ns - late_ns;
        QueueLook {
            asked_ns: now_ns,
            answered_ns: now_ns,
            bytes: self.packets.iter().filter(waits).map(|it| it.1).sum(),
            packet_bytes: 1_514,
        }
    }
}

/// Packets of so many bytes each, one after the other as fast as the tunnel is, and a look every `every_ns` from
/// when they have begun to wait; by how much the model is wrong after that, which was so much in the beginning.
fn error_after_looks(
    tunnel: TunnelPath,
    (bytes, every_ns): (u64, u64),
    error_ns: i64,
    late_ns: impl Fn(u64) -> u64,
) -> i64 {
    let (mut shaper, mut comparison) = (Shaper::new(tunnel), Comparison::default());
    let begin_ns = 1_000_000_000;
    // Ten, and as many as leave, so that some wait all the time.
    (0..10).for_each(|_| shaper.take(begin_ns, bytes));
    let gap_ns = tunnel.service.of(bytes);
    for number in 1..2_300_000_000 / gap_ns {
        shaper.take(begin_ns + number * gap_ns, bytes);
    }
    let mut wrong_ns = error_ns;
    for number in 1..200 {
        let at_ns = begin_ns + number * every_ns;
        let right_ns = shaper.right_ns(at_ns);
        let model_ns = right_ns.saturating_add_signed(wrong_ns);
        let look = shaper.look(at_ns, late_ns(number));
        wrong_ns += comparison.look(&tunnel, model_ns, model_ns, &look);
    }
    wrong_ns
}

proptest! {
    /// Whatever the error is, and where now and then a timer is late so that more waits than should.
    #[test]
    fn model_comes_to_within_a_part_of_a_packet_of_its_queue(
        error_ns in -30_000_000i64..30_000_000,
        every_ns in 9_100_000u64..11_000_000,
        bytes in 400u64..1_515,
        bursts: bool,
        is_late: bool,
    ) {
        let tunnel = if bursts { shaped() } else { tunnel() };
        let late_ns = |number| if is_late && number % 7 == 0 { 6_000_000 } else { 0 };
        let wrong_ns = error_after_looks(tunnel, (bytes, every_ns), error_ns, late_ns);
        // The looks take the longest packet there may be for the one in front.
        let most_ns = tunnel.service.of(1_514) * 3 / 4;
        prop_assert!(wrong_ns.unsigned_abs() < most_ns, "{wrong_ns}");
    }
}

/// Each look is off by up to half a packet. Of judgements that are believed by halves, 45 us of 1.5 ms remain.
#[test]
fn chance_moves_a_right_model_by_few_hundredths_of_a_packet() {
    let tunnel = shaped();
    let errors = (0..40).map(|number| {
        let every_ns = 9_800_000 + number * 11_003;
        error_after_looks(tunnel, (1_500, every_ns), 0, |_| 0)
    });
    let mean_ns = errors.map(i64::abs).sum::<i64>() / 40;
    assert!(mean_ns < 38_000, "{mean_ns}");
}

/// The thread that looks had to wait for a processor before it looked, or after that: what waited then, it waited for
/// as long as it took at the most.
#[test]
fn look_that_took_long_counts_for_what_is_certain_of_it() {
    let tunnel = shaped();
    // The model holds 5 ms less than what waited.
    for (took_ns, models_ns, judged_ns) in [
        (1_000_000, [10_000_000, 11_000_000], 5_000_000..6_000_000),
        // Packets for 1 ms may all have come before it was looked, or behind that.
        (3_000_000, [10_000_000, 11_000_000], 4_000_000..4_000_001),
        (20_000_000, [10_000_000, 10_000_000], 0..1),
        (20_000_000, [15_000_000, 15_000_000], 0..1),
    ] {
        let mut comparison = Comparison::default();
        let corrections = (0..16).map(|number| {
            let asked_ns = 1_000_000_000 + 50_000_000 * number;
            let look = QueueLook {
                asked_ns,
                answered_ns: asked_ns + took_ns,
                bytes: 15_000,
                packet_bytes: 1_514,
            };
            let [before_ns, after_ns] = models_ns.map(|it| asked_ns + it + tunnel.burst_ns);
            comparison.look(&tunnel, before_ns, after_ns, &look)
        });
        let sum_ns: i64 = corrections.sum();
        assert!(judged_ns.contains(&sum_ns), "{took_ns}: {sum_ns}");
    }
}

/// A queue that ran empty since has made its model right.
#[test]
fn looks_of_long_ago_are_not_judged_with_later_ones() {
    let tunnel = shaped();
    for (pause_ns, is_judged) in [(10_000_000, true), (3_600_000_000_000, false)] {
        let mut comparison = Comparison::default();
        let mut look = |asked_ns: u64, error_ns: u64| {
            let look = QueueLook {
                asked_ns,
                answered_ns: asked_ns,
                bytes: 15_000,
                packet_bytes: 1_514,
            };
            let model_ns = asked_ns + 15_000_000 + tunnel.burst_ns - error_ns;
            comparison.look(&tunnel, model_ns, model_ns, &look)
        };
        let before = (0..15).map(|number| look(1_000_000_000 + 10_000_000 * number, 5_000_000));
        assert_eq!(before.sum::<i64>(), 0);
        let last_ns = look(1_140_000_000 + pause_ns, 0);
        assert_eq!(last_ns > 4_000_000, is_judged, "{pause_ns}: {last_ns}");
    }
}

/// Packets and looks that nearly keep step: what is certain says a little more each time, and never all.
#[test]
fn model_comes_to_its_queue_where_looks_nearly_keep_step_with_packets() {
    let tunnel = tunnel();
    let wrong_ns = error_after_looks(tunnel, (535, 10_163_098), 1_500_561, |_| 0);
    assert!(wrong_ns.unsigned_abs() < 700_000, "{wrong_ns}");
    let late_ns = |number| if number % 7 == 0 { 6_000_000 } else { 0 };
    let wrong_ns = error_after_looks(tunnel, (1_000, 10_999_999), 27_751_086, late_ns);
    assert!(wrong_ns.unsigned_abs() < 1_000_000, "{wrong_ns}");
}

#[test]
fn empty_queue_tells_that_a_model_is_too_full_and_not_that_it_is_too_empty() {
    let (tunnel, now_ns) = (shaped(), 1_000_000_000);
    let empty = QueueLook {
        asked_ns: now_ns,
        answered_ns: now_ns,
        bytes: 0,
        packet_bytes: 1_514,
    };
    let mut comparison = Comparison::default();
    let mut correct = |model_ns| comparison.look(&tunnel, model_ns, model_ns, &empty);
    for _ in 0..40 {
        assert_eq!(correct(now_ns - 50_000_000), 0);
    }
    // A burst may have gone, and the packet behind it has its time.
    let latest_ns = now_ns + tunnel.service.of(3 * 1_514);
    assert_eq!(correct(latest_ns), 0);
    assert_eq!(correct(latest_ns + 7_000), -7_000);
}

#[test]
fn queue_that_fills_without_packets_that_choose_is_no_longer_than_what_waits() {
    let tunnel = tunnel();
    let queues = TunnelQueues::<Cell<u64>>::default();
    let mut comparison = Comparison::default();
    let hour_ns = 3_600_000_000_000;
    for number in 0..200 {
        let now_ns = hour_ns + number * 10_000_000;
        let look = QueueLook {
            asked_ns: now_ns,
            answered_ns: now_ns,
            bytes: 10_000,
            packet_bytes: 1_514,
        };
        let model_ns = queues.free_at_ns(first());
        let correction_ns = comparison.look(&tunnel, model_ns, model_ns, &look);
        queues.correct(first(), correction_ns, now_ns);
        let holds_ns = queues.free_at_ns(first()).saturating_sub(now_ns);
        assert!(holds_ns <= tunnel.service.of(10_000 + 1_514), "{holds_ns}");
        let is_filled = correction_ns <= 0 || holds_ns >= tunnel.service.of(10_000);
        assert!(is_filled, "what waits is in the model: {holds_ns}");
    }
    let (_, wrong_ns) = queues.compared(first());
    // Each judgement finds the queue of then.
    assert!(
        wrong_ns <= 200 / 16 * tunnel.service.of(10_000 + 1_514),
        "{wrong_ns}"
    );
    assert!(wrong_ns > 0);
}
