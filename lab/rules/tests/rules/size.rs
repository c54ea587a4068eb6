//! Rules: no product crate above 8,000 lines of code without tests; the event router of Cloudburst's
//! state machine stays one.

use std::{fs, path::PathBuf};

use workspace_rules::Crate;

use crate::{WORKSPACE, assert_none, crates_of};

const LIMIT: usize = 8_000;
/// A router hands on what its parts decide; one that grows has begun to decide by itself.
const ROUTER_LINES: usize = 400;

#[test]
fn product_crates_stay_small_enough_to_know() {
    let mut wrong = Vec::new();
    for package in WORKSPACE.packages.values() {
        let lines: usize = crates_of(&package.name).map(|krate| krate.code_lines).sum();
        println!("{lines:>6} {}", package.name);
        if !package.is_of_the_lab() && lines > LIMIT {
            wrong.push(format!("{}: {lines} lines of code", package.name));
        }
    }
    assert_none("crates above 8,000 lines of code without tests", &wrong);
}

#[test]
fn the_event_router_is_one_short_file_with_all_of_its_impl() {
    let source = WORKSPACE.root.join("cloudburst/crates/proto/src");
    let krate = Crate::read(&source.join("lib.rs")).unwrap();
    let mut files: Vec<PathBuf> = Vec::new();
    for module in krate.modules {
        if module.implements("Router") {
            files.push(module.file);
        }
    }
    assert_eq!(
        files,
        [source.join("router.rs")],
        "files with `impl Router`"
    );
    let lines = fs::read_to_string(&files[0]).unwrap().lines().count();
    assert!(lines < ROUTER_LINES, "the event router has {lines} lines");
}
