//! RACK-TLP: losses by time, probes of the tail, and what is undone.

use super::*;

const MS: u64 = 1_000_000;

/// Segments of which ten have gone at once, at 0 ms.
fn rack_of(segments: u32) -> Sender {
    let settings = Settings {
        control: CongestionControl::Reno,
        recovery: LossRecovery::Rack,
        rto_min_us: 200_000,
        ..Settings::default()
    };
    let mut sender = Sender::new(segments, &settings);
    assert_eq!(sent(&mut sender), new(0..10));
    sender
}

fn rack() -> Sender {
    rack_of(10)
}

/// An ACK at a time, of a segment that was sent at another, in ms.
fn ack_at(sender: &mut Sender, missing: u32, trigger: u32, ms: [u64; 2]) -> Vec<(u32, bool)> {
    time_based(sender, (missing, trigger), ms, false)
}

fn time_based(
    sender: &mut Sender,
    (missing, trigger): (u32, u32),
    [now_ms, sent_ms]: [u64; 2],
    is_duplicate: bool,
) -> Vec<(u32, bool)> {
    let ack = Ack {
        missing,
        trigger,
        is_duplicate,
        marked: false,
        now_ns: now_ms * MS,
        round_trip_ns: (now_ms - sent_ms) * MS,
    };
    sender.on_ack(ack, None);
    sent(sender)
}

/// The timer goes off when it is due, which is to be at this time; returns whether it is a timeout, and what is sent.
fn expire(sender: &mut Sender, now_ms: u64) -> (bool, Vec<(u32, bool)>) {
    assert_eq!(sender.deadline_ns(0), now_ms * MS);
    let is_timeout = sender.on_timer(now_ms * MS);
    (is_timeout, sent(sender))
}

/// RFC 8985 §7: after two round trips the last segment goes again, and its ACK tells what else is missing.
#[test]
fn lost_tail_is_probed_for_before_the_timeout() {
    let mut sender = rack();
    for segment in 0..8 {
        assert_eq!(ack_at(&mut sender, segment + 1, segment, [20, 0]), []);
    }
    assert_eq!(expire(&mut sender, 62), (false, vec![(9, true)]));
    // One at a time: what comes next is the timeout, of 200 ms since.
    assert_eq!(sender.deadline_ns(0), 262 * MS);
    assert_eq!(ack_at(&mut sender, 8, 9, [82, 62]), [(8, true)]);
    assert_eq!(ack_at(&mut sender, 10, 8, [102, 82]), []);
    assert!(!sender.awaits_ack());
}

/// RFC 8985 §7.2 and §7.4.2: a single segment is probed for when the timeout would come, and if that was lost the window
/// is smaller, which nothing else says.
#[test]
fn loss_that_a_probe_repairs_costs_window_unless_the_probe_was_needless() {
    for is_needless in [false, true] {
        let mut sender = rack();
        for segment in 0..9 {
            assert_eq!(ack_at(&mut sender, segment + 1, segment, [20, 0]), []);
        }
        assert_eq!(expire(&mut sender, 220), (false, vec![(9, true)]));
        assert_eq!(ack_at(&mut sender, 10, 9, [240, 220]), []);
        if is_needless {
            time_based(&mut sender, (10, 9), [241, 220], true);
        }
        let before = sender.window.segments();
        sender.segments += 1;
        assert_eq!(sent(&mut sender), new(10..11));
        assert_eq!(ack_at(&mut sender, 11, 10, [260, 240]), []);
        assert_eq!(sender.window.segments() < before, !is_needless);
    }
}

/// Twenty segments, of which a probe sends the 13th at 62 ms.
fn probed_by_new_data() -> Sender {
    let mut sender = rack_of(20);
    assert_eq!(ack_at(&mut sender, 1, 0, [20, 0]), new(10..12));
    assert_eq!(expire(&mut sender, 62), (false, new(12..13)));
    sender
}

