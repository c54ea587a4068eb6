//! Paths and their health, as the manager sees them.

use super::*;
use cloudburst_congestion::{EcnState, Totals};
use cloudburst_wire::EcnCounts;
use proptest::{collection::vec, prelude::*};

/// A datagram takes 120 us.
const NS_PER_BYTE: f64 = 100.0;
const BYTES: usize = 1_200;

fn paths(count: u16) -> Paths {
    let mut paths = Paths::default();
    for socket in 0..count {
        let four_tuple = FourTuple::new(SocketId(socket), "192.0.2.1:7".parse().unwrap());
        assert!(paths.add(Time::ZERO, four_tuple, &Datagrams::default()));
        assert!(!paths.add(Time::ZERO, four_tuple, &Datagrams::default()));
    }
    paths
}

/// A report of these counts, for what looks at nothing else.
fn counts(received: u32, highest: u32) -> Report {
    Report {
        received,
        highest,
        ..Report::default()
    }
}

fn chosen(paths: &mut Paths, count: usize) -> Vec<usize> {
    let choose = |_| {
        let (index, _) = paths
            .choose(Time::ZERO, BYTES, 1, NS_PER_BYTE, None)
            .expect("there is one");
        paths.sending(Time::ZERO, index, BYTES, NS_PER_BYTE);
        index
    };
    (0..count).map(choose).collect()
}

#[test]
fn memory_is_as_documented() {
    let bytes = size_of::<Path>() + size_of::<RateEstimator>();
    assert!((512..=1_376).contains(&bytes), "{bytes} bytes for a path");
}

#[test]
fn equal_ways_take_turns() {
    assert_eq!(chosen(&mut paths(3), 7), [0, 1, 2, 0, 1, 2, 0]);
}

/// Questions in between go by Cloudburst's own choice, and messages on by what was set.
#[test]
fn balancer_that_was_set_chooses_for_messages_for_good() {
    let mut list = Paths::chosen_by(PathChoice::Ecmp);
    core::mem::swap(&mut list.list, &mut paths(3).list);
    list.bottlenecks = vec![RateEstimator::new(Time::ZERO); 3];
    let mut of_message = || {
        let message = (7, None);
        let (index, _) = list
            .choose(Time::ZERO, BYTES, 4, NS_PER_BYTE, Some(message))
            .expect("there is one");
        let questions = list.choose(Time::ZERO, 0, 0, 0.0, None);
        assert!(questions.is_some());
        index
    };
    let first = of_message();
    assert_eq!([(); 6].map(|()| of_message()), [first; 6]);
}

/// What is left of a burst of 8 ms so many milliseconds later.
fn drained_us(ms: u32) -> u32 {
    8_u32.saturating_sub(ms) * 1_000
}

/// What was known of queues when there were two paths would count a part of each loss for ever.
#[test]
fn what_goes_by_one_path_alone_is_one_flow() {
    let mut paths = paths(2);
    for step in 0..3_000_u32 {
        // Two by each, so that a path's own are as close as those of both.
        let index = step as usize / 2 % 2;
        let now = Time::ZERO + Duration::from_millis(step.into());
        let path = paths.get_mut(index);
        path.flies(now, BYTES, Totals::default());
        let highest = path.take_sequence(now) as u32;
        let report = Report {
            path: path.id,
            received: highest + 1,
            highest,
            delay_us: 5_000 + drained_us(step % [17, 23][index]),
            ..Report::default()
        };
        paths.hear(now + Duration::from_millis(10), &report);
    }
    assert!(paths.shares().flows() > 1.9, "{:?}", paths.shares());
    paths.remove_socket(Time::ZERO, SocketId(1));
    assert!((paths.shares().flows() - 1.0).abs() < 1e-9);
}

