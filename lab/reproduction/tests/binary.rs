//! The binary as scripts and readers see it.

use std::{
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_reproduction"))
        .args(arguments)
        .output()
        .unwrap()
}

fn json(arguments: &[&str]) -> Vec<Value> {
    let output = run(arguments);
    assert!(output.status.success(), "{output:?}");
    // No terminal, no progress bar; on a slow machine a line each minute.
    let said = String::from_utf8(output.stderr).unwrap();
    let is_line = |it: &str| it.ends_with(" min left") && !it.contains(['\r', '\x1b']);
    assert!(said.lines().all(is_line), "{said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// `UPDATE=1` writes what the tasks print without this program.
#[test]
fn help_is_what_the_tasks_print() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../xtask/help");
    for task in ["reproduce", "codec-overhead", "ns3"] {
        let output = run(&[task, "--help"]);
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && help.contains("Usage: "),
            "{help}"
        );
        let file = directory.join(format!("{task}.txt"));
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&file, &help).unwrap();
        }
        let printed = std::fs::read_to_string(&file).unwrap();
        assert_eq!(printed, help, "{}", file.display());
    }
}

#[test]
fn figures_leave_files_and_verdicts() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("made/anew");
    let out = out.to_str().unwrap();
    let figures = json(&[
        "reproduce",
        "c1",
        "C2",
        "C3",
        "--trials",
        "2",
        "--json",
        "--out",
        out,
    ]);
    let ids: Vec<_> = figures
        .iter()
        .map(|it| it["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["C1", "C2", "C3"]);
    for figure in &figures {
        assert!(figure["holds"].is_boolean());
        assert_item(figure);
        for check in figure["checks"].as_array().unwrap() {
            assert!(check["holds"].is_boolean() && check["ours"].is_string());
        }
    }
    for (file, lines) in [("c1.csv", 71), ("c2.csv", 71), ("c3.csv", 11)] {
        let csv = std::fs::read_to_string(format!("{out}/{file}")).unwrap();
        assert_eq!(csv.lines().count(), lines, "{csv}");
        assert!(std::fs::exists(format!("{out}/{}", file.replace("csv", "svg"))).unwrap());
    }
}

/// Checks what scripts read of every item.
#[track_caller]
fn assert_item(item: &Value) {
    for field in ["id", "paper", "ours", "band", "note"] {
        assert!(item[field].is_string(), "{field} of {item}");
    }
    let verdict = item["verdict"].as_str().unwrap();
    assert!(
        [
            "reproduced",
            "outside",
            "refuted",
            "depends on load",
            "not decided",
            "note"
        ]
        .contains(&verdict),
        "{verdict}"
    );
    assert_eq!(item["holds"], verdict == "reproduced");
}

#[test]
fn simulated_figures_are_kept_and_taken_again() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().to_str().unwrap();
    let arguments = [
        "reproduce",
        "t5",
        "T6",
        "--quick",
        "--seeds",
        "1",
        "--json",
        "--out",
        out,
    ];
    let items = json(&arguments);
    assert_eq!(items.len(), 2);
    let artefact = || {
        let json = std::fs::read(directory.path().join("artefact.json")).unwrap();
        serde_json::from_slice::<Value>(&json).unwrap()
    };
    let made = artefact();
    // Both are of one experiment, whose runs the first makes.
    let runs = std::fs::read_dir(directory.path().join("runs/model")).unwrap();
    assert_eq!(made["items"][0]["new_runs"], runs.count());
    assert_eq!(made["items"][1]["id"], "T6");
    assert_eq!(made["items"][1]["new_runs"], 0);
    assert!(made["items"][0]["processor_seconds"].as_f64() > Some(0.0));
    assert!(made["machine"]["processors"].as_u64() > Some(0));
    let command = made["command"].as_str().unwrap();
    assert!(
        command.starts_with("cargo xtask reproduce t5 T6 --quick"),
        "{command}"
    );
    items.iter().for_each(assert_item);
    let known = directory.path().join("runs/model/rps-20-100000-seed1.json");
    let written = std::fs::metadata(&known).unwrap().modified().unwrap();
    assert_eq!(items, json(&arguments));
    assert_eq!(artefact()["items"][0]["new_runs"], 0);
    assert_eq!(
        std::fs::metadata(&known).unwrap().modified().unwrap(),
        written
    );
    let page = std::fs::read_to_string(directory.path().join("index.html")).unwrap();
    assert!(
        page.contains("T5: model over sizes")
            && page.contains("<svg")
            && page.contains("How it was made")
    );
    assert!(directory.path().join("t6.csv").exists());
}