/// RFC 8985 §7.3: the next probe waits for the acknowledgement of this one, which is not that of all before it.
#[test]
fn probe_of_new_data_is_waited_for() {
    let mut sender = probed_by_new_data();
    ack_at(&mut sender, 12, 11, [64, 20]);
    assert_eq!(sender.deadline_ns(0), (64 + 200) * MS);
    ack_at(&mut sender, 13, 12, [82, 62]);
    assert!(sender.deadline_ns(0) < (82 + 200) * MS, "the next one");
}

/// RFC 8985 §7.1.
#[test]
fn no_probe_is_waited_for_once_a_recovery_has_begun() {
    let mut sender = probed_by_new_data();
    for trigger in [2, 3, 4] {
        ack_at(&mut sender, 1, trigger, [64, 0]);
    }
    assert!(sender.recovering);
    // It was late, and what follows is new.
    ack_at(&mut sender, 5, 1, [65, 0]);
    assert!(!sender.recovering);
    let deadline_ns = sender.deadline_ns(0);
    assert!(!sender.on_timer(deadline_ns), "a probe, and no timeout");
}

/// RFC 7323 §4.1: an ACK of what was known is no round trip, however long ago it was sent.
#[test]
fn ack_of_what_was_discarded_is_no_round_trip() {
    let mut sender = rack();
    assert_eq!(ack_at(&mut sender, 4, 3, [20, 0]), []);
    let smoothed_ns = sender.rto.smoothed_ns();
    assert_eq!(ack_at(&mut sender, 4, 3, [90, 0]), []);
    assert_eq!(sender.rto.smoothed_ns(), smoothed_ns);
}

/// RFC 8985 §6.3.
#[test]
fn timeout_spares_what_was_sent_within_a_round_trip() {
    let mut sender = rack_of(12);
    assert_eq!(ack_at(&mut sender, 1, 0, [20, 0]), new(10..12));
    sender.on_clock(30 * MS);
    sender.on_timeout();
    assert_eq!(sent(&mut sender), [(1, true)]);
    let in_flight = sender.rack.as_ref().map(|it| it.pipe());
    assert_eq!(in_flight, Some(3), "that one and the last two");
}

#[test]
fn timeout_sends_all_again_that_has_not_arrived() {
    let mut sender = rack();
    assert_eq!(ack_at(&mut sender, 1, 0, [20, 0]), []);
    assert_eq!(expire(&mut sender, 62), (false, vec![(9, true)]));
    assert_eq!(expire(&mut sender, 262), (true, vec![(1, true)]));
    assert_eq!(sender.window.segments(), 1);
    assert_eq!(
        ack_at(&mut sender, 2, 1, [282, 262]),
        [(2, true), (3, true)]
    );
    // Nothing is allowed for reordering meanwhile (RFC 8985 §6.2 step 4).
    let again = ack_at(&mut sender, 2, 3, [302, 282]);
    assert_eq!(again.first(), Some(&(2, true)));
}

/// RFC 8985 §6.2: until something came out of order three are enough, whenever they come.
#[test]
fn three_later_segments_say_that_one_is_lost() {
    let mut sender = rack();
    for trigger in [1, 2] {
        assert_eq!(ack_at(&mut sender, 0, trigger, [20, 0]), []);
    }
    assert_eq!(ack_at(&mut sender, 0, 3, [20, 0]), [(0, true)]);
    assert_eq!(sender.window.segments(), 5);
}

/// RFC 8985 §6.2 step 5: also those beyond the highest that has arrived.
#[test]
fn retransmission_that_arrives_says_that_all_is_lost_which_was_sent_before_it() {
    let mut sender = rack();
    for trigger in [1, 2] {
        assert_eq!(ack_at(&mut sender, 0, trigger, [20, 0]), []);
    }
    assert_eq!(ack_at(&mut sender, 0, 3, [20, 0]), [(0, true)]);
    let again = ack_at(&mut sender, 4, 0, [40, 20]);
    assert_eq!(again.first(), Some(&(4, true)), "{again:?}");
}

