use super::*;
use crate::tr::band::Band;

fn above_one() -> Band {
    Band::more(1.0, f64::INFINITY)
}

fn check(what: &str, values: &[f64]) -> Check {
    above_one().check(what, "higher", Estimate::of(values.iter().copied()))
}

#[test]
fn holm_rejects_in_rising_order_until_one_is_too_large() {
    // By hand: 0.05 by 4, 3, 2 and 1 are 0.0125, 0.0167, 0.025 and 0.05.
    assert_eq!(
        holm(&[0.013, 0.04, 0.012, 0.02]),
        [true, true, true, true],
        "each is less than its part"
    );
    assert_eq!(
        holm(&[0.013, 0.04, 0.012, 0.03]),
        [true, false, true, false]
    );
    // One that is too large ends it, however small those after it would be by themselves.
    assert_eq!(holm(&[0.02, 0.021, 0.022]), [false; 3]);
    assert_eq!(holm(&[0.05]), [true]);
    assert_eq!(holm(&[0.051]), [false]);
    assert!(holm(&[]).is_empty());
}

#[test]
fn contrary_among_many_comparisons_is_refuted_if_it_is_none_by_chance() {
    // t = 5.8 with two degrees of freedom: a p-value of 0.029.
    let contrary = || check("contrary", &[0.9, 0.87, 0.93]);
    let p = contrary().comparisons[0].p_contrary;
    assert!((0.02..0.05).contains(&p), "{p}");
    assert!(contrary().refuted, "by itself");
    let mut checks = vec![contrary(), check("holds", &[1.2, 1.21, 1.19])];
    correct(&mut checks);
    assert!(!checks[0].refuted && checks[0].undecided);
    assert_eq!(
        checks[0].verdict(),
        "not decided: 0.100 too little, which may be by chance among 2 comparisons"
    );
    assert!(checks[1].holds);
    let clear = check("clear", &[0.9, 0.9001, 0.8999]);
    let mut checks = vec![clear, check("holds", &[1.2, 1.21, 1.19])];
    correct(&mut checks);
    assert!(checks[0].refuted && checks[1].holds);
}

#[test]
fn corrected_checks_are_the_same_when_corrected_again() {
    let mut checks = vec![
        check("a", &[0.9, 0.87, 0.93]),
        check("b", &[1.2, 1.21, 1.19]),
        check("c", &[0.5, 0.51, 0.49]),
    ];
    correct(&mut checks);
    let verdicts = |checks: &[Check]| checks.iter().map(Check::verdict).collect::<Vec<_>>();
    let first = verdicts(&checks);
    correct(&mut checks);
    assert_eq!(verdicts(&checks), first);
    assert!(checks[2].refuted);
}

/// With claims that are all true, an item of many checks is seldom called refuted or outside; and often, if each is judged alone.
#[test]
fn chance_refutes_an_item_of_many_true_claims_in_one_of_twenty_at_most() {
    let mut state = 1_u64;
    let mut uniform = || {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    };
    let mut normal = || (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
    let (mut alone, mut together) = (0, 0);
    const ITEMS: usize = 2_000;
    for _ in 0..ITEMS {
        // At the end of the band, where chance is most likely to be taken for more.
        let mut checks: Vec<Check> = (0..20)
            .map(|_| {
                let values: Vec<f64> = (0..5).map(|_| 1.0 + 0.1 * normal()).collect();
                check("true", &values)
            })
            .collect();
        alone += usize::from(checks.iter().any(|it| it.refuted));
        correct(&mut checks);
        together += usize::from(checks.iter().any(|it| it.refuted));
    }
    // One side of 5 % each: 1 - 0.975^20 is 40 %.
    assert!((700..900).contains(&alone), "{alone}");
    // 2.5 % expected; four standard deviations are 28 of 50.
    assert!((21..=78).contains(&together), "{together}");
}

#[test]
fn exact_checks_are_no_comparisons() {
    let exact = Check::new("x", "1", "1", "2".to_owned(), Some("1 too much".to_owned()));
    let mut checks = vec![exact, check("contrary", &[0.9, 0.87, 0.93])];
    correct(&mut checks);
    assert_eq!(checks[0].verdict(), "outside: 1 too much");
    assert!(checks[1].refuted, "it is the only comparison");
}

#[test]
fn worst_comparison_speaks_for_all() {
    let comparison = |name: &str, values: &[f64]| {
        above_one().compare(name, None, Estimate::of(values.iter().copied()))
    };
    let check = Check::of_all(
        "x",
        "y",
        "z",
        vec![
            comparison("a", &[1.2, 1.21, 1.19]),
            comparison("b", &[0.5, 0.51, 0.49]),
            comparison("c", &[0.9, 1.4, 1.0]),
        ],
    );
    assert!(
        check.refuted && check.ours.starts_with("0.500"),
        "{check:?}"
    );
    let check = Check::of_all(
        "x",
        "y",
        "z",
        vec![
            comparison("a", &[1.2, 1.21, 1.19]),
            comparison("c", &[0.9, 1.4, 1.0]),
        ],
    );
    assert!(check.undecided);
    assert_eq!(
        check.verdict(),
        "not decided: the interval reaches over 1.000"
    );
}
