//! Loss recovery, segment by segment.

use super::*;
use crate::CongestionControl;

#[path = "sender_tests/time_based.rs"]
mod time_based;

fn sender(recovery: LossRecovery, segments: u32) -> Sender {
    let settings = Settings {
        control: CongestionControl::Reno,
        recovery,
        ..Settings::default()
    };
    Sender::new(segments, &settings)
}

fn sent(sender: &mut Sender) -> Vec<(u32, bool)> {
    std::iter::from_fn(|| sender.poll())
        .map(|it| (it.number, it.is_retransmission))
        .collect()
}

fn ack(sender: &mut Sender, missing: u32, trigger: u32) -> Vec<(u32, bool)> {
    let ack = Ack {
        missing,
        trigger,
        is_duplicate: false,
        marked: false,
        now_ns: 1000,
        round_trip_ns: 1000,
    };
    sender.on_ack(ack, None);
    sent(sender)
}

fn new(numbers: std::ops::Range<u32>) -> Vec<(u32, bool)> {
    numbers.map(|it| (it, false)).collect()
}

#[test]
fn the_initial_window_goes_at_once_and_slow_start_sends_two_an_ack() {
    let mut sender = sender(LossRecovery::NewReno, 100);
    assert_eq!(sent(&mut sender), new(0..10));
    assert_eq!(ack(&mut sender, 1, 0), new(10..12));
    assert_eq!(ack(&mut sender, 3, 2), new(12..16));
}

#[test]
fn nothing_but_the_syn_goes_before_it_is_acknowledged() {
    let settings = Settings {
        handshake: true,
        ..Settings::default()
    };
    let mut sender = Sender::new(100, &settings);
    assert_eq!(sent(&mut sender), new(0..1));
    assert_eq!(sender.rto.timeout_ns(), 1_000_000_000);
    sender.on_timeout();
    assert_eq!(sent(&mut sender), [(0, true)]);
    assert!(sender.awaits_ack());
    // The initial window is one of data, and slow start goes on from there.
    assert_eq!(ack(&mut sender, 1, 0), new(1..11));
    assert_eq!(sender.rto.timeout_ns(), settings.rto_min_us * 1000);
    assert_eq!(ack(&mut sender, 2, 1), new(11..13));
}

/// RFC 6582 §3.2, with segments 0 and 5 of ten lost.
#[test]
fn newreno_sends_again_at_the_third_duplicate_and_at_partial_acks() {
    let mut sender = sender(LossRecovery::NewReno, 100);
    sent(&mut sender);
    // Limited transmit (RFC 3042).
    assert_eq!(ack(&mut sender, 0, 1), new(10..11));
    assert_eq!(ack(&mut sender, 0, 2), new(11..12));
    // Twelve are in flight: the threshold becomes 6, the window 9.
    assert_eq!(ack(&mut sender, 0, 3), [(0, true)]);
    assert_eq!(sender.window.segments(), 9);
    for trigger in [4, 6, 7] {
        assert_eq!(ack(&mut sender, 0, trigger), []);
    }
    assert_eq!(ack(&mut sender, 0, 8), new(12..13));
    // A partial ACK: the next hole, and the window less the five that were acknowledged, plus one.
    assert_eq!(ack(&mut sender, 5, 0), [(5, true), (13, false)]);
    assert_eq!(sender.window.segments(), 9);
    assert_eq!(ack(&mut sender, 5, 9), new(14..15));
    // A full one: recovery ends, at the threshold.
    assert_eq!(ack(&mut sender, 12, 5), new(15..18));
    assert_eq!(sender.window.segments(), 6);
}

/// "When \[RFC3042\] is in use, additional data sent in limited transmit MUST NOT be included in this calculation" (RFC
/// 5681 §3.2 step 2).
#[test]
fn a_loss_halves_what_was_in_flight_before_limited_transmit() {
    for (recovery, excludes_limited_transmit, threshold) in [
        (LossRecovery::NewReno, true, 5),
        (LossRecovery::NewReno, false, 6),
        (LossRecovery::Sack, true, 5),
        (LossRecovery::Sack, false, 6),
    ] {
        let settings = Settings {
            control: CongestionControl::Reno,
            recovery,
            excludes_limited_transmit,
            ..Settings::default()
        };
        let mut sender = Sender::new(100, &settings);
        sent(&mut sender);
        for trigger in [1, 2] {
            assert_eq!(ack(&mut sender, 0, trigger).len(), 1);
        }
        ack(&mut sender, 0, 3);
        ack(&mut sender, 12, 0);
        assert_eq!(sender.window.segments(), threshold, "{settings:?}");
        // What was sent beyond one window counts no longer.
        sent(&mut sender);
        for trigger in [13, 14] {
            ack(&mut sender, 12, trigger);
        }
        ack(&mut sender, 15, 12);
        assert_eq!(sender.limited_transmit, 0);
    }
}