#[test]
fn cloudbursts_figures_are_simulated() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().to_str().unwrap();
    let arguments = [
        "reproduce",
        "c4",
        "C5",
        "c7",
        "C8",
        "c9",
        "C10",
        "c11",
        "--quick",
        "--seeds",
        "1",
        "--flows",
        "60",
        "--json",
        "--out",
        out,
    ];
    let items = json(&arguments);
    let ids: Vec<_> = items.iter().map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["C4", "C5", "C7", "C8", "C9", "C10", "C11"]);
    for item in &items {
        assert_item(item);
        assert!(!item["rows"].as_array().unwrap().is_empty());
        for check in item["checks"].as_array().unwrap() {
            assert_ne!(check["ours"], "", "{check}");
        }
    }
    let csv = std::fs::read_to_string(directory.path().join("c7.csv")).unwrap();
    assert!(csv.contains("needed_ratio") && csv.contains("cloudburst-native"));
    let table = std::fs::read_to_string(directory.path().join("c10-table.csv")).unwrap();
    let of = |scheme: &str| -> Vec<String> {
        let line = table
            .lines()
            .find(|it| it.starts_with(&format!("{scheme},")));
        line.unwrap().split(',').map(str::to_owned).collect()
    };
    // Where there are credits some are lost and some wasted; without bulk all is faster.
    assert!(of("expresspass")[5].ends_with('%') && of("dctcp")[5].is_empty());
    let mean_us = |scheme: &str| of(scheme)[1].parse::<u32>().unwrap();
    assert!(mean_us("dctcp-alone") < mean_us("dctcp"), "{table}");
    let runs = directory.path().join("runs/cloudburst-large");
    let runs = std::fs::read_dir(runs).unwrap();
    let manifest = std::fs::read(runs.last().unwrap().unwrap().path()).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    assert_eq!(manifest["settings"]["warm_up_ms"], 2.0, "as with --quick");
    for file in ["c4.svg", "c11.svg", "c9-checks.csv"] {
        assert!(directory.path().join(file).exists(), "{file}");
    }
}

/// The grid is asked for by its name, and is divided as the items are.
#[test]
fn the_grid_is_run_by_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().to_str().unwrap();
    let arguments = [
        "reproduce",
        "grid",
        "--quick",
        "--flows",
        "20",
        "--shard",
        "3/448",
        "--json",
        "--out",
        out,
    ];
    let output = run(&arguments);
    assert!(output.status.success(), "{output:?}");
    let runs = std::fs::read_dir(directory.path().join("runs/grid")).unwrap();
    let names: Vec<_> = runs
        .map(|it| it.unwrap().file_name().into_string().unwrap())
        .collect();
    // The third scheme of each point.
    assert_eq!(names.len(), 28, "{names:?}");
    let is_third = |name: &String| name.ends_with("-pias-800-0-seed1.json");
    assert!(names.iter().all(is_third), "{names:?}");
}

/// Two machines make the runs, and the figures are those of one that has made all.
#[test]
fn shards_make_the_runs_that_figures_take() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let simulated = |out: &str, more: &[&str]| {
        let ids = ["T1", "T5", "C4", "C8", "C9"];
        let options = [
            "--quick", "--seeds", "1", "--flows", "40", "--json", "--out", out,
        ];
        run(&[&["reproduce"], &ids[..], &options, more].concat())
    };
    let manifests = |out: &str| {
        let all = std::fs::read_dir(format!("{out}/runs")).unwrap();
        let items = all.map(|it| it.unwrap().path()).filter(|it| it.is_dir());
        let below = items.map(|it| std::fs::read_dir(it).unwrap().count());
        below.sum::<usize>()
    };
    let (shards, whole) = (at("shards"), at("whole"));
    for shard in ["1/2", "2/2"] {
        let output = simulated(&shards, &["--shard", shard]);
        assert!(output.status.success(), "{output:?}");
        let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(printed["shard"], shard);
        assert!(!Path::new(&shards).join("index.html").exists());
    }
    let known = manifests(&shards);
    let [of_shards, of_one] = [&shards, &whole].map(|out| simulated(out, &[]).stdout);
    assert!(of_shards == of_one);
    assert_eq!((known, manifests(&shards)), (manifests(&whole), known));
    let artefact = std::fs::read(format!("{shards}/artefact.json")).unwrap();
    let artefact: Value = serde_json::from_slice(&artefact).unwrap();
    let items = artefact["items"].as_array().unwrap();
    assert!(
        items.len() == 5 && items.iter().all(|it| it["new_runs"] == 0),
        "{artefact}"
    );
}

