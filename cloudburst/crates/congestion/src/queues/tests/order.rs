//! Two paths beside each other, sample by sample.

use super::*;

fn sample(at_us: u64, delay_us: i32) -> DelaySample {
    DelaySample {
        sent_at: Time::from_nanos(1_000_000_000 + at_us * 1_000),
        delay_us,
    }
}

/// What is known when so many datagrams of a path have followed each other this closely, of which a part has overtaken the one before.
fn own(
    every_us: u64,
    samples: u64,
    is_overtaking: impl Fn(u64) -> bool,
) -> (OwnDelays, Overtaking) {
    let mut all = Overtaking::default();
    let mut own = OwnDelays::new(sample(0, 0));
    for step in 1..=samples {
        let delay_us = if is_overtaking(step) { -50_000 } else { 0 };
        own.note(sample(step * every_us, delay_us), &mut all);
        own.latest.delay_us = 0;
    }
    (own, all)
}

/// Compares samples of two paths, of which the first is this much later and longer, in turns of such a kind.
fn pair(turns: &[(i64, i32)]) -> Evidence {
    let mut evidence = Evidence::default();
    evidence.add(&compared(turns), Some(0.0));
    evidence
}

fn compared(turns: &[(i64, i32)]) -> Pair {
    let (mut one, all) = own(100, 40, |_| false);
    let mut other = one;
    let mut pair = Pair::default();
    for (turn, &(later_us, longer_us)) in turns.iter().enumerate() {
        let at_us = 1_000_000 + 20_000 * turn as u64;
        one.latest = sample(at_us.saturating_add_signed(later_us), longer_us);
        other.latest = sample(at_us, 0);
        pair.compare(&one, &other, &all);
    }
    pair
}

#[test]
fn samples_that_bound_a_constant_from_both_sides_contradict_each_other() {
    // The first came in front and took longer by 3 ms at least, then it came behind and took longer by 1 ms at most.
    let contradicting: Vec<_> = [(-1_000, 4_000), (1_000, 0)].repeat(12);
    assert!(pair(&contradicting).is_apart());
    // 0.5 ms are hosts'.
    let within: Vec<_> = [(-1_000, 4_000), (1_000, 1_600)].repeat(12);
    assert!(!pair(&within).is_apart());
    // It came in front both times: what came behind may have met a burst.
    let one_sided: Vec<_> = [(-1_000, 4_000), (-1_000, 0)].repeat(12);
    assert!(!pair(&one_sided).is_apart());
    let at_once: Vec<_> = [(0, 4_000), (0, 0)].repeat(12);
    assert!(
        !pair(&at_once).is_apart(),
        "nobody knows which was in front"
    );
    let far: Vec<_> = [(-9_000, 40_000), (9_000, 0)].repeat(12);
    assert!(!pair(&far).is_apart());
}

#[test]
fn eight_comparisons_decide_at_the_least() {
    let contradicting: Vec<_> = [(-1_000, 4_000), (1_000, 0)].repeat(12);
    assert!(!pair(&contradicting[..7]).is_apart());
    assert!(pair(&contradicting[..8]).is_apart());
}

/// A host that was late for a moment puts all that it carries then in another order, again and again.
#[test]
fn contradictions_within_a_moment_are_one_event() {
    for (apart_us, is_apart) in [(200, false), (20_000, true)] {
        let (mut one, all) = own(100, 40, |_| false);
        let mut other = one;
        let mut pair = Pair::default();
        let mut turn = |at_us: u64, later_us, longer_us| {
            one.latest = sample(at_us.saturating_add_signed(later_us), longer_us);
            other.latest = sample(at_us, 0);
            pair.compare(&one, &other, &all);
        };
        for quiet in 0..20 {
            turn(1_000_000 + 20_000 * quiet, 1_000, 0);
        }
        for late in 0..24 {
            let (later_us, longer_us) = [(-1_000, 4_000), (1_000, 0)][late as usize % 2];
            turn(1_405_000 + apart_us * late, later_us, longer_us);
        }
        let mut evidence = Evidence::default();
        evidence.add(&pair, Some(0.0));
        assert_eq!(evidence.is_apart(), is_apart, "{apart_us}");
    }
}

/// It contradicts with each of the paths that share a queue, and is one event however many these are.
#[test]
fn late_datagram_is_no_evidence_of_several_pairs() {
    let mut once = vec![(1_000, 0); 8];
    once[4] = (-1_000, 4_000);
    once.push((1_000, 0));
    let (one, members) = (compared(&once), 15);
    let mut evidence = Evidence::default();
    for _ in 0..members {
        evidence.add(&one, Some(0.0));
    }
    assert!(!evidence.is_apart());
    let several = compared(&[(-1_000, 4_000), (1_000, 0)].repeat(6));
    let mut evidence = Evidence::default();
    for _ in 0..members {
        evidence.add(&several, Some(0.0));
    }
    assert!(evidence.is_apart());
    // Pairs that were never compared cannot have contradicted each other for a late datagram.
    for _ in 0..100 {
        evidence.add(&Pair::default(), Some(0.0));
    }
    assert!(evidence.is_apart());
}

