//! Paths whose delays are made up.

mod age;
mod order;
mod rig;

use self::rig::{Fifo, Random, Rig, constant_and_noise_us};
use super::*;
use proptest::{collection::vec, prelude::*};

proptest! {
    /// Paths that share a queue count as one flow, however they are sent by and whatever else is in it: datagrams arrive in order.
    #[test]
    fn paths_through_one_queue_are_never_told_apart(
        seed: u64,
        transfers in 0usize..4,
        constants in vec(0u64..50_000, 1..20),
        sent in vec((0u64..4_000, 0usize..20), 100..1_500),
    ) {
        let mut rig = Rig::new(seed, constants.len(), 1);
        rig.fifos = vec![Fifo::new(&mut rig.random, transfers)];
        for (pause_us, path) in sent {
            rig.now_us += pause_us;
            let path = path % constants.len();
            rig.send(path, |random, path| constants[path] + random.below(100));
            prop_assert!(rig.queues.shares().flows() < 1.0 + 1e-9);
        }
    }
}

/// At some 1,000 samples a second; half of all times, and nine of ten.
#[test]
fn four_queues_are_told_apart_within_a_second() {
    let found_ms = (0..40).map(|seed| {
        let mut rig = Rig::new(seed, 16, 4);
        let is_found = |_: &u64| {
            rig.messages(50_000, constant_and_noise_us);
            rig.queues.shares().flows() > 3.0
        };
        50 * (1..=60).find(is_found).unwrap_or(1_000)
    });
    let mut found_ms: Vec<u64> = found_ms.collect();
    found_ms.sort_unstable();
    assert!(
        found_ms[20] <= 500 && found_ms[36] <= 650,
        "{found_ms:?} ms"
    );
}

#[test]
fn paths_are_where_they_belong_when_queues_are_told_apart() {
    let right = (0..40).filter(|&seed| {
        let mut rig = Rig::new(100 + seed, 16, 4);
        rig.messages(4_000_000, constant_and_noise_us);
        rig.is_right()
    });
    let right = right.count();
    assert!(right >= 38, "{right} of 40");
}

/// None of forty senders through one queue takes more than a flow's share, with the traffic of the test above, for as long.
#[test]
fn messages_through_one_queue_are_one_flow() {
    for seed in 0..40 {
        let mut rig = Rig::new(200 + seed, 16, 1);
        rig.messages(4_000_000, constant_and_noise_us);
        let flows = rig.queues.shares().flows();
        assert!(flows < 1.0 + 1e-9, "{seed}: {flows}");
    }
}

/// Radios delay each datagram by itself, links of a bundle take them in turn: nothing arrives in order, on no path.
#[test]
fn jitter_of_datagrams_is_no_queue_of_a_path() {
    let laws: [fn(&mut Random, usize) -> u64; 6] = [
        |random, _| random.below(600),
        |random, _| random.below(1_500),
        |random, _| random.below(5_000),
        // Mostly nothing, and sometimes much.
        |random, _| if random.below(20) == 0 { 4_000 } else { 0 },
        // Slots of a radio, or packets by turns over two links.
        |random, _| 6_000 * random.below(2),
        // Half of all paths.
        |random, path| {
            if path % 2 == 0 {
                random.below(5_000)
            } else {
                0
            }
        },
    ];
    for paths in [2, 4, 16] {
        for (number, law) in laws.iter().enumerate() {
            for transfers in [0, 2] {
                let split = (0..20).filter(|&seed| {
                    let mut rig = Rig::new(300 + seed, paths, 1);
                    rig.fifos[0].transfers.truncate(transfers);
                    rig.messages(3_000_000, law);
                    rig.queues.shares().flows() > 1.01
                });
                let split = split.count();
                assert_eq!(
                    split, 0,
                    "{paths} paths, law {number}, {transfers} transfers"
                );
            }
        }
    }
}

