//! Paths whose delays are made up.

use super::{
    comparison::{LIKELY, Moments},
    *,
};
use proptest::{collection::vec, prelude::*};

/// Delay of a queue in µs that grows for a while and is emptied by half then, as TCP's does.
fn queue_us(at_us: u64, period_us: u64) -> i32 {
    (5_000 + at_us % period_us * 10_000 / period_us) as i32
}

/// Noise of up to 0.2 ms, the same in each run.
fn noise_us(step: u64) -> i32 {
    (step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as i32 % 200
}

/// Sends by paths in turn for two seconds, each a millisecond after the one before; `queue` says how long the queue of a
/// path is then. Returns the queues that the paths count as going through at the end.
fn run(paths: u16, queue: impl Fn(u16, u64) -> i32) -> (Queues, Vec<usize>) {
    run_every(1_000, paths, queue)
}

fn run_every(pause_us: u64, paths: u16, queue: impl Fn(u16, u64) -> i32) -> (Queues, Vec<usize>) {
    let mut queues = Queues::default();
    let mut through = vec![0; paths.into()];
    for step in 0..2_000 {
        let path = (step % u64::from(paths)) as u16;
        let at_us = step * pause_us;
        let sent_at = Time::from_nanos(at_us * 1_000);
        let delay_us = 1_000 * i32::from(path) + queue(path, at_us) + noise_us(step);
        let sample = DelaySample { sent_at, delay_us };
        let now = sent_at + Duration::from_millis(10);
        through[usize::from(path)] = queues.sample(now, path + 1, sample, 1_400);
    }
    (queues, through)
}

#[test]
fn paths_through_one_queue_are_never_told_apart() {
    for paths in [2, 8] {
        let (queues, through) = run(paths, |_, at_us| queue_us(at_us, 300_000));
        assert!(through.iter().all(|&queue| queue == 0), "{through:?}");
        assert!((queues.shares().flows() - 1.0).abs() < 1e-9);
    }
}

#[test]
fn paths_through_queues_of_their_own_are_told_apart() {
    let periods_us = [300_000, 410_000, 530_000];
    let of = |path: u16| usize::from(path) % periods_us.len();
    let (queues, through) = run(6, |path, at_us| queue_us(at_us, periods_us[of(path)]));
    for (one, other) in (0..6).flat_map(|one| (0..6).map(move |other| (one, other))) {
        let is_same = through[usize::from(one)] == through[usize::from(other)];
        assert_eq!(is_same, of(one) == of(other), "{one} {other} {through:?}");
    }
    let flows = queues.shares().flows();
    assert!((2.5..=3.0).contains(&flows), "{flows}");
}

/// Of a path that stands for a queue the next sample may come soon after another's, and no other soon after its own.
#[test]
fn paths_are_compared_whichever_sends_first() {
    let mut queues = Queues::default();
    let mut through = [0; 2];
    let mut send = |path: u16, at_us: u64, period_us| {
        let sent_at = Time::from_nanos(at_us * 1_000);
        let delay_us = queue_us(at_us, period_us);
        let sample = DelaySample { sent_at, delay_us };
        through[usize::from(path) - 1] = queues.sample(sent_at, path, sample, 1_400);
    };
    send(1, 0, 3_000_000);
    for step in 1..500 {
        send(2, step * 20_000, 4_100_000);
        send(1, step * 20_000 + 2_000, 3_000_000);
    }
    assert_ne!(through[0], through[1]);
}

#[test]
fn queue_that_changes_faster_than_samples_follow_tells_nothing() {
    let (_, through) = run(2, |_, at_us| queue_us(at_us, 7_000));
    assert_eq!(through, [0, 0]);
}

#[test]
fn few_queues_are_told_apart_of_many() {
    let (queues, through) = run(8, |path, at_us| {
        queue_us(at_us, 200_000 + 70_000 * u64::from(path))
    });
    assert!(
        through.iter().all(|&queue| queue < MAX_QUEUES),
        "{through:?}"
    );
    assert!(queues.shares().flows() <= MAX_QUEUES as f64);
}

#[test]
fn path_that_is_silent_for_long_stands_for_no_queue() {
    let periods_us = [300_000, 410_000];
    let (mut queues, through) = run(2, |path, at_us| {
        queue_us(at_us, periods_us[usize::from(path)])
    });
    assert_eq!(through, [0, 1]);
    let later = Time::from_nanos(2_000_000_000) + BELIEVED_FOR + BELIEVED_FOR;
    let sample = DelaySample {
        sent_at: later,
        delay_us: 0,
    };
    assert_eq!(queues.sample(later, 2, sample, 1_400), 0);
    assert_eq!(queues.leaders, [Some(2), None, None, None]);
    assert!((queues.shares().of([0].into_iter()) - 1.0).abs() < 1e-9);
}

/// A path whose own samples are too far apart to tell of changes is judged by those of all.
#[test]
fn path_that_is_seldom_sent_by_is_told_apart() {
    let mut queues = Queues::default();
    let mut send = |path: u16, at_us: u64, period_us| {
        let sent_at = Time::from_nanos(at_us * 1_000);
        let delay_us = queue_us(at_us, period_us);
        queues.sample(sent_at, path, DelaySample { sent_at, delay_us }, 1_400)
    };
    let mut through = 0;
    for step in 0..1_000 {
        send(1, step * 10_000, 3_000_000);
        if step % 7 == 3 {
            through = send(2, step * 10_000 + 2_000, 4_100_000);
        }
    }
    assert_eq!(through, 1);
}

#[test]
fn path_counts_as_through_the_first_queue_that_it_is_not_known_to_miss() {
    let now = Time::from_nanos(1_000_000_000);
    let sample = DelaySample {
        sent_at: now,
        delay_us: 0,
    };
    let mut queues = Queues::default();
    for path in 1..=3 {
        queues.note(now, path, sample);
    }
    queues.leaders = [Some(1), Some(2), None, None];
    assert_eq!(queues.place(now, 2), 0);
    let comparison = &mut queues.paths[2].comparisons[0];
    (comparison.with, comparison.apart_until) = (1, now + BELIEVED_FOR);
    assert_eq!(queues.place(now, 2), 1);
    let [first, second, ..] = &mut queues.paths[2].comparisons;
    first.apart_until = Time::ZERO;
    (first.count, first.far) = (LIKELY, 0.7);
    (second.with, second.count, second.far) = (2, LIKELY, 0.1);
    assert_eq!(queues.place(now, 2), 1, "what is likely");
    queues.paths[2].comparisons[1].far = 0.3;
    assert_eq!(queues.place(now, 2), 0);
    queues.paths[2].comparisons[1].far = 0.1;
    queues.paths[2].comparisons[0].far = 0.4;
    assert_eq!(queues.place(now, 2), 0);
    queues.paths[2].comparisons[0].with = 9;
    assert_eq!(queues.place(now, 2), 0, "the leader is another");
}

/// A leader that is found to share an earlier one's queue takes its part of what is sent along.
#[test]
fn shares_of_queues_that_are_one_are_joined() {
    let now = Time::from_nanos(1_000_000_000);
    let sample = DelaySample {
        sent_at: now,
        delay_us: 0,
    };
    let mut queues = Queues::default();
    for path in 1..=2 {
        queues.note(now, path, sample);
    }
    queues.leaders = [Some(1), Some(2), None, None];
    queues.shares.count(1, 1_000);
    assert_eq!(queues.place(now, 1), 0);
    assert_eq!(queues.leaders, [Some(1), None, None, None]);
    assert!((queues.shares().of([0].into_iter()) - 1.0).abs() < 1e-9);
}

#[test]
fn answers_of_which_nobody_knows_when_they_were_sent_tell_of_no_delay() {
    let mut queues = Queues::default();
    let totals = crate::Totals::default();
    let mut resolved = Resolved {
        bytes: 1_400,
        newest: Some((Time::from_nanos(1), totals)),
        is_newest_known: false,
    };
    assert_eq!(queues.hear(Time::from_nanos(9), 1, 5, &resolved), 0);
    assert!(queues.paths.is_empty());
    resolved.is_newest_known = true;
    queues.hear(Time::from_nanos(9), 1, 5, &resolved);
    assert_eq!(queues.paths.len(), 1);
}

#[test]
fn changes_count_from_two_milliseconds_on() {
    let sample = |at_us: u64, delay_us| DelaySample {
        sent_at: Time::from_nanos(at_us * 1_000),
        delay_us,
    };
    let mut change = Change::since(sample(0, 0));
    assert_eq!(change.note(sample(1_999, 700)), None);
    assert_eq!(change.note(sample(2_000, 1_000)), Some(500.0));
    assert!((change.gap_us - 2_000.0).abs() < 1e-3, "{}", change.gap_us);
    assert_eq!(change.note(sample(62_001, 0)), None, "too long ago");
    assert_eq!(change.note(sample(66_001, 1_000)), Some(250.0));
}

#[test]
fn eight_comparisons_decide_and_ten_milliseconds_lie_between_two() {
    let mut comparison = Comparison::default();
    let sample = |delay_us| DelaySample {
        sent_at: Time::ZERO,
        delay_us,
    };
    let mut add = |at_us: u64, delay_us| {
        let now = Time::from_nanos(1_000_000_000 + at_us * 1_000);
        comparison.add(now, 1, (sample(delay_us), sample(0)), (1.0, 0.0));
        (comparison.count, now < comparison.apart_until)
    };
    assert_eq!(add(0, 0), (1, false));
    assert_eq!(add(9_999, 50_000), (1, false), "too soon");
    for count in 2..8 {
        let delay_us = if count % 2 == 0 { 50_000 } else { -50_000 };
        assert_eq!(add(u64::from(count) * 10_000, delay_us), (count, false));
    }
    assert_eq!(add(80_000, 50_000), (8, true));
}

/// Noise of so many µs at most, of each datagram by itself.
fn jitter_us(step: u64, most_us: i32) -> i32 {
    let mixed = step
        .wrapping_add(0x51_7c_c1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33) as i32 % most_us
}

/// Radios delay each datagram by itself, and what does so differs as much after the shortest time.
#[test]
fn jitter_of_datagrams_is_no_queue_of_a_path() {
    let jitter = |path: u16, at_us, most_us| jitter_us(at_us + u64::from(path), most_us);
    for paths in [2, 16] {
        let beside = run(paths, |path, at_us| {
            queue_us(at_us, 300_000) + jitter(path, at_us, 5_000)
        });
        let alone = run_every(2_900, paths, |path, at_us| jitter(path, at_us, 8_000));
        for (queues, _) in [beside, alone] {
            let shares = queues.shares();
            assert!(shares.flows() < 1.01, "{paths} {shares:?}");
        }
    }
}

#[test]
fn delays_differ_on_both_sides_of_their_mean() {
    let of = |variance| Moments {
        mean: 0.0,
        variance,
    };
    let mut comparison = Comparison {
        count: 100,
        far: 0.8,
        above: 0.4,
        difference: of(2.0),
        delays: [of(1.0); 2],
        ..Comparison::default()
    };
    assert!(comparison.differs(0.01));
    for above in [0.05, 0.75] {
        let one_sided = Comparison {
            above,
            ..comparison
        };
        assert!(!one_sided.differs(0.01), "{above}");
    }
    comparison.difference = of(1.4);
    assert!(!comparison.differs(0.01), "they have something in common");
}

#[test]
fn path_that_has_become_longer_has_no_queue_of_its_own_for_that() {
    let (queues, _) = run(4, |path, at_us| {
        let longer = if path == 3 && at_us > 500_000 {
            5_000
        } else {
            0
        };
        queue_us(at_us, 300_000) + longer
    });
    assert!(queues.shares().flows() < 1.01, "{:?}", queues.shares());
}

/// A client's links have queues of their own, and what carries least is the server's.
#[test]
fn queues_in_front_of_one_that_is_shared_are_no_bottlenecks() {
    let (queues, _) = run(4, |path, at_us| {
        let own = queue_us(at_us, 110_000 + 40_000 * u64::from(path)) * 8 / 10;
        own + 5 * queue_us(at_us, 900_000)
    });
    assert!(queues.shares().flows() < 1.01, "{:?}", queues.shares());
}

#[test]
fn shares_are_of_the_latest_bytes() {
    let mut shares = QueueShares::default();
    assert!(
        (shares.of([1].into_iter()) - 1.0).abs() < 1e-9,
        "nothing is known"
    );
    for _ in 0..2_000 {
        shares.count(0, 1_400);
        shares.count(2, 1_400);
    }
    assert!((shares.flows() - 2.0).abs() < 1e-2, "{}", shares.flows());
    assert!((shares.of([2].into_iter()) - 0.5).abs() < 1e-2);
    for _ in 0..2_000 {
        shares.count(1, 1_400);
    }
    assert!(shares.flows() < 1.1, "{}", shares.flows());
}

#[test]
fn sets_of_queues_are_never_empty() {
    let mut set = QueueSet::default();
    assert!(set.iter().eq([0]));
    set.insert(2);
    assert!(set.iter().eq([2]));
    set.insert(0);
    assert!(set.iter().eq([0, 2]));
}

proptest! {
    /// Peers report delays, and lie.
    #[test]
    fn no_delay_that_a_peer_reports_overflows(
        samples in vec((1u16..80, any::<u64>(), any::<i32>(), any::<u64>()), 1..300),
    ) {
        let mut queues = Queues::default();
        for (path, at, delay_us, bytes) in samples {
            let at = Time::from_nanos(at);
            let sample = DelaySample { sent_at: at, delay_us };
            let queue = queues.sample(at, path, sample, bytes);
            prop_assert!(queue < MAX_QUEUES);
            prop_assert!(queues.paths.len() <= MAX_PATHS);
            let flows = queues.shares().flows();
            prop_assert!((1.0..=MAX_QUEUES as f64).contains(&flows));
        }
    }
}

/// What the crate of the state machine states of a path that is sent by beside others.
#[test]
fn memory_is_as_documented() {
    let bytes = size_of::<PathDelays>();
    assert!((250..=350).contains(&bytes), "{bytes} bytes for a path");
}
