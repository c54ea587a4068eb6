//! Rule: the page on RFC 8085 has a row for each section, and each row a test or a command that exists; so has each
//! test that a promise of Cloudburst names.

use std::{collections::BTreeSet, fs, path::Path};

use crate::{WORKSPACE, assert_none};

/// Sections of RFC 8085 that ask for something: those of its Table 1, and §3.1.4, §3.1.5 and §5.1.1.
const SECTIONS: [&str; 28] = [
    "3", "3.1", "3.1.1", "3.1.2", "3.1.3", "3.1.4", "3.1.5", "3.1.6", "3.1.7", "3.1.8", "3.1.9",
    "3.1.10", "3.1.11", "3.2", "3.3", "3.4", "3.4.1", "3.4.2", "3.5", "3.6", "4.1.1", "4.1.2",
    "4.2", "5.1", "5.1.1", "5.1.2", "5.2", "6",
];
/// What is not in Cloudburst's source: sockets without a checksum (§3.4.1) or with one of a part (§3.4.2), and
/// devices and sockets for packets of others, which a tunnel would take (§3.1.11).
const NOT_ASKED_FOR: [&str; 7] = [
    "NO_CHECK",
    "UDPLITE",
    "UDP_LITE",
    "/dev/net/tun",
    "IPPROTO_RAW",
    "SOCK_RAW",
    "Type::RAW",
];

/// A row of the page: sections, and what shows what Cloudburst does.
struct Row<'a> {
    sections: Vec<&'a str>,
    shown_by: Vec<&'a str>,
}

#[test]
fn each_section_of_the_udp_guidelines_is_answered_and_shown() {
    let root = &WORKSPACE.root;
    let page = fs::read_to_string(root.join("docs/src/reference/rfc8085.md")).unwrap();
    let rows: Vec<Row<'_>> = page.lines().filter_map(row).collect();
    let sections: Vec<_> = rows.iter().flat_map(|row| row.sections.clone()).collect();
    assert_eq!(sections, SECTIONS, "sections of the page");

    let mut tests = BTreeSet::new();
    collect_tests(&root.join("cloudburst"), &mut tests);
    collect_tests(&root.join("lab/rules/tests"), &mut tests);
    let cells = root.join("lab/congestion/src/cell.rs");
    let cells = fs::read_to_string(cells).unwrap().to_lowercase();
    let mut wrong = Vec::new();
    for row in &rows {
        if row.shown_by.is_empty() {
            wrong.push(format!("§{}: nothing shows it", row.sections[0]));
        }
        for name in &row.shown_by {
            let exists = match name.strip_prefix("congestion ") {
                Some(cell) => cells.contains(&format!("\n    {cell},\n")),
                None => tests.contains(*name),
            };
            if !exists {
                wrong.push(format!("§{}: there is no `{name}`", row.sections[0]));
            }
        }
    }
    assert_none("rows of the page on RFC 8085", &wrong);
}

/// Section by section, as the page says it: what cannot be run to be shown, for there is none of it.
#[test]
fn cloudburst_has_no_tunnel_and_no_socket_without_a_checksum() {
    let mut found = Vec::new();
    let root = WORKSPACE.root.join("cloudburst");
    each_source(&root, &mut |path, source| {
        let own = path.strip_prefix(&root).unwrap();
        // Tests break sockets on purpose.
        if own.to_string_lossy().contains("tests") {
            return;
        }
        let names = NOT_ASKED_FOR.iter().filter(|name| source.contains(**name));
        found.extend(names.map(|name| format!("{}: {name}", own.display())));
    });
    assert_none("sources that ask for what UDP's guidelines warn of", &found);
}

#[test]
fn each_test_that_a_promise_of_cloudburst_names_exists() {
    let root = &WORKSPACE.root;
    let page = fs::read_to_string(root.join("SECURITY.md")).unwrap();
    let promises = page.split_once("Cloudburst promises besides:").unwrap().1;
    let promises = promises.split_once("\n## ").unwrap().0;
    let mut tests = BTreeSet::new();
    for crates in ["cloudburst", "crates"] {
        collect_tests(&root.join(crates), &mut tests);
    }
    let named = promises.split('`').skip(1).step_by(2);
    let named: Vec<_> = named.filter(|name| name.contains('_')).collect();
    assert!(named.len() > 30, "{named:?}");
    let wrong: Vec<_> = named
        .iter()
        .filter(|name| !tests.contains(**name))
        .map(|name| format!("there is no `{name}`"))
        .collect();
    assert_none("tests that SECURITY.md names", &wrong);
}

fn row(line: &str) -> Option<Row<'_>> {
    let cells: Vec<_> = line.split('|').map(str::trim).collect();
    let &["", sections, _, _, shown_by, ""] = &cells[..] else {
        return None;
    };
    let sections = sections.split(", ").map(|it| it.strip_prefix('§'));
    Some(Row {
        sections: sections.collect::<Option<_>>()?,
        shown_by: shown_by.split('`').skip(1).step_by(2).collect(),
    })
}

/// Names of the tests in all files below a directory.
fn collect_tests(directory: &Path, tests: &mut BTreeSet<String>) {
    each_source(directory, &mut |_, source| {
        let mut is_test = false;
        for line in source.lines().map(str::trim) {
            let name = line
                .strip_prefix("async ")
                .unwrap_or(line)
                .strip_prefix("fn ");
            let name = name.and_then(|rest| rest.split('(').next());
            if let Some(name) = name.filter(|_| is_test) {
                tests.insert(name.to_owned());
            }
            is_test = line.starts_with("#[test]")
                || line.starts_with("#[tokio::test")
                || (is_test && line.starts_with("#["));
        }
    });
}

/// Calls with each file of Rust below a directory.
fn each_source(directory: &Path, on_source: &mut impl FnMut(&Path, &str)) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            each_source(&path, on_source);
        } else if path.extension().is_some_and(|it| it == "rs") {
            on_source(&path, &fs::read_to_string(&path).unwrap());
        }
    }
}
