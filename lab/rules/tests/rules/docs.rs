//! Rule: the first line of a public item's documentation is a sentence that stands alone in an index.

use workspace_rules::Item;

use crate::{WORKSPACE, assert_none, crates_of};

/// Beginnings of what is no sentence without the item's name before it.
const REFUSED: [&str; 9] = [
    "What", "Whether", "Where", "Of", "The same", "When", "In", "As", "Those",
];

const FEWEST_WORDS: usize = 4;

#[test]
fn first_lines_are_sentences_that_stand_alone() {
    let mut wrong = Vec::new();
    for package in WORKSPACE.packages.values() {
        let mut faults = Vec::new();
        for krate in crates_of(&package.name) {
            for item in &krate.public_items {
                if let Some(reason) = fault(item) {
                    let Item {
                        name,
                        place,
                        first_line,
                    } = item;
                    faults.push(format!("{place}: {name}: {reason}: {first_line}"));
                }
            }
        }
        println!("{:>6} {}", faults.len(), package.name);
        wrong.append(&mut faults);
    }
    assert_none("first lines of documentation", &wrong);
}

/// Why an item's first line does not do.
fn fault(item: &Item) -> Option<String> {
    let line = item.first_line.trim();
    let begins = |words: &&&str| {
        line.strip_prefix(**words)
            .is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric()))
    };
    if line.is_empty() {
        return Some("no documentation".to_owned());
    }
    if let Some(words) = REFUSED.iter().find(begins) {
        return Some(format!("begins with {words:?}"));
    }
    if line.split_whitespace().count() < FEWEST_WORDS {
        return Some(format!("has fewer than {FEWEST_WORDS} words"));
    }
    let first = line.chars().next().unwrap_or(' ');
    if !(first.is_uppercase() || "`[\"0123456789".contains(first)) {
        return Some("does not begin like a sentence".to_owned());
    }
    if !line.contains(['.', ':']) {
        return Some("does not end like a sentence".to_owned());
    }
    None
}