#[test]
fn slow_way_is_left_out_until_the_others_are_as_slow() {
    let mut paths = paths(2);
    for (id, delay_us) in [(1, 5_300), (2, 5_000)] {
        paths.get_mut(usize::from(id) - 1).take_sequence(Time::ZERO);
        let report = Report {
            path: id,
            received: 1,
            highest: 0,
            delay_us,
            ..Report::default()
        };
        let report = paths.hear(Time::ZERO, &report).expect("it is news");
        assert_eq!((report.sent, report.received), (1, 1));
    }
    let chosen = chosen(&mut paths, 7);
    assert_eq!(chosen[..3], [1, 1, 1]);
    assert_eq!(chosen.iter().filter(|&&index| index == 0).count(), 2);
}

#[test]
fn dead_way_is_left_out_unless_all_are() {
    let mut paths = paths(2);
    paths.get_mut(0).die();
    assert_eq!(chosen(&mut paths, 2), [1, 1]);
    paths.get_mut(1).die();
    assert_eq!(chosen(&mut paths, 2), [0, 0], "the other is busy still");
}

#[test]
fn way_that_an_answer_came_by_lives_and_may_die_again() {
    let mut paths = paths(1);
    let path = paths.get_mut(0);
    let ack_timeout = Duration::from_millis(1);
    for _ in 0..3 {
        path.take_sequence(Time::ZERO);
    }
    let mut now = Time::ZERO + ack_timeout * 2;
    assert!(path.judge(now, ack_timeout, None) && path.is_dead());
    path.echoed(now);
    assert!(path.is_good() && !path.is_dead());
    now = now + ack_timeout;
    assert!(!path.judge(now, ack_timeout, None), "it is young yet");
    now = now + ack_timeout;
    assert!(
        path.judge(now, ack_timeout, None),
        "nothing was heard since"
    );
}

#[test]
fn way_dies_when_nothing_is_heard() {
    let mut paths = paths(1);
    let path = paths.get_mut(0);
    let ack_timeout = Duration::from_millis(1);
    for _ in 0..3 {
        path.take_sequence(Time::ZERO);
    }
    assert!(!path.judge(Time::ZERO + ack_timeout, ack_timeout, None));
    assert!(path.judge(Time::ZERO + ack_timeout * 2, ack_timeout, None));
    let report = path.hear(Time::ZERO + ack_timeout * 3, &counts(3, 2));
    assert!(report.is_some_and(|report| (report.sent, report.received) == (3, 3)));
    assert!(!path.is_dead());
}

#[test]
fn a_path_that_stays_dead_remembers_few_of_the_datagrams_that_go_by_it() {
    let mut paths = paths(1);
    let path = paths.get_mut(0);
    path.die();
    let mut at = Time::ZERO;
    for _ in 0..100_000 {
        at = at + Duration::from_millis(1);
        path.flies(at, BYTES, Totals::default());
        path.take_sequence(at);
    }
    assert!(
        path.in_flight() <= 64 * BYTES as u64,
        "{}",
        path.in_flight()
    );
}

#[test]
fn what_a_peer_has_discarded_is_neither_in_flight_nor_lost() {
    // The last was not discarded after all.
    for (received, sent, lost) in [(5, 5, 0), (3, 5, 2), (15, 15, 0)] {
        let mut paths = paths(1);
        let path = paths.get_mut(0);
        for sequence in 0..15 {
            if sequence == 10 {
                path.discarded();
                assert_eq!(path.in_flight(), 0);
            }
            path.flies(Time::ZERO, BYTES, Totals::default());
            path.take_sequence(Time::ZERO);
        }
        let report = path
            .hear(Time::ZERO, &counts(received, 14))
            .expect("it is new");
        let known = (report.sent, report.received, report.lost);
        assert_eq!(known, (sent, received, lost));
        // Ten losses later are losses, whatever was discarded.
        for _ in 0..11 {
            path.take_sequence(Time::ZERO);
        }
        let report = path
            .hear(Time::ZERO, &counts(received + 1, 25))
            .expect("it is new");
        assert_eq!((report.sent, report.received, report.lost), (11, 1, 10));
    }
}

