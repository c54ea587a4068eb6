//! Rule: what the hardened unit leaves open has its reason in the book, row by row as systemd counts.

use std::{collections::BTreeSet, fs, process::Command};

use flow_testbed::require::Requirement::Program;

use crate::{WORKSPACE, assert_none};

/// The highest exposure, of 10. What remains is the network, which is the point, and what loads programs.
const HIGHEST: f64 = 2.0;

/// Those that are installed.
const UNITS: [&str; 2] = ["splitter.service", "splitter-fabric.service"];

/// Options that close something and that `systemd-analyze security` counts, but for those whose values are rows.
const CLOSING: [&str; 24] = [
    "IPAddressDeny",
    "LockPersonality",
    "MemoryDenyWriteExecute",
    "NoNewPrivileges",
    "PrivateDevices",
    "PrivateMounts",
    "PrivateNetwork",
    "PrivateTmp",
    "PrivateUsers",
    "ProcSubset",
    "ProtectClock",
    "ProtectControlGroups",
    "ProtectHome",
    "ProtectHostname",
    "ProtectKernelLogs",
    "ProtectKernelModules",
    "ProtectKernelTunables",
    "ProtectProc",
    "ProtectSystem",
    "RemoveIPC",
    "RestrictRealtime",
    "RestrictSUIDSGID",
    "SystemCallArchitectures",
    "UMask",
];

/// The names in the first column of the table.
fn rows() -> BTreeSet<String> {
    let page = WORKSPACE.root.join("docs/src/how-to/privileges.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, table) = page.split_once("| counted | because |").expect("a table");
    let table = table.split("\n\n").next().unwrap_or_default();
    let rows = table.lines().filter_map(|line| {
        let (name, because) = line.strip_prefix("| `")?.split_once("` | ")?;
        assert!(because.len() > 10, "{name} has no reason");
        Some(name.replace("\\|", "|"))
    });
    rows.collect()
}

fn unit(name: &str) -> String {
    fs::read_to_string(WORKSPACE.root.join("packaging/systemd").join(name)).unwrap()
}

/// The words that an option of a unit lists.
fn values<'u>(unit: &'u str, option: &str) -> Vec<&'u str> {
    let lines = unit.lines().filter_map(|line| line.split_once('='));
    let lines = lines.filter(|(name, _)| *name == option);
    lines
        .flat_map(|(_, values)| values.split_whitespace())
        .collect()
}

#[test]
fn what_the_unit_leaves_out_has_its_reason() {
    for name in UNITS {
        leaves_nothing_out(&unit(name));
    }
}

fn leaves_nothing_out(unit: &str) {
    let rows = rows();
    // Some stand together, as in AF_(INET|INET6).
    let is_reasoned = |option: &str, value: &str| {
        let short = value.trim_start_matches("AF_");
        rows.iter().any(|row| {
            let of_option = row.strip_prefix(option).unwrap_or_default();
            of_option.contains(value) || of_option.split(['(', '|', ')']).any(|word| word == short)
        })
    };
    let mut wrong = Vec::new();
    for option in CLOSING {
        // Either it is set or it has a reason, and never both.
        if values(unit, option).is_empty() != rows.contains(&format!("{option}=")) {
            wrong.push(option.to_owned());
        }
    }
    for option in ["CapabilityBoundingSet", "RestrictAddressFamilies"] {
        let values = values(unit, option);
        assert!(!values.is_empty(), "the unit has no {option}");
        // Systemd does not count this one.
        let values = values.into_iter().filter(|it| *it != "CAP_PERFMON");
        let without = values.filter(|value| !is_reasoned(option, value));
        wrong.extend(without.map(|value| format!("{option} {value}")));
    }
    assert_none("options that the unit leaves open without a reason", &wrong);
}

#[test]
fn systemd_counts_what_the_table_has_and_nothing_else() {
    flow_testbed::require!(Program("systemd-analyze"));
    for unit in UNITS {
        counts_what_the_table_has(unit);
    }
}

fn counts_what_the_table_has(unit: &str) {
    let mut analyze = Command::new("systemd-analyze");
    analyze.args(["security", "--offline=true", "--json=short"]);
    let path = WORKSPACE.root.join("packaging/systemd").join(unit);
    let output = analyze.arg(path).output().unwrap();
    let counted: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    let exposure = |row: &serde_json::Value| row["exposure"].as_str()?.parse::<f64>().ok();
    let name = |row: &serde_json::Value| row["name"].as_str().unwrap().to_owned();
    // Of a unit that starts while a machine boots it judges no root directory.
    let judged = counted.iter().filter(|row| !row["set"].is_null());
    let known: BTreeSet<_> = judged.map(name).collect();
    let open = counted.iter().filter(|row| exposure(row) > Some(0.0));
    let open: BTreeSet<_> = open.map(name).collect();
    assert!(known.len() > 60 && open.len() > 5, "{open:?}");
    // Another systemd may count other things.
    let rows: BTreeSet<_> = rows().intersection(&known).cloned().collect();
    let wrong: Vec<_> = rows.symmetric_difference(&open).cloned().collect();
    assert_none("rows that systemd or the table has alone", &wrong);
}

#[test]
fn units_are_as_exposed_as_the_page_says() {
    flow_testbed::require!(Program("systemd-analyze"));
    let analyze = |unit: &str| {
        let mut analyze = Command::new("systemd-analyze");
        analyze.args(["security", "--no-pager", "--offline=true"]);
        let path = WORKSPACE.root.join("packaging/systemd").join(unit);
        let output = analyze.arg(path).output().unwrap();
        let table = String::from_utf8_lossy(&output.stdout).into_owned();
        let (_, level) = table
            .split_once(&format!("level for {unit}: "))
            .expect(&table);
        let level = level.split(' ').next().unwrap_or_default();
        level.parse::<f64>().expect("a number")
    };
    for unit in UNITS {
        let level = analyze(unit);
        assert!(level <= HIGHEST, "{unit}: {level}");
    }
    // The short one sets nothing of the kind, as the page says.
    let short = unit("splitter-root.service");
    let set: Vec<_> = CLOSING
        .into_iter()
        .filter(|option| !values(&short, option).is_empty())
        .map(str::to_owned)
        .collect();
    assert_none("what the short unit closes", &set);
    assert!(analyze("splitter-root.service") > 9.0);
}