#[test]
fn segment_that_is_late_by_less_than_a_quarter_of_a_round_trip_is_not_lost() {
    let mut sender = rack();
    assert_eq!(ack_at(&mut sender, 0, 1, [20, 0]), []);
    assert_eq!(ack_at(&mut sender, 2, 0, [24, 0]), []);
    // From now on three are not enough, and time alone counts.
    for trigger in [3, 4, 5, 6] {
        assert_eq!(ack_at(&mut sender, 2, trigger, [24, 0]), []);
    }
    assert_eq!(ack_at(&mut sender, 2, 7, [29, 0]), []);
    assert_eq!(ack_at(&mut sender, 8, 2, [29, 0]), []);
    assert!(sender.window.segments() > 10);
}

/// RFC 8985 §6.2 step 2: the round trip is that of what arrived last, though something sent later had arrived before.
#[test]
fn late_original_has_others_waited_for_as_long() {
    let mut sender = rack();
    assert_eq!(ack_at(&mut sender, 0, 3, [20, 0]), []);
    assert_eq!(ack_at(&mut sender, 1, 0, [24, 0]), []);
    // A quarter of 20 ms, and what timers take.
    assert_eq!(sender.deadline_ns(0), (24 + 5 + 2) * MS);
}

/// RFC 8985 §6.2 step 3: what one ACK reports has no order, and an ACK that another overtook adds nothing.
#[test]
fn ack_that_was_overtaken_is_no_reordering() {
    let mut sender = rack();
    // Those of the first two come later, or are lost.
    assert_eq!(ack_at(&mut sender, 3, 2, [20, 0]), []);
    assert_eq!(ack_at(&mut sender, 1, 0, [20, 0]), []);
    // So three beyond a missing one are enough, of which the last reports all.
    let reports = [5, 4, 6];
    sender.on_reports(21 * MS, reports.into_iter());
    assert_eq!(ack_at(&mut sender, 3, 6, [21, 0]), [(3, true)]);
    // What comes below that is late, by which the reduction is undone, and has been overtaken itself.
    sender.on_reports(22 * MS, [3].into_iter());
    assert_eq!(ack_at(&mut sender, 7, 3, [22, 0]), []);
    assert!(sender.window.segments() > 10);
}

/// One that comes later than that was sent again for nothing; as soon as that is known the window is as before.
#[test]
fn reduction_that_proves_needless_is_undone() {
    let mut sender = rack_of(12);
    assert_eq!(ack_at(&mut sender, 0, 1, [20, 0]), new(10..11));
    // A quarter of 20 ms, and what timers take.
    assert_eq!(expire(&mut sender, 27), (false, vec![(0, true)]));
    assert_eq!(sender.window.segments(), 5);
    assert_eq!(ack_at(&mut sender, 2, 0, [28, 0]), new(11..12));
    assert!(sender.window.segments() >= 10);
    // Its copy comes as a duplicate, from which on two quarters are waited for.
    assert_eq!(ack_at(&mut sender, 10, 9, [29, 0]), []);
    assert_eq!(time_based(&mut sender, (10, 0), [47, 27], true), []);
    assert_eq!(ack_at(&mut sender, 10, 11, [48, 28]), []);
    assert_eq!(sender.deadline_ns(0), (20 + 20 + 2 * 5 + 2) * MS);
}

/// Where ACKs overtake each other, too, one comes late of what later ones have covered.
#[test]
fn ack_that_was_overtaken_says_nothing_of_retransmissions() {
    let mut sender = rack_of(12);
    assert_eq!(ack_at(&mut sender, 0, 1, [20, 0]), new(10..11));
    assert_eq!(ack_at(&mut sender, 10, 9, [21, 0]), new(11..12));
    assert_eq!(ack_at(&mut sender, 5, 4, [22, 0]), []);
    assert_eq!(ack_at(&mut sender, 10, 11, [41, 21]), []);
    // One quarter, as at first.
    assert_eq!(sender.deadline_ns(0), (20 + 20 + 5 + 2) * MS);
}
