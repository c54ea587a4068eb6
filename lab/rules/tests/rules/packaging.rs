//! Rule: what packages install is what systemd and Prometheus take, and names metrics that exist.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use flow_testbed::require::Requirement::Program;

use crate::{WORKSPACE, assert_none};

#[track_caller]
fn succeeds(command: &mut Command) {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{command:?}: {}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
}

#[test]
fn systemd_takes_the_units() {
    flow_testbed::require!(Program("systemd-analyze"));
    let units = WORKSPACE.root.join("packaging/systemd");
    for unit in fs::read_dir(units).unwrap() {
        let unit = unit.unwrap();
        let text = fs::read_to_string(unit.path()).unwrap();
        assert!(text.contains("ExecStart=/usr/local/bin/splitter run\n"));
        assert!(text.contains("ExecReload=/usr/local/bin/splitter reload\n"));
        assert!(text.contains("Type=notify\n") && text.contains("WatchdogSec=90\n"));
        // A device that is late, or an uplink that is down, at boot is the end of nothing.
        assert!(text.contains("StartLimitIntervalSec=0\n") && text.contains("RestartSec=2\n"));
        assert!(!text.contains("After=network-online.target"));
        // It looks for the program, which is not installed here.
        let directory = tempfile::tempdir().unwrap();
        let copy = directory.path().join(unit.file_name());
        fs::write(&copy, text.replace("/usr/local/bin/splitter", "/bin/true")).unwrap();
        succeeds(
            Command::new("systemd-analyze")
                .args(["verify", "--man=no"])
                .arg(copy),
        );
    }
}

#[test]
fn prometheus_takes_the_rules() {
    flow_testbed::require!(Program("promtool"));
    let directory = WORKSPACE.root.join("packaging/prometheus");
    for (kind, file) in [
        ("rules", "splitter.rules.yml"),
        ("config", "prometheus.yml"),
    ] {
        let mut promtool = Command::new("promtool");
        succeeds(promtool.args(["check", kind, file]).current_dir(&directory));
    }
}

#[test]
fn rules_name_metrics_and_labels_that_are_documented() {
    let root = &WORKSPACE.root;
    let page = fs::read_to_string(root.join("docs/src/reference/metrics.md")).unwrap();
    let rules = fs::read_to_string(root.join("packaging/prometheus/splitter.rules.yml")).unwrap();
    let wrong: Vec<_> = metrics(&rules)
        .into_iter()
        .filter(|name| {
            let endings = ["", "_bucket", "_sum", "_count"];
            let mut families = endings
                .iter()
                .filter_map(|ending| name.strip_suffix(ending));
            !families.any(|family| page.contains(&format!("| `{family}` |")))
        })
        .collect();
    assert_none(
        "metrics that docs/src/reference/metrics.md does not have",
        &wrong,
    );
}

/// Names of metrics in expressions.
fn metrics(rules: &str) -> BTreeSet<String> {
    let is_of_name = |letter: char| letter.is_alphanumeric() || "_:".contains(letter);
    let words = rules.split(|letter| !is_of_name(letter));
    words
        .filter(|word| word.starts_with("splitter_"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_book_includes_files_that_exist() {
    let root = &WORKSPACE.root;
    let mut wrong = Vec::new();
    let mut count = 0;
    each_page(&root.join("docs/src"), &mut |page, text| {
        for rest in text.split("{{#include ").skip(1) {
            let path = rest.split("}}").next().unwrap_or_default();
            count += 1;
            if !page.with_file_name(path).is_file() {
                wrong.push(format!("{}: no file {path}", page.display()));
            }
        }
    });
    assert!(
        count >= 4,
        "the book includes units, rules and a configuration"
    );
    assert_none("files that the book includes", &wrong);
}

fn each_page(directory: &Path, found: &mut impl FnMut(&Path, &str)) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            each_page(&path, found);
        } else {
            found(&path, &fs::read_to_string(&path).unwrap());
        }
    }
}
