//! Cases are scenarios, differ by what their names say, and are judged by whole intervals.

use super::*;

#[test]
fn cases_are_scenarios_with_flows_of_both_sizes() {
    for case in CASES {
        let outcome = case.simulate(1, "").expect(case.name);
        for bytes in SIZES {
            let count = outcome.flows.iter().filter(|it| it.bytes == bytes).count();
            assert!(count > 50, "{}: {count} of {bytes}", case.name);
        }
        if case.pias_bytes > 0 {
            let drops = outcome.totals.dropped > 0;
            assert_eq!(drops, case.memory != Memory::Ample, "{}", case.name);
        }
        let late = outcome.flows.iter().any(|it| it.out_of_order > 0);
        // A flowlet's gap may be shorter than what the other path has queued.
        if case.policy != "letflow" {
            assert_eq!(late, case.policy == "rps", "{}", case.name);
        }
    }
}

#[test]
fn cases_of_the_buffer_differ_by_marks_and_sharing_alone() {
    let cases = named("140 kB").expect("there are four");
    let [shared, shared_unmarked, own, own_unmarked] = cases[..] else {
        panic!("{cases:?}");
    };
    let memory = Memory::Own(140_000);
    for (one, other) in [
        (
            shared_unmarked,
            Case {
                marks: false,
                ..shared
            },
        ),
        (own, Case { memory, ..shared }),
        (
            own_unmarked,
            Case {
                memory,
                marks: false,
                ..shared
            },
        ),
    ] {
        assert_eq!(Case { name: "", ..one }, Case { name: "", ..other });
    }
    let dropped = |case: Case| case.simulate(1, "").expect(case.name).totals.dropped;
    let drops = cases.iter().map(|it| dropped(*it)).collect::<Vec<_>>();
    assert!(
        drops[1] > drops[0] && drops[3] > drops[2],
        "without marks senders hear of nothing but drops: {drops:?}"
    );
    assert!(
        drops[0] != drops[2] && drops[1] != drops[3],
        "what is shared is not what each port has: {drops:?}"
    );
    for (case, expected) in cases.iter().zip([
        ["--shared=140000", "--own=0", "--marks=true"],
        ["--shared=140000", "--own=0", "--marks=false"],
        ["--shared=0", "--own=140000", "--marks=true"],
        ["--shared=0", "--own=140000", "--marks=false"],
    ]) {
        let arguments = case.arguments(1, "");
        let is_there = |it: &&str| arguments.contains(&(*it).to_owned());
        assert!(expected.iter().all(is_there), "{arguments:?}");
    }
}

#[test]
fn cases_are_found_by_a_part_of_their_names() {
    let names = |part| named(part).map(|it| it.iter().map(|it| it.name).collect::<Vec<_>>());
    assert_eq!(names("one spine").expect("it is one"), ["DCTCP, one spine"]);
    assert_eq!(names("").expect("all").len(), CASES.len());
    let error = names("QUIC").unwrap_err().to_string();
    assert!(
        error.contains("\"QUIC\"") && error.contains("no marks"),
        "{error}"
    );
}

#[test]
fn agreement_is_that_of_the_whole_interval() {
    let of = |mean, half| {
        agreement(Estimate {
            mean,
            half_width: half,
            runs: 3,
        })
    };
    assert_eq!(of(-2.0, Some(2.9)), Agreement::Holds);
    assert_eq!(of(2.0, Some(3.1)), Agreement::NotDecided);
    assert_eq!(of(-9.0, Some(3.9)), Agreement::Outside);
    assert_eq!(of(6.0, Some(1.1)), Agreement::NotDecided);
    assert_eq!(of(0.0, None), Agreement::NotDecided);
}

#[test]
fn what_is_mended_reaches_both_simulators() {
    let cases = named("NewReno, sprayed, one path").expect("it is one");
    let [case] = cases[..] else {
        panic!("{cases:?}");
    };
    let times = |mend| {
        let outcome = case.simulate(1, mend).expect(case.name);
        let times = outcome.flows.iter().map(|it| it.fct_ns);
        times.collect::<Vec<_>>()
    };
    assert!(!case.arguments(1, "").iter().any(|it| it.contains("mend")));
    assert_eq!(case.title(""), case.name);
    for (mend, is_simulators_too) in [("flight", false), ("flight,ssthresh", true), ("all", true)] {
        let argument = format!("--mend={mend}");
        assert!(case.arguments(1, mend).contains(&argument), "{mend}");
        assert!(case.title(mend).ends_with(mend));
        let same = (
            case.sender(mend) == case.sender(""),
            times(mend) == times(""),
        );
        assert_eq!(same, (!is_simulators_too, !is_simulators_too), "{mend}");
    }
}

#[test]
fn flows_are_taken_by_size_and_the_slowest_long_one_is_followed() {
    let ours = PLAIN.simulate(1, "").expect(PLAIN.name);
    let of = |bytes: u64| {
        let mut flows = ours.flows.iter();
        flows.position(|it| it.bytes == bytes).expect("there are")
    };
    let (short, long) = (of(SIZES[0]), of(SIZES[1]));
    let mut times_us = vec![10.0; ours.flows.len()];
    (times_us[short], times_us[long]) = (30.0, 20.0);
    let mut timeouts = vec![0.0; times_us.len()];
    (timeouts[short], timeouts[long]) = (9.0, 2.0);
    let count = ours.flows.iter().filter(|it| it.bytes == SIZES[1]).count() as f64;
    let theirs = Theirs {
        times_us,
        timeouts,
        dropped: 0.0,
        seconds: 0.0,
        trace: Vec::new(),
    };
    assert_eq!(slowest(&ours, &theirs), Some(long));

    let means = Means::of(&ours, &theirs, SIZES[1]).expect("there are");
    assert_eq!(means.timeouts, (0.0, 2.0 / count));
    assert_eq!(means.times_us.1, 10.0 + 10.0 / count);
    assert!(means.times_us.0 > 800.0, "a link's time: {means:?}");
    assert_eq!(Means::of(&ours, &theirs, 7), None);
}
