//! Rule: no product crate above 8,000 lines of code without tests.

use crate::{WORKSPACE, assert_none, crates_of};

const LIMIT: usize = 8_000;

/// Crates that are still being taken apart.
const UNFINISHED: [&str; 1] = ["splitter-agent"];

#[test]
fn product_crates_stay_small_enough_to_know() {
    let mut wrong = Vec::new();
    for package in WORKSPACE.packages.values() {
        let lines: usize = crates_of(&package.name).map(|krate| krate.code_lines).sum();
        println!("{lines:>6} {}", package.name);
        let is_finished = !UNFINISHED.contains(&package.name.as_str());
        if !package.is_of_the_lab() && is_finished && lines > LIMIT {
            wrong.push(format!("{}: {lines} lines of code", package.name));
        }
    }
    assert_none("crates above 8,000 lines of code without tests", &wrong);
}
