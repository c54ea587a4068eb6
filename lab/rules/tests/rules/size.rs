//! Rule: no product crate above 8,000 lines of code without tests.

use crate::{WORKSPACE, assert_none, crates_of};

const LIMIT: usize = 8_000;

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
