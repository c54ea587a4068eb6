//! Paths of which little is known, or was known long ago.

use super::*;

/// Times between two datagrams of a turn, which is less than any of these overtakes another by.
const GAP_US: u64 = 300;

/// Reports on two datagrams of each path in this order, of which all of a path take so long.
fn turn(rig: &mut Rig, delays_us: &[(usize, u64)]) {
    let started_us = rig.now_us;
    for &(path, delay_us) in delays_us {
        for _ in 0..2 {
            rig.report(path, delay_us);
            rig.now_us += GAP_US;
        }
    }
    rig.now_us = started_us;
}

/// Two paths contradict each other in turns that are so far apart.
fn contradicting(every_us: u64) -> Rig {
    let mut rig = Rig::new(0, 2, 1);
    for _ in 0..40 {
        turn(&mut rig, &[(0, 4_000), (1, 0)]);
        rig.now_us += every_us;
        turn(&mut rig, &[(1, 4_000), (0, 0)]);
        rig.now_us += every_us;
    }
    rig
}

/// Nobody knows how much is in common of samples that are further apart than queues change in.
#[test]
fn paths_of_sparse_samples_are_not_told_apart() {
    assert_eq!(contradicting(100_000).through, [0, 1]);
    assert_eq!(contradicting(300_000).through, [0, 0]);
}

/// A third path contradicted the first two, and goes on beside the second one alone, in order.
#[test]
fn pair_that_was_compared_long_ago_is_no_evidence_beside_one_that_goes_on() {
    let mut rig = Rig::new(0, 3, 1);
    for _ in 0..40 {
        turn(&mut rig, &[(0, 4_000), (1, 4_000), (2, 0)]);
        rig.now_us += 50_000;
        turn(&mut rig, &[(2, 4_000), (0, 0), (1, 0)]);
        rig.now_us += 50_000;
    }
    assert_eq!(rig.through, [0, 0, 1]);
    // Up to ten seconds the old comparisons count, and as long after that is believed what they showed.
    let until_us = rig.now_us + 2 * BELIEVED_FOR.as_micros() as u64 + 1_000_000;
    while rig.now_us < until_us {
        turn(&mut rig, &[(0, 0)]);
        rig.now_us += 50_000;
        turn(&mut rig, &[(1, 0), (2, 0)]);
        rig.now_us += 50_000;
    }
    assert_eq!(rig.through, [0, 0, 0]);
}

/// Paths that are gone are not kept until there are too many.
#[test]
fn new_path_takes_the_place_of_one_that_is_gone() {
    let (mut queues, now) = known(3);
    let later = now + LEADS_FOR + Duration::from_secs(1);
    let sample = DelaySample {
        sent_at: later,
        delay_us: 0,
    };
    queues.note(later, 2, sample);
    assert_eq!(queues.note(later, 9, sample), 0);
    assert_eq!(queues.paths.len(), 3);
    assert_eq!(queues.note(later, 10, sample), 2);
    assert_eq!(queues.note(later, 11, sample), 3, "none is gone any more");
}