#[test]
fn evidence_is_as_recent_as_its_latest_comparison() {
    let (early, late) = (compared(&[(1_000, 0); 8]), compared(&[(1_000, 0); 9]));
    for pairs in [[early, late], [late, early]] {
        let mut evidence = Evidence::default();
        pairs.iter().for_each(|pair| evidence.add(pair, Some(0.0)));
        assert_eq!(evidence.compared_at(), late.compared_at());
    }
    assert!(early.compared_at() < late.compared_at());
}

/// Nothing is compared that is closer than datagrams of one path have been, for closer ones may overtake each other.
#[test]
fn how_often_datagrams_overtake_each_other_is_known_of_as_close_ones() {
    for (every_us, is_known) in [(100, true), (700, true), (800, false), (1_900, false)] {
        let (mut one, all) = own(every_us, 40, |_| false);
        let mut pair = Pair::default();
        let mut other = one;
        (one.latest, other.latest) = (sample(900_600, 0), sample(900_000, 0));
        pair.compare(&one, &other, &all);
        assert_eq!(pair != Pair::default(), is_known, "{every_us}");
        let mut closest = Pair::default();
        one.latest = sample(900_050, 0);
        closest.compare(&one, &other, &all);
        assert_eq!(closest, Pair::default(), "{every_us}");
    }
}

/// Where datagrams of one path overtake each other, those of two do.
#[test]
fn contradictions_that_a_path_accounts_for_tell_nothing() {
    let of = |is_overtaking: fn(u64) -> bool| {
        let (mut one, all) = own(1_000, 60, is_overtaking);
        let mut other = one;
        let mut pair = Pair::default();
        for turn in 0..60_i32 {
            let at_us = 1_000_000 + 20_000 * turn as u64;
            let (later_us, longer_us) = [(-1_000, 4_000), (1_000, 0)][turn as usize / 4 % 2];
            one.latest = sample(at_us.saturating_add_signed(later_us), longer_us);
            other.latest = sample(at_us, 0);
            pair.compare(&one, &other, &all);
        }
        let mut evidence = Evidence::default();
        evidence.add(&pair, Some(0.0));
        evidence.is_apart()
    };
    assert!(of(|_| false));
    assert!(!of(|step| step % 10 == 0));
}

#[test]
fn what_is_mostly_in_common_is_not_apart() {
    let contradicting: Vec<_> = [(-1_000, 4_000), (1_000, 0)].repeat(12);
    let mut evidence = pair(&contradicting);
    assert!(evidence.is_apart());
    let mut other = Evidence::default();
    other.add(&Pair::default(), Some(0.0));
    assert!(!other.is_apart() && !other.is_like() && !other.is_unlike());
    // The variance of the difference is 4 ms².
    evidence.variance = 1.9 * evidence.difference;
    assert!(evidence.is_apart());
    evidence.variance = 2.1 * evidence.difference;
    assert!(!evidence.is_apart());
}

/// What is compared once a second is of the last ten, so that no contradictions of another route go with it.
#[test]
fn comparisons_are_forgotten_in_ten_seconds() {
    let (one, all) = own(100, 40, |_| false);
    let mut other = one;
    let mut pair = Pair::default();
    let mut compare = |at_us, later_us, longer_us| {
        let mut one = one;
        one.latest = sample(u64::saturating_add_signed(at_us, later_us), longer_us);
        other.latest = sample(at_us, 0);
        pair.compare(&one, &other, &all);
        let mut evidence = Evidence::default();
        evidence.add(&pair, Some(0.0));
        evidence
    };
    for turn in 0..200 {
        let (later_us, longer_us) = [(-1_000, 4_000), (1_000, 0)][turn as usize % 2];
        compare(1_000_000 + 20_000 * turn, later_us, longer_us);
    }
    let mut evidence = (0..80).map(|turn| compare(6_000_000 + 1_000_000 * turn, 1_000, 0));
    assert!(evidence.next().is_some_and(|it| it.is_apart()));
    let evidence = evidence.last().unwrap_or_default();
    assert!(!evidence.is_apart() && !evidence.is_unlike());
}

/// Samples that follow each other less closely, or more, than queues change in tell nothing of that.
#[test]
fn paths_of_unknown_variance_are_not_apart() {
    let compared = compared(&[(-1_000, 4_000), (1_000, 0)].repeat(12));
    let mut evidence = Evidence::default();
    evidence.add(&compared, None);
    assert!(!evidence.is_apart() && evidence.is_unlike());
    evidence.add(&compared, Some(0.0));
    assert!(evidence.is_apart());
    // Its difference says nothing beside one whose delays mostly change together.
    evidence.variance = 2.1 * evidence.difference;
    evidence.add(&compared, None);
    assert!(!evidence.is_apart());
    for (every_us, is_known) in [(1_000, true), (50_000, true), (250_000, false)] {
        let (own, _) = own(every_us, 100, |_| false);
        assert_eq!(own.variance().is_some(), is_known, "{every_us}");
    }
    let (few, _) = own(1_000, 10, |_| false);
    assert!(few.variance().is_none());
}

#[test]
fn few_comparisons_of_known_variance_do_not_decide() {
    let contradicting: Vec<_> = [(-1_000, 4_000), (1_000, 0)].repeat(12);
    let mut evidence = Evidence::default();
    evidence.add(&compared(&contradicting), None);
    evidence.add(&compared(&contradicting[..4]), Some(0.0));
    assert!(!evidence.is_apart());
    evidence.add(&compared(&contradicting[..4]), Some(0.0));
    assert!(evidence.is_apart());
}
