use serde_json::json;

use super::*;
use crate::cell::{self, tests::SHAPE};

const CASE: &str = "2x2-asym2.5-web_search";
const TIMING: Timing = Timing::QUICK;

fn cells() -> Vec<Cell> {
    cell::chosen(SHAPE, Some("web_search-load0.3"), false)
}

/// As many flows as each seed has.
fn flows(cell: &Cell, seed: u64, class: SizeClass) -> u64 {
    let length = TIMING.warm_up + TIMING.counting;
    let schedule = Schedule::draw(cell, length, seed).expect("built in");
    let flows = schedule.transfers.iter().zip(&schedule.classes);
    let own = flows.filter(|(it, own)| it.at >= TIMING.warm_up && **own == class);
    own.count() as u64
}

fn measured(seed: u64, class: SizeClass, flows: u64, mean_ms: f64) -> Row {
    let row = json!({
        "scheme": "ecmp_flow", "seed": seed, "case": CASE, "load": 0.3, "size_class": class.name(), "flows": flows,
        "unfinished": 0, "mean_ms": mean_ms, "p99_ms": 4.0 * mean_ms, "predicted_mean_ms": null, "goodput": 1.0,
        "out_of_order": 0.25, "retransmits": 100_u64.saturating_mul(seed), "path_share": [0.5, 0.5], "ns_per_packet": null, "cpu_s": 1.0,
        "memory_mb": null, "prediction_error_us": null,
    });
    serde_json::from_value(row).expect("a row")
}

fn forecast(rows: &[Row], vary: &[&str]) -> Result<Forecast> {
    of_schemes(rows, vary, &[], MOST_SEEDS)
}

fn of_schemes(rows: &[Row], vary: &[&str], schemes: &[Scheme], seeds: u64) -> Result<Forecast> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("rows.json");
    fs::write(&file, serde_json::to_string(rows)?)?;
    let arguments = ForecastArguments {
        predict: true,
        measured: vec![file],
        vary: vary.iter().map(|it| it.parse().expect("a key")).collect(),
        csv: false,
    };
    arguments.forecast(cells(), schemes, seeds, TIMING)
}

#[test]
fn what_was_measured_is_simulated_and_stands_beside_it() {
    let cell = cells()[0];
    let short = |seed, mean_ms| {
        let flows = flows(&cell, seed, SizeClass::Short);
        measured(seed, SizeClass::Short, flows, mean_ms)
    };
    let rows = [short(1, 10.0), short(3, 40.0)];
    let forecast = forecast(&rows, &["transport.handshake=false"]).expect("rows of a cell");
    assert_eq!((forecast.cells.len(), forecast.schemes.len()), (1, 1));
    let all = forecast.run().expect("it can be simulated");
    assert_eq!(all, forecast.run().expect("once more"), "chance is drawn");
    let [whole, ..] = &all[..] else {
        panic!("no rows");
    };
    let [first, third] = [rows[0].flows, rows[1].flows].map(|it| it as f64);
    assert_eq!((whole.seeds, whole.flows), (2, (first + third) as u64));
    // Of all flows, as one run of both seeds would have it.
    let mean_ms = (first * 10.0 + third * 40.0) / (first + third);
    let of_measured = whole.measured_mean_ms.expect("both were");
    assert!((of_measured - mean_ms).abs() < 1e-9, "{of_measured}");
    assert_eq!(
        whole.mean_ratio,
        Some(whole.predicted_mean_ms / of_measured)
    );
    let bounds = [whole.mean_ratio_least, whole.mean_ratio_greatest];
    assert!(bounds[0] < whole.mean_ratio && whole.mean_ratio < bounds[1]);
    assert_eq!(whole.measured_p99_ms, Some((40.0 + 160.0) / 2.0));
    assert_eq!(whole.measured_retransmits, Some(200.0));
    // Nobody measured long ones.
    let long = all.iter().find(|it| it.size_class == "long");
    let long = long.expect("they are simulated");
    assert_eq!((long.mean_ratio, long.measured_mean_ms), (None, None));
    // A handshake takes a round trip.
    let short = all.iter().filter(|it| it.size_class == "short");
    let [with, without] = short.collect::<Vec<_>>()[..] else {
        panic!("{all:?}");
    };
    assert_eq!(
        [&with.changed, &without.changed],
        ["-", "transport.handshake=false"]
    );
    assert!(without.predicted_mean_ms < with.predicted_mean_ms);
    let table = table(&all);
    let lines: Vec<_> = table.records().collect();
    assert_eq!(lines.len(), 3, "one for each variation");
    assert!(lines.iter().all(|it| it.len() == lines[0].len()));
    assert_eq!(
        lines[1][..3],
        ["2x2-asym2.5-web_search-load0.3", "ecmp_flow", "-"]
    );
}

#[test]
fn seeds_are_those_that_were_measured_and_are_asked_for() {
    let rows = [1, 7, 1_000].map(|seed| measured(seed, SizeClass::Short, 3, 10.0));
    let seeds = |most| of_schemes(&rows, &[], &[], most).map(|it| it.seeds);
    assert_eq!(seeds(MOST_SEEDS).expect("all"), [1, 7, 1_000].into());
    assert_eq!(seeds(7).expect("two"), [1, 7].into());
    for seed in [0, 1_001, u64::MAX] {
        let error = forecast(&[measured(seed, SizeClass::Short, 3, 10.0)], &[]);
        let error = error.expect_err("no campaign has it").to_string();
        assert!(error.contains(&format!("of seed {seed}")), "{error}");
    }
}

#[test]
fn rows_of_one_run_twice_or_of_no_scheme_or_seed_that_is_asked_for_are_refused() {
    let row = measured(2, SizeClass::Short, 3, 10.0);
    let other = measured(2, SizeClass::Long, 3, 10.0);
    assert!(forecast(&[row.clone(), other], &[]).is_ok());
    let twice = [
        row.clone(),
        Row {
            mean_ms: None,
            ..row.clone()
        },
    ];
    let error = forecast(&twice, &[]).expect_err("which one").to_string();
    assert!(
        error.contains("two rows of short flows by ecmp_flow"),
        "{error}"
    );
    for (schemes, seeds) in [(&[Scheme::EcmpPacket][..], 2), (&[], 1)] {
        let error = of_schemes(std::slice::from_ref(&row), &[], schemes, seeds);
        let error = error.expect_err("nothing is left").to_string();
        assert!(error.contains("none of the rows"), "{error}");
    }
}

#[test]
fn rows_of_other_flows_or_no_cell_that_is_asked_for_are_refused() {
    let row = measured(1, SizeClass::Short, 3, 10.0);
    let error = forecast(std::slice::from_ref(&row), &[])
        .expect("a cell")
        .run();
    let error = error.expect_err("there are more flows").to_string();
    assert!(error.contains("the rows have 3 short flows"), "{error}");
    let other = Row {
        case: "4x2-sym-web_search".to_owned(),
        ..row.clone()
    };
    let error = forecast(&[other], &[]).expect_err("no such cell");
    assert!(error.to_string().contains("none of the rows"), "{error}");
    let all = flows(&cells()[0], 1, SizeClass::Short);
    let key = forecast(&[Row { flows: all, ..row }], &["transport.magic=1"]);
    let error = key.expect("it is read").run();
    let error = format!("{:#}", error.expect_err("no such key"));
    assert!(error.contains("magic"), "{error}");
}