/// Of who has reported before: what it takes for discarded is neither in flight nor lost, whether it goes on with
/// its count or begins again, and what is lost later is.
#[test]
fn what_a_peer_discards_later_is_neither_in_flight_nor_lost() {
    let send = |path: &mut Path, count| {
        for _ in 0..count {
            path.flies(Time::ZERO, BYTES, Totals::default());
            path.take_sequence(Time::ZERO);
        }
        path.report(None).sent as u32 - 1
    };
    // So many were received before, and of the 15 that seem to be discarded.
    for (before, is_restarted, took) in
        [(6, true, 0), (6, false, 0), (300, true, 0), (6, false, 15)]
    {
        let mut paths = paths(1);
        let path = paths.get_mut(0);
        let hear = |path: &mut Path, received, highest| {
            let report = path.hear(Time::ZERO, &counts(received, highest));
            let report = report.expect("it is new");
            (report.sent, report.received, report.lost)
        };
        let highest = send(path, before + 1);
        assert_eq!(hear(path, before, highest), (before + 1, before, 1));
        send(path, 15);
        let counted = match is_restarted {
            true => {
                path.restarted(true);
                0
            }
            false => {
                path.discarded();
                before + took
            }
        };
        assert_eq!(path.in_flight(), 0);
        let highest = send(path, 5);
        assert_eq!(path.in_flight(), 5 * BYTES as u64);
        assert_eq!(hear(path, counted + 5, highest), (5, 5, 0));
        let highest = send(path, 11);
        assert_eq!(hear(path, counted + 6, highest), (11, 1, 10));
    }
}

/// Nobody can say what of it went to the peer before its restart, and what only to the one after it.
#[test]
fn what_went_to_a_peer_that_was_restarted_unnoticed_is_not_lost_to_the_network() {
    for (was_heard, has_retried) in [(true, false), (true, true), (false, false), (false, true)] {
        let mut paths = paths(1);
        let path = paths.get_mut(0);
        let send = |path: &mut Path, count: u32| {
            for _ in 0..count {
                path.flies(Time::ZERO, BYTES, Totals::default());
                path.take_sequence(Time::ZERO);
            }
        };
        let hear = |path: &mut Path, received, highest| {
            let report = path.hear(Time::ZERO, &counts(received, highest));
            let report = report.expect("it is new");
            (report.sent, report.received, report.lost)
        };
        send(path, 10);
        if was_heard {
            assert_eq!(hear(path, 10, 9), (10, 10, 0));
        }
        send(path, 100);
        if has_retried {
            path.discarded();
            send(path, 20);
        }
        path.restarted(false);
        send(path, 3);
        let sent = if has_retried { 133 } else { 113 };
        assert_eq!(hear(path, 3, sent - 1), (3, 3, 0));
        send(path, 11);
        assert_eq!(hear(path, 4, sent + 10), (11, 1, 10));
    }
}

/// Answers come back by any path, so that a round trip may be longer without a queue.
#[test]
fn a_queue_is_told_by_the_delay_there_alone() {
    let mut paths = paths(1);
    let queues = [700, 200, 1_200].map(|delay_us| {
        let highest = paths.get_mut(0).take_sequence(Time::ZERO) as u32;
        let report = Report {
            path: 1,
            received: highest + 1,
            highest,
            delay_us,
            ..Report::default()
        };
        let new = paths.hear(Time::ZERO, &report).expect("it is new");
        new.queue.as_micros()
    });
    assert_eq!(queues, [0, 0, 1_000]);
}

/// Sends a datagram, which the peer reports with so many that came as capable of ECN, and so many in all. Whether it was sent
/// as capable, and what is known of the path then.
fn send_marked(
    paths: &mut Paths,
    index: usize,
    (received, capable): (u32, u32),
) -> (bool, EcnState) {
    let now = Time::ZERO;
    let path = paths.get_mut(index);
    let highest = path.take_sequence(now) as u32;
    let is_capable = path.mark(now, 1);
    let report = Report {
        path: path.id,
        received,
        highest,
        ecn: Some(EcnCounts { capable, marked: 0 }),
        ..Report::default()
    };
    paths.hear(now, &report);
    (is_capable, paths.get(index).report(None).ecn)
}

