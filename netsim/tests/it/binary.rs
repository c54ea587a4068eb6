//! The command from outside.

use std::{fs, path::Path};

use serde_json::Value;

use crate::support::netsim;

#[track_caller]
fn json(arguments: &[&str]) -> Value {
    let output = netsim(arguments);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).expect("the file is there")
}

/// The same bytes on every machine: whoever changes this number has changed all results.
#[test]
fn a_run_is_the_same_everywhere() {
    let manifest = json(&[
        "run",
        "tr-large",
        "--messages",
        "500",
        "--seed",
        "3",
        "--json",
    ]);
    assert_eq!(manifest["totals"]["hops"], 4_392_636);
    assert_eq!(manifest["totals"]["end_ns"], 35_651_717);
}

/// No hash of the process, no address and no clock has a part in what endpoints do. Their figures
/// change with the protocol, so none is written down here.
#[test]
fn a_run_of_cloudburst_is_the_same_in_each_process() {
    let run = || {
        json(&[
            "run",
            "cloudburst-testbed",
            "--scheme",
            "cloudburst-native",
            "--messages",
            "200",
            "--json",
        ])
    };
    let manifest = run();
    assert_eq!(manifest, run());
    assert_eq!(manifest["totals"]["unfinished"], 0);
}

#[test]
fn a_run_writes_a_row_a_flow_and_a_manifest() {
    let directory = tempfile::tempdir().expect("a directory");
    let run = |name: &str| {
        let out = directory.path().join(name);
        let path = out.to_string_lossy().into_owned();
        let output = netsim(&[
            "run",
            "tr-large",
            "--messages",
            "100",
            "--scheme",
            "rps",
            "--out",
            &path,
        ]);
        assert!(output.status.success(), "{output:?}");
        let stdout = String::from_utf8(output.stdout).expect("text");
        assert!(stdout.contains("<= 100 kB") && stdout.contains("tr-large, scheme rps, seed 1"));
        out
    };
    let (first, second) = (run("first"), run("second"));
    for file in ["flows.csv", "paths.csv", "manifest.json"] {
        assert_eq!(text(&first.join(file)), text(&second.join(file)), "{file}");
    }
    let flows = text(&first.join("flows.csv"));
    assert_eq!(flows.lines().count(), 101);
    assert!(flows.starts_with("flow,traffic,from,to,bytes,start_ns,fct_ns,"));
    let manifest: Value = serde_json::from_str(&text(&first.join("manifest.json"))).expect("JSON");
    assert_eq!(manifest["settings"]["balance"]["policy"], "rps");
    assert_eq!(manifest["classes"][3]["flows"], 100);
}

#[test]
fn a_sweep_goes_on_where_it_was() {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().to_string_lossy().into_owned();
    let sweep = |seeds: &str| {
        json(&[
            "sweep",
            "tr-large",
            "--messages",
            "60",
            "--schemes",
            "ecmp,rps",
            "--loads",
            "0.3,0.6",
            "--seeds",
            seeds,
            "--out",
            &out,
            "--json",
        ])
    };
    let rows = sweep("2");
    // Two schemes, two loads, four classes.
    assert_eq!(rows.as_array().map(Vec::len), Some(16));
    assert!(rows[3]["mean_us"]["half_width"].is_number(), "{rows}");
    let known = directory.path().join("runs/rps-load0.6-seed2.json");
    let before = fs::metadata(&known)
        .and_then(|it| it.modified())
        .expect("it was written");
    let rows = sweep("3");
    assert_eq!(rows[3]["seeds"], 3);
    let after = fs::metadata(&known)
        .and_then(|it| it.modified())
        .expect("it is there");
    assert_eq!(before, after);
    assert!(text(&directory.path().join("index.html")).contains("<svg"));
    assert!(text(&directory.path().join("sweep.csv")).lines().count() > 100);
}

#[test]
fn bench_states_speed_and_memory() {
    let speed = json(&["bench", "--messages", "100", "--json"]);
    assert!(speed["hops_per_s"].as_f64() > Some(0.0));
    assert!(speed["rss_mb"].as_f64() > Some(1.0) || !cfg!(target_os = "linux"));
    assert_eq!(speed["scenario"], "tr-large");
}

#[test]
fn list_shows_scenarios_and_distributions() {
    let output = netsim(&["list"]);
    let stdout = String::from_utf8(output.stdout).expect("text");
    assert!(stdout.contains("tr-large") && stdout.contains("web_search_xpass"));
    assert!(
        json(&["list", "--json"])
            .as_array()
            .is_some_and(|it| !it.is_empty())
    );
}

#[test]
fn mistakes_go_to_standard_error_alone() {
    for arguments in [
        &["run", "no-such"][..],
        &["run", "tr-large", "--load", "1.5"],
        &["run", "tr-large", "--scheme", "no-such"],
        &["sweep", "tr-large", "--schemes", "no-such"],
    ] {
        let output = netsim(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(!output.stderr.is_empty());
        assert!(output.stdout.is_empty());
    }
}