/// Every run of an item has what is set, and a key that scenarios do not have is refused.
#[test]
fn settings_take_the_place_of_those_of_scenarios() {
    let directory = tempfile::tempdir().unwrap();
    let simulated = |id: &str, set: &str| {
        let out = directory.path().to_str().unwrap();
        let options = ["--quick", "--seeds", "1", "--json", "--out", out];
        run(&[&["reproduce", id, "--set", set], &options[..]].concat())
    };
    for (id, runs) in [("C8", "incast"), ("T6", "model")] {
        let output = simulated(id, "transport.rto_min_us=9_000");
        assert!(output.status.success(), "{output:?}");
        let manifests = std::fs::read_dir(directory.path().join("runs").join(runs)).unwrap();
        let of = |path| serde_json::from_slice::<Value>(&std::fs::read(path).unwrap()).unwrap();
        let manifests: Vec<Value> = manifests.map(|it| of(it.unwrap().path())).collect();
        assert!(manifests.len() > 10);
        for it in manifests {
            assert_eq!(it["settings"]["transport"]["rto_min_us"], 9_000, "{it}");
        }
    }
    for (set, code, says) in [
        ("transport", 2, "KEY=VALUE"),
        ("transport.no_such=1", 1, "no_such"),
    ] {
        let output = simulated("C8", set);
        assert_eq!(output.status.code(), Some(code));
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains(says), "{error}");
    }
    // Nothing of these is of such runs, with others neither.
    for id in ["C1", "C2", "S3", "wan", "T15", "all"] {
        let out = directory.path().join("none");
        let output = run(&[
            "reproduce",
            "C8",
            id,
            "--set",
            "transport.rto_min_us=9_000",
            "--out",
            out.to_str().unwrap(),
        ]);
        assert_eq!(output.status.code(), Some(1), "{id}");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains("--set changes nothing of "), "{error}");
        assert!(!out.exists(), "{id}");
    }
}

#[test]
fn a_missed_band_is_reported_and_is_no_failure() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().to_str().unwrap();
    let output = run(&["reproduce", "c3", "--out", out]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("C3: ") && text.contains("holds"), "{text}");
    assert!(!text.contains("C1: "), "only what was asked for");
}

#[test]
fn an_unknown_figure_is_refused_with_the_known_ones() {
    let output = run(&["reproduce", "C99"]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.contains("C99")
            && text.contains("all, grid, wan, S1")
            && text.contains("C1, C2, C3, C4")
            && text.contains("C13, T1"),
        "{text}"
    );
}

#[test]
fn overhead_has_a_cell_for_each_combination() {
    let cells = json(&["codec-overhead", "--trials", "5", "--json"]);
    assert_eq!(cells.len(), 3 * 5 * 6);
    assert_eq!(cells, json(&["codec-overhead", "--trials", "5", "--json"]));
    let other = json(&["codec-overhead", "--trials", "5", "--json", "--seed", "2"]);
    assert_ne!(cells, other);
    for cell in &cells {
        assert_eq!(cell["trials"], 5);
        assert!(cell["excess_p99"].is_u64() && cell["sent_mean"].is_f64());
        assert!(cell["loss"].is_u64() || cell["loss"] == "path");
    }
    let text = run(&["codec-overhead", "--trials", "5"]).stdout;
    assert!(String::from_utf8(text).unwrap().contains("goals met."));
}

#[test]
fn runs_of_other_sources_are_kept_nowhere() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (out, keep) = (path("out"), path("kept"));
    std::fs::create_dir_all(Path::new(&out).join("runs")).unwrap();
    let commits = Path::new(&out).join("runs/commits");
    std::fs::write(&commits, "0123456789012345678901234567890123456789\n").unwrap();
    let output = run(&["reproduce", "C3", "--out", &out, "--keep", &keep]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{output:?}");
    assert!(error.contains("were made at 0123456789"), "{error}");
    assert!(!Path::new(&keep).exists());
    // It is written down beside that one who made the figure.
    let commits = std::fs::read_to_string(&commits).unwrap();
    assert_eq!(commits.lines().count(), 2, "{commits}");
}