/// Packets go by turns over two links of which one is this much longer, and leave with gaps as short as that: those of one path
/// follow each other less closely than those of two.
#[test]
fn links_of_a_bundle_are_no_queues_of_paths() {
    for longer_us in [300, 800, 3_000] {
        for (gap_us, jitter_us) in [(20, 1), (50, 100), (150, 1), (100, 200), (400, 1)] {
            for paths in [2, 4, 16] {
                let split = (0..10).filter(|&seed| {
                    let mut rig = Rig::new(600 + seed, paths, 1);
                    rig.fifos[0].transfers.clear();
                    for datagram in 0..4_000 {
                        let link = rig.random.below(2);
                        rig.report(datagram % paths, 1_000 + link * longer_us);
                        rig.now_us += gap_us + rig.random.below(jitter_us);
                    }
                    rig.queues.shares().flows() > 1.01
                });
                let split = split.count();
                let gaps = (gap_us, jitter_us);
                assert_eq!(split, 0, "{paths} paths, {longer_us} µs, {gaps:?}");
            }
        }
    }
}

/// A route that becomes longer, and shorter, is found to have another constant each time, and no queue of its own.
#[test]
fn path_whose_length_changes_has_no_queue_of_its_own_for_that() {
    for seed in 0..20 {
        let mut rig = Rig::new(400 + seed, 4, 1);
        for step in 0..6_u64 {
            let longer_us = 5_000 * (step % 2);
            rig.messages(1_000_000, |random, path| {
                random.below(100) + if path == 3 { longer_us } else { 0 }
            });
        }
        let flows = rig.queues.shares().flows();
        assert!(flows < 1.0 + 1e-9, "{seed}: {flows}");
    }
}

/// A client's links have queues of their own, and what carries least is the server's.
#[test]
fn queues_in_front_of_one_that_is_shared_are_no_bottlenecks() {
    for seed in 0..10 {
        let mut rig = Rig::new(500 + seed, 4, 1);
        let mut own: Vec<_> = (0..4).map(|_| Fifo::new(&mut rig.random, 1)).collect();
        while rig.now_us < 5_000_000 {
            rig.now_us += 200 + rig.random.below(1_500);
            let path = rig.random.below(4) as usize;
            // A tenth as slow, and so long are its queues.
            let Some(own_us) = own[path].delay_us(rig.now_us) else {
                continue;
            };
            let own_us = own_us / 8;
            let shared_us = rig.fifos[0].delay_us(rig.now_us + own_us);
            if let Some(shared_us) = shared_us {
                rig.report(path, own_us + shared_us);
            }
        }
        let flows = rig.queues.shares().flows();
        assert!(flows < 1.01, "{seed}: {flows}");
    }
}

#[test]
fn few_queues_are_told_apart_of_many() {
    let mut rig = Rig::new(1, 20, 8);
    rig.messages(4_000_000, constant_and_noise_us);
    assert!(rig.through.iter().all(|&queue| queue < MAX_QUEUES));
    let flows = rig.queues.shares().flows();
    assert!((2.0..=MAX_QUEUES as f64).contains(&flows), "{flows}");
}

#[test]
fn path_that_is_silent_for_long_stands_for_no_queue() {
    let mut rig = Rig::new(2, 2, 2);
    rig.messages(4_000_000, constant_and_noise_us);
    assert_ne!(rig.through[0], rig.through[1]);
    rig.now_us += 2 * LEADS_FOR.as_micros() as u64;
    rig.report(1, 0);
    assert_eq!(rig.queues.leaders, [Some(2), None, None, None]);
    assert!((rig.queues.shares().of([0].into_iter()) - 1.0).abs() < 1e-9);
}

/// A route moves to where samples are sparse, or a client wakes on another network: no two are sent close enough to be compared,
/// and nothing shows any more that there were two queues.
#[test]
fn queues_are_one_again_soon_after_paths_were_compared_last() {
    let mut rig = Rig::new(4, 4, 2);
    rig.messages(4_000_000, constant_and_noise_us);
    let flows = rig.queues.shares().flows();
    assert!(flows > 1.5, "{flows}");
    let until_us = rig.now_us + BELIEVED_FOR.as_micros() as u64;
    for path in (0..4).cycle() {
        rig.now_us += 50_000;
        if rig.now_us > until_us + 1_000_000 {
            break;
        }
        rig.report(path, 1_000);
    }
    let flows = rig.queues.shares().flows();
    assert!(flows < 1.0 + 1e-9, "{flows}");
    assert_eq!(rig.through, [0; 4]);
}

