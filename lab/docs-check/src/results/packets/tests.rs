//! Rows as the laboratories print them, and what stands beside TR's checks.

use serde_json::{Value, json};

use super::*;

/// Times of short flows by scheme, in ms, in each of the fabrics.
const SCHEMES: [(&str, [f64; 3]); 7] = [
    ("ecmp_flow", [10.0, 20.0, 40.0]),
    ("rps", [5.0, 8.0, 10.0]),
    ("drb", [20.0, 20.0, 20.0]),
    ("presto", [20.0, 20.0, 20.0]),
    ("letflow", [10.0, 16.0, 20.0]),
    ("tr", [8.0, 8.0, 8.0]),
    ("tr_paper", [2.0, 2.0, 2.0]),
];

fn fabric(case: &str) -> Vec<Value> {
    let place = FABRICS.iter().position(|it| *it == case).unwrap();
    let mut rows = Vec::new();
    for (number, (scheme, ms)) in SCHEMES.iter().enumerate() {
        for seed in 1..=3_u32 {
            for class in ["short", "long"] {
                // Ratios are alike with each seed, and exactly so.
                let ms = ms[place] * f64::from(1 << seed);
                rows.push(json!({
                    "scheme": scheme, "seed": seed, "case": case, "load": 0.6, "size_class": class,
                    "mean_ms": ms, "p99_ms": 4.0 * ms, "goodput": 100.0 / ms, "retransmits": 100 * number as u32 + seed,
                    "ns_per_packet": (*scheme != "ecmp_flow").then_some(500.0), "cpu_s": 4.5,
                    "memory_mb": (*scheme != "ecmp_flow").then_some(30.0), "out_of_order": 0.1,
                }));
            }
        }
    }
    rows
}

fn bond() -> Vec<Value> {
    let row = |(scheme, goodput): (&str, f64)| {
        json!({
            "case": "30+8", "scheme": scheme, "seed": 1, "flows": 1, "direction": "up", "loss": 0.0, "jitter_ms": 0,
            "cut": null, "goodput_mbit": goodput,
        })
    };
    let with_jitter = |mut row: Value| {
        row["jitter_ms"] = json!(5);
        row["goodput_mbit"] = json!(1.0);
        row
    };
    let rows = [("ecmp_flow", 28.0), ("letflow", 7.0), ("tr", 35.0)].map(row);
    rows.iter()
        .cloned()
        .chain(rows.clone().map(with_jitter))
        .collect()
}

fn write(root: &Path, name: &str, text: &str) {
    let path = root.join(PAGES).join(PACKETS).join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn root() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let mut provenance = "file,command,commit,date,machine\n".to_owned();
    let mut keep = |name: &str, rows: Vec<Value>| {
        write(root.path(), name, &serde_json::to_string(&rows).unwrap());
        provenance += &format!("{name},cargo xtask {name},0123456789abcdef,2026-11-28,two cores\n");
    };
    for (number, case) in FABRICS.iter().enumerate() {
        keep(&format!("fabric-{number}.json"), fabric(case));
    }
    keep("bond.json", bond());
    write(root.path(), "provenance.csv", &provenance);
    root
}

fn packets(root: &Path) -> Packets {
    Packets::read(root).unwrap().unwrap()
}

#[track_caller]
fn assert_cell(item: &str, check: &str, expected: &str) {
    let root = root();
    let column = packets(root.path()).column(item, &[check]).unwrap();
    assert_eq!(column.unwrap(), [expected], "{check} of {item}");
}

#[test]
fn cells_are_medians_over_seeds_of_ratios_seed_by_seed() {
    assert_cell(
        "T3",
        "RPS / ECMP at 2.5 times the RTT, load 0.5",
        "0.40 at 0.6",
    );
    assert_cell(
        "T3",
        "growth from 1.5 to 3.5, RPS / ECMP, load 0.5",
        "0.50 at 0.6",
    );
    assert_cell(
        "T7",
        "mean, TR against LetFlow at 3.5",
        "`tr-paper` -90 %, `tr` -60 %",
    );
    // (8 / 10 + 8 / 16 + 8 / 20) / 3
    assert_cell(
        "T7",
        "mean, TR / letflow, all asymmetries",
        "`tr-paper` 0.14, `tr` 0.57",
    );
    assert_cell(
        "T8",
        "TR / letflow at 3.5 times the RTT",
        "`tr-paper` 10.00, `tr` 2.50; one flow over 30+8 Mbit/s: `tr` 5.00",
    );
    assert_cell("T2", "LetFlow", "402 [401, 403] segments of all flows");
    assert_cell(
        "T7",
        "TR, sent again, worst run",
        "`tr-paper` 603 segments, `tr` 503 segments",
    );
}

#[test]
fn every_check_that_is_kept_has_a_cell_and_other_items_have_no_column() {
    let root = root();
    let packets = packets(root.path());
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let kept = super::super::kept::Kept::read(&kept, "results").unwrap();
    let mut cells = 0;
    for item in kept.items.keys() {
        let checks = kept.checks(item).unwrap();
        let names: Vec<&str> = checks.iter().map(|it| it.name.as_str()).collect();
        let Some(column) = packets.column(item, &names).unwrap() else {
            continue;
        };
        assert_eq!(column.len(), names.len(), "{item}");
        assert!(column.iter().all(|it| !it.is_empty()), "{item}");
        cells += column.len();
    }
    assert_eq!(cells, CELLS.len());
    let error = packets.column("T1", &["another"]).unwrap_err().to_string();
    assert!(error.contains("\"another\" of T1"), "{error}");
}

#[test]
fn files_say_where_they_are_from() {
    let root = root();
    assert!(packets(root.path()).table().contains(
        "| [bond.json](packets/bond.json) | `cargo xtask bond.json` | `0123456789` | 2026-11-28 | two cores |\n"
    ));
    let refused = |reason: &str| {
        let error = format!("{:#}", Packets::read(root.path()).unwrap_err());
        assert!(error.contains(reason), "{error}");
    };
    write(root.path(), "fabric-9.json", "[]");
    refused("does not say where fabric-9.json is from");
    fs::remove_file(root.path().join(PAGES).join("packets/fabric-9.json")).unwrap();
    fs::remove_file(root.path().join(PAGES).join("packets/bond.json")).unwrap();
    refused("has bond.json, which is not there");
    write(root.path(), "bond.json", "[{}]");
    refused("in docs/src/reproduction/packets/bond.json");
    assert!(Packets::read(Path::new("/nonexistent")).unwrap().is_none());
}

#[test]
fn rows_that_are_missing_or_there_twice_are_found() {
    let root = root();
    let check = "RPS / ECMP at 2.5 times the RTT, load 0.5";
    let refused = |rows: Vec<Value>, reason: &str| {
        write(
            root.path(),
            "fabric-1.json",
            &serde_json::to_string(&rows).unwrap(),
        );
        let error = packets(root.path()).column("T3", &[check]).unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains(reason), "{error}");
    };
    let rows = fabric(FABRICS[1]);
    let without = |drop: fn(&Value) -> bool| rows.iter().filter(|it| !drop(it)).cloned().collect();
    refused(
        without(|it| it["scheme"] == "rps"),
        "no row has rps in 2x2-asym2.5",
    );
    refused(
        without(|it| it["scheme"] == "ecmp_flow" && it["seed"] == 2),
        "seed 2, and the other has not",
    );
    refused([rows.clone(), rows.clone()].concat(), "seed 1 twice");
}
