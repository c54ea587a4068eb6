//! Sweeps that were run in parts.

use std::{collections::BTreeMap, fs, path::Path};

use crate::support::netsim;

/// Two schemes, two loads, three seeds.
const SWEEP: &[&str] = &[
    "sweep",
    "tr-large",
    "--messages",
    "40",
    "--schemes",
    "ecmp,rps",
    "--loads",
    "0.3,0.6",
    "--seeds",
    "3",
];

/// Runs the sweep with `more` into `out`.
#[track_caller]
fn sweep(out: &Path, more: &[&str]) -> String {
    let out = out.to_string_lossy();
    done(&[SWEEP, &["--out", &out], more].concat())
}

#[track_caller]
pub(crate) fn done(arguments: &[&str]) -> String {
    let output = netsim(arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Returns what it complains of.
#[track_caller]
fn refused(arguments: &[&str]) -> String {
    let output = netsim(arguments);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).expect("text")
}

/// All files below a directory, with what they hold.
pub(crate) fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = path
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        if path.is_dir() {
            let below = files(&path).into_iter();
            all.extend(below.map(|(file, bytes)| (format!("{name}/{file}"), bytes)));
        } else {
            all.insert(name, fs::read(&path).expect("a file"));
        }
    }
    all
}

#[test]
fn shards_that_are_merged_are_the_bytes_of_the_whole() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    let printed = sweep(&at("whole"), &["--json"]);
    let shards = ["1/5", "2/5", "3/5", "4/5", "5/5"];
    let mut merge = vec!["merge".to_owned()];
    for shard in shards {
        // The last two into one directory, as on a file system that all share.
        let name = if shard >= "4/5" {
            "shared"
        } else {
            &shard[..1]
        };
        let printed = sweep(&at(name), &["--shard", shard]);
        let runs = if shard <= "2/5" { 3 } else { 2 };
        assert!(
            printed.starts_with(&format!("Shard {shard}: {runs} runs, 0 of them")),
            "{printed}"
        );
        let path = at(name).to_string_lossy().into_owned();
        if !merge.contains(&path) {
            merge.push(path);
        }
    }
    let merged = at("merged").to_string_lossy().into_owned();
    let arguments: Vec<&str> = merge.iter().map(String::as_str).collect();
    let all = [&arguments, &["--out", &merged, "--json"][..]].concat();
    assert!(done(&all) == printed, "other figures");
    let (whole, merged) = (files(&at("whole")), files(&at("merged")));
    assert_eq!(
        whole.keys().collect::<Vec<_>>(),
        merged.keys().collect::<Vec<_>>()
    );
    assert!(whole.len() == 12 + 3 && whole == merged);
}

#[test]
fn shard_that_was_killed_runs_what_is_missing_and_no_more() {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path();
    let path = out.to_string_lossy();
    for shard in ["1/2", "2/2"] {
        sweep(out, &["--shard", shard]);
    }
    // As a task that was killed before its last two runs, while it wrote one.
    for lost in ["ecmp-load0.3-seed3.json", "rps-load0.6-seed1.json"] {
        fs::remove_file(out.join("runs").join(lost)).expect("it was run");
    }
    fs::write(
        out.join("runs/ecmp-load0.6-seed2.json"),
        "{\"scenario\": \"tr-l",
    )
    .expect("written");
    let message = refused(&["merge", &path]);
    assert!(
        message.contains("3 of 12 runs are missing: rps-load0.6-seed1.json"),
        "{message}"
    );
    assert!(!out.join("sweep.csv").exists());
    let printed = sweep(out, &["--shard", "1/2", "--json"]);
    assert!(printed.contains("\"known_before\": 4"), "{printed}");
    sweep(out, &["--shard", "2/2"]);
    done(&["merge", &path, "--out", &path]);
    assert!(out.join("sweep.csv").exists());
}