/// Paths that are gone keep their places for a while, as after a NAT was restarted or all ports were rotated.
#[test]
fn queues_of_paths_that_replace_all_others_are_told_apart() {
    let mut rig = Rig::new(5, 16, 2);
    rig.messages(1_000_000, constant_and_noise_us);
    for path in &mut rig.queues.paths {
        path.path += 100;
    }
    rig.queues.leaders = rig.queues.leaders.map(|it| it.map(|path| path + 100));
    rig.messages(1_000_000, constant_and_noise_us);
    assert_eq!(rig.queues.paths.len(), 32);
    rig.now_us += LEADS_FOR.as_micros() as u64;
    rig.messages(4_000_000, constant_and_noise_us);
    assert_eq!(rig.queues.paths.len(), 16);
    let flows = rig.queues.shares().flows();
    assert!(flows > 1.9, "{flows}");
}

/// Samples of no delay, of so many paths.
fn known(paths: u16) -> (Queues, Time) {
    let now = Time::from_nanos(1_000_000_000);
    let sample = DelaySample {
        sent_at: now,
        delay_us: 0,
    };
    let mut queues = Queues::default();
    for path in 1..=paths {
        queues.note(now, path, sample);
    }
    (queues, now)
}

#[test]
fn path_counts_as_through_the_first_queue_that_it_is_not_known_to_miss() {
    let (mut queues, now) = known(3);
    queues.leaders = [Some(1), Some(2), None, None];
    assert_eq!(queues.place(now, 2), 0);
    queues.paths[2].apart[0] = (1, now + BELIEVED_FOR);
    assert_eq!(queues.place(now, 2), 1);
    queues.paths[2].apart[0] = (9, now + BELIEVED_FOR);
    assert_eq!(queues.place(now, 2), 0, "another stood for it");
    queues.paths[2].apart[0] = (1, now);
    assert_eq!(queues.place(now, 2), 0, "it was long ago");
}

/// A leader that is found to share an earlier one's queue takes its part of what is sent along.
#[test]
fn shares_of_queues_that_are_one_are_joined() {
    let (mut queues, now) = known(2);
    queues.leaders = [Some(1), Some(2), None, None];
    queues.shares.count(1, 1_000);
    assert_eq!(queues.place(now, 1), 0);
    assert_eq!(queues.leaders, [Some(1), None, None, None]);
    assert!((queues.shares().of([0].into_iter()) - 1.0).abs() < 1e-9);
}

/// A path that replaces another inherits nothing of what was known of that one.
#[test]
fn path_that_replaces_another_is_compared_anew() {
    let mut rig = Rig::new(3, 2, 2);
    rig.messages(4_000_000, constant_and_noise_us);
    assert_ne!(rig.queues.paths[1].pairs[0], Pair::default());
    let [first, second] = [0, 1].map(|index| rig.queues.paths[index].path);
    let later = Time::from_nanos(2 * rig.now_us * 1_000);
    let sample = DelaySample {
        sent_at: later,
        delay_us: 0,
    };
    for path in 3..=MAX_PATHS as u16 {
        rig.queues.note(later, path, sample);
    }
    rig.queues.note(later, second, sample);
    rig.queues.note(later, 99, sample);
    assert_eq!(rig.queues.paths[0].path, 99, "in place of {first}");
    assert_eq!(rig.queues.paths[1].pairs[0], Pair::default());
}

#[test]
fn answers_of_which_nobody_knows_when_they_were_sent_tell_of_no_delay() {
    let mut queues = Queues::default();
    let totals = crate::Totals::default();
    let mut resolved = Resolved {
        bytes: 1_400,
        oldest_at: None,
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

/// Mostly datagrams are sent close enough to be compared, and sometimes clocks jump, also back.
fn step() -> impl Strategy<Value = u64> {
    prop_oneof![30 => 0_u64..3_000_000, 1 => any::<u64>()]
}

proptest! {
    /// Peers report delays, and lie.
    #[test]
    fn no_delay_that_a_peer_reports_overflows(
        samples in vec((1u16..80, step(), any::<i32>(), any::<u64>()), 1..300),
    ) {
        let mut queues = Queues::default();
        let mut nanos = 0_u64;
        for (path, step, delay_us, bytes) in samples {
            nanos = nanos.wrapping_add(step);
            let at = Time::from_nanos(nanos);
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
    assert!((1_000..=1_100).contains(&bytes), "{bytes} bytes for a path");
}