#[test]
fn counts_of_marks_that_cannot_be_end_ecn_on_their_path_alone() {
    let mut paths = paths(2);
    for index in 0..2 {
        let (first, _) = send_marked(&mut paths, index, (1, 0));
        assert!(!first, "nothing was heard before");
        let second = send_marked(&mut paths, index, (2, 1));
        assert_eq!(second, (true, EcnState::Capable));
    }
    let more_than_were_sent = send_marked(&mut paths, 0, (3, 9));
    assert_eq!(more_than_were_sent, (true, EcnState::Failed));
    assert_eq!(
        send_marked(&mut paths, 0, (4, 9)),
        (false, EcnState::Failed)
    );
    assert_eq!(
        send_marked(&mut paths, 1, (3, 2)),
        (true, EcnState::Capable)
    );
}

/// Where only what is capable is dropped, a path would seem to be dead for ever.
#[test]
fn dead_path_is_sent_nothing_that_is_capable_and_tested_again_when_it_is_back() {
    let mut paths = paths(1);
    for count in 0..20 {
        send_marked(&mut paths, 0, (1 + count, count));
    }
    paths.get_mut(0).die();
    let back = send_marked(&mut paths, 0, (21, 19));
    assert_eq!(back, (false, EcnState::Testing));
    assert_eq!(
        send_marked(&mut paths, 0, (22, 20)),
        (true, EcnState::Capable)
    );
}

#[test]
fn restarted_peer_that_counts_anew_is_believed_its_marks() {
    for has_discarded in [false, true] {
        let mut paths = paths(1);
        send_marked(&mut paths, 0, (1, 0));
        for count in 1..=50 {
            send_marked(&mut paths, 0, (1 + count, count));
        }
        paths.get_mut(0).restarted(has_discarded);
        for count in 1..=50 {
            let capable = (true, EcnState::Capable);
            assert_eq!(send_marked(&mut paths, 0, (count, count)), capable);
        }
    }
}

proptest! {
    /// Overflow checks are on in tests.
    #[test]
    fn no_report_overflows_and_none_counts_more_than_was_sent(
        reports in vec(
            (extreme_u32(), extreme_u32(), (extreme_u32(), extreme_u32()), any::<u32>(), 0u64..3),
            1..60,
        ),
        discarded in 0usize..8,
        restarted in 0usize..8,
    ) {
        let mut paths = paths(1);
        let mut now = Time::ZERO;
        let (mut sent, mut reported) = (0, 0);
        for (turn, (received, highest, ecn, delay_us, more)) in reports.into_iter().enumerate() {
            if turn == discarded {
                paths.iter_mut().for_each(Path::discarded);
            }
            if turn == restarted {
                paths.iter_mut().for_each(|it| it.restarted(received % 2 == 0));
            }
            for _ in 0..more {
                paths.sending(now, 0, BYTES, NS_PER_BYTE);
                paths.get_mut(0).flies(now, BYTES, Totals { delivered: reported, ..Totals::default() });
                sent = paths.get_mut(0).take_sequence(now) + 1;
                paths.get_mut(0).mark(now, 1);
            }
            now = now + Duration::from_nanos(u64::from(delay_us) << 12);
            let (capable, marked) = ecn;
            let ecn = (marked % 5 > 0).then_some(EcnCounts { capable, marked });
            let report = Report { path: 1, received, highest, delay_us, ecn };
            if let Some(new) = paths.hear(now, &report) {
                prop_assert!(new.received <= new.sent && new.lost <= new.sent);
                prop_assert!(u64::from(new.marked) <= sent);
                reported += u64::from(new.sent);
                paths.account(new.sent, new.received);
            }
            prop_assert!(paths.in_flight() <= sent * BYTES as u64);
            prop_assert!(reported <= sent, "{reported} of {sent}");
            paths.choose(now, BYTES, 1, NS_PER_BYTE, None);
        }
    }
}

/// Any number, and those next to the ends.
fn extreme_u32() -> impl Strategy<Value = u32> {
    prop_oneof![any::<u32>(), 0u32..100, (u32::MAX - 100)..=u32::MAX]
}