#[test]
fn rows_are_kept_where_they_are_asked_for_and_merged() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    // Runs without their rows are run again.
    sweep(&at("whole"), &[]);
    let again = sweep(&at("whole"), &["--rows", "--shard", "1/1", "--json"]);
    let first = at("first");
    for (shard, known) in [("1/2", 0), ("1/2", 6), ("2/2", 0)] {
        let printed = sweep(&first, &["--rows", "--shard", shard, "--json"]);
        assert!(
            printed.contains(&format!("\"known_before\": {known}")),
            "{printed}"
        );
    }
    let [path, merged] = [&first, &at("merged")].map(|it| it.to_string_lossy().into_owned());
    assert!(done(&["merge", &path, "--out", &merged, "--json"]) == again);
    let (whole, merged_files) = (files(&at("whole")), files(&at("merged")));
    assert!(whole.len() == 3 * 12 + 3 && whole == merged_files);
    let rows = &whole["runs/rps-load0.6-seed2.flows.csv"];
    let rows = str::from_utf8(rows).expect("text");
    assert!(rows.starts_with("flow,traffic,from,to,bytes,start_ns,fct_ns,"));
    assert_eq!(rows.lines().count(), 1 + 40);
    fs::remove_file(first.join("runs/rps-load0.6-seed2.flows.csv")).expect("it is there");
    let message = refused(&["merge", &path, "--out", &merged]);
    assert!(
        message.contains("1 of 12 runs are missing: rps-load0.6-seed2.json"),
        "{message}"
    );
}

/// Whoever asks for them later would take them for those of the run whose manifest lies there.
#[test]
fn rows_of_another_run_do_not_stay_beside_a_manifest() {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().to_string_lossy();
    let sweep = |messages: &str, more: &[&str]| {
        let one = [
            "sweep",
            "tr-large",
            "--schemes",
            "ecmp",
            "--loads",
            "0.3",
            "--seeds",
            "1",
        ];
        let of = ["--messages", messages, "--out", &out];
        done(&[&one[..], &of[..], more].concat())
    };
    let rows = || {
        let path = directory.path().join("runs/ecmp-load0.3-seed1.flows.csv");
        fs::read_to_string(path).map(|it| it.lines().count()).ok()
    };
    sweep("30", &["--rows"]);
    assert_eq!(rows(), Some(31));
    sweep("20", &[]);
    assert_eq!(rows(), None);
    sweep("20", &["--rows"]);
    assert_eq!(rows(), Some(21));
}

/// Two of ten thousand tasks at the same time, in one directory and without a lock.
#[test]
fn ten_thousand_cells_are_submitted_as_many_tasks() {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().to_string_lossy();
    let task = |shard: &str| {
        let arguments = [
            "sweep",
            "tr-motivation",
            "--messages",
            "5",
            "--schemes",
            "rps",
        ];
        let arguments = [&arguments[..], &["--seeds", "10000", "--out", &out]].concat();
        done(&[&arguments[..], &["--shard", shard, "--json"]].concat())
    };
    std::thread::scope(|scope| {
        let others = scope.spawn(|| task("1/10000"));
        for printed in [task("10000/10000"), others.join().expect("it ended")] {
            assert!(printed.contains("\"runs\": 1,"), "{printed}");
        }
    });
    let runs = files(&directory.path().join("runs"));
    let names: Vec<&String> = runs.keys().collect();
    assert_eq!(names, ["rps-seed1.json", "rps-seed10000.json"]);
    let message = refused(&["merge", &out]);
    assert!(
        message.contains("9998 of 10000 runs are missing"),
        "{message}"
    );
}

#[test]
fn shards_of_different_sweeps_are_not_merged() {
    let directory = tempfile::tempdir().expect("a directory");
    let [one, other] = ["one", "other"].map(|it| directory.path().join(it));
    sweep(&one, &["--shard", "1/2"]);
    sweep(&other, &["--shard", "2/2", "--jobs", "1"]);
    let [one, other] = [one, other].map(|it| it.to_string_lossy().into_owned());
    let plan = Path::new(&other).join("plan.json");
    let record = fs::read_to_string(&plan).expect("it was written");
    for (part, instead, what) in [
        ("\"messages\": 40", "\"messages\": 41", "the plan"),
        ("web_search", "data_mining", "the scenario's text"),
        ("\"version\": \"", "\"version\": \"9", "was run by netsim 9"),
        ("{", "", "cannot read"),
    ] {
        assert!(record.contains(part), "{part}");
        fs::write(&plan, record.replacen(part, instead, 1)).expect("written");
        let message = refused(&["merge", &one, &other]);
        assert!(message.contains(what), "{message}");
    }
    let message = refused(&["merge", "no-such"]);
    assert!(
        message.contains("cannot read no-such/plan.json"),
        "{message}"
    );
}
