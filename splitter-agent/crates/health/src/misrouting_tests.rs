use super::*;

const PACKET: u64 = 1_000;

/// A tunnel of a site, by what it is for, and what left by it: packets by mark and family.
fn tunnel(device: &str, carries: [bool; 2], left: &[(Marked, bool, u64)]) -> TunnelInterval {
    let mut counts = EgressCounts::ZERO;
    for (marked, is_v6, packets) in left {
        counts.count(*marked, *is_v6, *packets, packets * PACKET);
    }
    TunnelInterval {
        device: device.to_owned(),
        site: 0,
        carries,
        left: counts,
    }
}

fn short(left: &[(Marked, bool, u64)]) -> TunnelInterval {
    tunnel("short0", [true, false], left)
}

fn long(left: &[(Marked, bool, u64)]) -> TunnelInterval {
    tunnel("long0", [false, true], left)
}

fn stray(is_v6: bool, is_unmarked: bool) -> Stray {
    Stray {
        device: "short0".to_owned(),
        role: TunnelRole::Long,
        is_v6,
        is_unmarked,
    }
}

/// What is found in so many such intervals, of which each marks so many packets for the classes.
fn run(
    judge: &mut MisroutingJudge,
    count: u32,
    marked: [u64; 2],
    tunnels: &[TunnelInterval],
) -> Vec<Finding> {
    let bytes = marked.map(|packets| packets * PACKET);
    (0..count)
        .flat_map(|_| judge.observe(bytes, tunnels))
        .collect()
}

#[test]
fn part_that_strays_with_its_mark_is_found_beside_any_other_traffic() {
    let mut judge = MisroutingJudge::default();
    let left = [
        short(&[(Marked::Long, false, 50), (Marked::Short, false, 100_000)]),
        long(&[(Marked::Long, false, 100_000), (Marked::Other, true, 9_000)]),
    ];
    let marked = [100_000, 100_050];
    assert_eq!(run(&mut judge, 4, marked, &left), []);
    let found = Finding::Misrouted(stray(false, false), 250);
    assert_eq!(run(&mut judge, 10, marked, &left), [found]);
    // It is well again after as many, and not before.
    let left = [short(&[]), long(&[(Marked::Long, false, 100)])];
    assert_eq!(run(&mut judge, 4, marked, &left), []);
    let ended = Finding::Ended(stray(false, false));
    assert_eq!(run(&mut judge, 10, marked, &left), [ended]);
}

#[test]
fn marks_that_are_lost_in_one_family_are_found_in_that() {
    let mut judge = MisroutingJudge::default();
    let left = [
        short(&[(Marked::Unmarked, true, 60), (Marked::Short, true, 500)]),
        long(&[(Marked::Long, false, 10_000)]),
    ];
    let found = Finding::Misrouted(stray(true, true), 300);
    assert_eq!(run(&mut judge, 10, [500, 10_060], &left), [found]);
}

#[test]
fn packets_without_a_mark_are_no_misrouting_while_all_that_was_marked_leaves() {
    let mut judge = MisroutingJudge::default();
    // Of the site and of a protocol that is split, and yet not from an interface of ours.
    let left = [
        short(&[(Marked::Unmarked, false, 5_000)]),
        long(&[(Marked::Long, false, 10_000)]),
    ];
    assert_eq!(run(&mut judge, 100, [0, 10_000], &left), []);
}

#[test]
fn what_is_dropped_or_goes_elsewhere_is_no_misrouting() {
    let mut judge = MisroutingJudge::default();
    let left = [
        short(&[(Marked::Short, false, 100), (Marked::Other, false, 90_000)]),
        long(&[(Marked::Long, false, 100), (Marked::Other, true, 90_000)]),
    ];
    assert_eq!(run(&mut judge, 100, [100_000, 100_000], &left), []);
}

#[test]
fn marks_that_are_taken_away_behind_the_routes_are_no_misrouting() {
    let mut judge = MisroutingJudge::default();
    let left = [
        short(&[(Marked::Unmarked, false, 1_000)]),
        long(&[(Marked::Unmarked, false, 8_000)]),
    ];
    assert_eq!(run(&mut judge, 100, [1_000, 8_000], &left), []);
}

#[test]
fn class_that_is_away_from_home_strays_by_no_tunnel_that_it_is_in() {
    let mut judge = MisroutingJudge::default();
    let left = [
        tunnel(
            "short0",
            [true, true],
            &[(Marked::Long, false, 900), (Marked::Short, false, 900)],
        ),
        tunnel("long0", [false, false], &[]),
        // Another site's are at home, and a part of its long class strays.
        TunnelInterval {
            site: 1,
            ..tunnel("short1", [true, false], &[(Marked::Long, true, 70)])
        },
        TunnelInterval {
            site: 1,
            ..tunnel("long1", [false, true], &[(Marked::Long, false, 70)])
        },
    ];
    let found = Stray {
        device: "short1".to_owned(),
        ..stray(true, false)
    };
    let findings = run(&mut judge, 10, [900, 1_040], &left);
    assert_eq!(findings, [Finding::Misrouted(found, 350)]);
}

#[test]
fn class_that_follows_the_main_table_strays_nowhere() {
    let mut judge = MisroutingJudge::default();
    let left = [
        tunnel("short0", [false, false], &[(Marked::Long, false, 900)]),
        tunnel("long0", [false, false], &[(Marked::Short, false, 900)]),
    ];
    assert_eq!(run(&mut judge, 100, [900, 900], &left), []);
}

#[test]
fn little_traffic_decides_nothing_and_in_the_end_forgets() {
    let mut judge = MisroutingJudge::default();
    let few = [short(&[(Marked::Long, false, 39)]), long(&[])];
    assert_eq!(run(&mut judge, 1_000, [0, 39], &few), []);
    let wrong = [short(&[(Marked::Long, false, 40)]), long(&[])];
    assert_eq!(run(&mut judge, 5, [0, 40], &wrong).len(), 1);
    let silent = [short(&[]), long(&[])];
    assert_eq!(run(&mut judge, 59, [0, 0], &silent), []);
    let ended = Finding::Ended(stray(false, false));
    assert_eq!(run(&mut judge, 1, [0, 0], &silent), [ended]);
    assert_eq!(run(&mut judge, 1_000, [0, 0], &silent), []);
    assert!(judge.detectors.is_empty());
}

#[test]
fn one_interval_that_is_well_begins_the_count_again() {
    let mut judge = MisroutingJudge::default();
    let wrong = [short(&[(Marked::Long, false, 90)]), long(&[])];
    let right = [short(&[]), long(&[(Marked::Long, false, 90)])];
    for _ in 0..10 {
        assert_eq!(run(&mut judge, 4, [0, 90], &wrong), []);
        assert_eq!(run(&mut judge, 1, [0, 90], &right), []);
    }
}

#[test]
fn tunnel_that_is_there_no_more_says_nothing_and_is_forgotten() {
    let mut judge = MisroutingJudge::default();
    let wrong = [short(&[(Marked::Long, false, 90)]), long(&[])];
    assert_eq!(run(&mut judge, 5, [0, 90], &wrong).len(), 1);
    let rest = [long(&[(Marked::Long, false, 90)])];
    let findings = run(&mut judge, 60, [0, 90], &rest);
    assert_eq!(findings, [Finding::Ended(stray(false, false))]);
}