/// Where each ACK takes a path of its own, some are overtaken: they acknowledge less than is known (RFC 5681 §2).
#[test]
fn acks_that_were_overtaken_are_no_duplicates() {
    let mut sender = sender(LossRecovery::NewReno, 100);
    sent(&mut sender);
    assert_eq!(ack(&mut sender, 5, 4), new(10..20));
    for missing in [1, 2, 3, 4] {
        assert_eq!(ack(&mut sender, missing, missing - 1), []);
    }
    assert_eq!(sender.window.segments(), 15);
    // Three that say again what the last one said are.
    for trigger in [6, 7] {
        assert_eq!(ack(&mut sender, 5, trigger).len(), 1);
    }
    assert_eq!(ack(&mut sender, 5, 8), [(5, true)]);
}

/// RFC 6675 with the same losses: both holes are known before anything is retransmitted.
#[test]
fn sack_sends_again_what_is_lost_and_nothing_else() {
    let mut sender = sender(LossRecovery::Sack, 100);
    sent(&mut sender);
    let mut again = Vec::new();
    for trigger in [1, 2, 3, 4, 6, 7, 8, 9, 10, 11] {
        again.extend(ack(&mut sender, 0, trigger));
    }
    again.retain(|it| it.1);
    assert_eq!(again, [(0, true), (5, true)]);
    let more = ack(&mut sender, 5, 0);
    assert!(more.iter().all(|it| !it.1), "{more:?}");
    assert!(sender.recovering);
    let more = ack(&mut sender, 12, 5);
    assert!(
        !sender.recovering && more.iter().all(|it| !it.1),
        "{more:?}"
    );
}

#[test]
fn after_a_timeout_everything_goes_again_from_the_first_missing() {
    let mut sender = sender(LossRecovery::NewReno, 12);
    sent(&mut sender);
    sender.on_timeout();
    assert_eq!(sent(&mut sender), [(0, true)]);
    assert_eq!(ack(&mut sender, 1, 0), [(1, true), (2, true)]);
    // Duplicates of what was sent before the timeout start no recovery.
    for trigger in 5..9 {
        assert_eq!(ack(&mut sender, 1, trigger).len(), usize::from(trigger < 7));
    }
    assert!(!sender.recovering);
    // What arrived is not retransmitted.
    assert_eq!(ack(&mut sender, 10, 4), new(10..12));
    assert_eq!(ack(&mut sender, 12, 11), []);
    assert!(!sender.awaits_ack());
}

#[test]
fn sack_skips_what_arrived_before_a_timeout() {
    let mut sender = sender(LossRecovery::Sack, 10);
    sent(&mut sender);
    for trigger in [3, 7] {
        assert_eq!(ack(&mut sender, 0, trigger), []);
    }
    sender.on_timeout();
    let mut again = sent(&mut sender);
    for number in 0..10 {
        let missing = if number < 2 { number + 1 } else { 10 };
        if missing == 10 {
            break;
        }
        again.extend(ack(&mut sender, missing, number));
    }
    let numbers: Vec<u32> = again.iter().map(|it| it.0).collect();
    assert_eq!(numbers, [0, 1, 2, 4, 5]);
}

#[test]
fn a_lost_tail_takes_a_timeout_and_each_one_doubles() {
    let mut sender = sender(LossRecovery::NewReno, 2);
    sent(&mut sender);
    assert_eq!(ack(&mut sender, 1, 0), []);
    let first = sender.rto.timeout_ns();
    sender.on_timeout();
    assert_eq!(sender.rto.timeout_ns(), 2 * first);
    assert_eq!(sent(&mut sender), [(1, true)]);
    assert!(sender.awaits_ack());
}

/// RFC 6582 §3.2 step 2. Reordering alone makes a sender send a whole window again; the duplicate
/// ACKs of that must not look like the next loss, or one reordered segment is paid for by one
/// recovery after the other.
#[test]
fn what_was_sent_again_in_vain_starts_no_further_recovery() {
    let mut sender = sender(LossRecovery::NewReno, 200);
    sent(&mut sender);
    // Segment 0 comes after 1, 2 and 3: nothing is lost.
    for trigger in 1..=3 {
        ack(&mut sender, 0, trigger);
    }
    assert!(sender.recovering);
    let recover = sender.fresh;
    for missing in 4..=recover {
        ack(&mut sender, missing, missing - 1);
    }
    assert!(!sender.recovering);
    let window = sender.window.segments();
    // All that was retransmitted arrives, in vain.
    for trigger in 1..recover {
        ack(&mut sender, recover, trigger);
    }
    assert!(!sender.recovering);
    assert_eq!(sender.window.segments(), window);
    // A loss further on counts again.
    ack(&mut sender, recover + 1, recover);
    for trigger in recover + 2..recover + 5 {
        ack(&mut sender, recover + 1, trigger);
    }
    assert!(sender.recovering);
}

/// RFC 6675 §2: a duplicate ACK reports a segment that was not known to have arrived.
#[test]
fn with_sack_what_came_twice_is_no_duplicate() {
    let mut sender = sender(LossRecovery::Sack, 100);
    sent(&mut sender);
    ack(&mut sender, 4, 3);
    for trigger in [0, 1, 2, 3, 0, 1] {
        ack(&mut sender, 4, trigger);
    }
    assert!(!sender.recovering);
    for trigger in [5, 6, 7] {
        ack(&mut sender, 4, trigger);
    }
    assert!(sender.recovering);
}
