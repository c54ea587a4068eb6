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
const DOES_NOT_APPLY: &str = "does not apply";

/// A row of the page: sections, what Cloudburst does, what shows it.
struct Row<'a> {
    sections: Vec<&'a str>,
    answer: &'a str,
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
    let cells = root.join("lab/congestion/src/cell.rs");
    let cells = fs::read_to_string(cells).unwrap().to_lowercase();
    let mut wrong = Vec::new();
    for row in &rows {
        if row.shown_by.is_empty() && !row.answer.starts_with(DOES_NOT_APPLY) {
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

#[test]
fn each_test_that_a_promise_of_cloudburst_names_exists() {
    let root = &WORKSPACE.root;
    let page = fs::read_to_string(root.join("SECURITY.md")).unwrap();
    let promises = page.split_once("Cloudburst promises besides:").unwrap().1;
    let promises = promises.split_once("\n## ").unwrap().0;
    let mut tests = BTreeSet::new();
    collect_tests(&root.join("cloudburst"), &mut tests);
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
    let &["", sections, _, answer, shown_by, ""] = &cells[..] else {
        return None;
    };
    let sections = sections.split(", ").map(|it| it.strip_prefix('§'));
    Some(Row {
        sections: sections.collect::<Option<_>>()?,
        answer,
        shown_by: shown_by.split('`').skip(1).step_by(2).collect(),
    })
}

/// Names of the tests in all files below a directory.
fn collect_tests(directory: &Path, tests: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_tests(&path, tests);
        } else if path.extension().is_some_and(|it| it == "rs") {
            let source = fs::read_to_string(&path).unwrap();
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
        }
    }
}
