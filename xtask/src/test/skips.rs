//! What tests say when the machine lacks something that they need.
//!
//! The harness knows no test that finds out while it runs that it cannot: such a
//! test returns, which passes. So it also appends a line
//! `SKIPPED <test>: <reason>` to the file that `FLOW_TEST_SKIPS` names.

use std::{fs, io, path::Path};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// The environment variable with the file's path.
pub(super) const SKIPS_VARIABLE: &str = "FLOW_TEST_SKIPS";

/// A test that did not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Skip {
    pub(super) test: String,
    pub(super) reason: String,
}

impl Skip {
    pub(super) fn new(test: &str, reason: &str) -> Self {
        Self {
            test: test.to_owned(),
            reason: reason.to_owned(),
        }
    }
}

/// Forgets what earlier runs wrote.
pub(super) fn clear(file: &Path) -> Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", file.display()))
        }
        _ => Ok(()),
    }
}

/// What the tests of this run wrote; nothing when no test skipped.
pub(super) fn read(file: &Path) -> Result<Vec<Skip>> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(parse(&text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
    }
}

/// One entry per test; further reasons of the same test are joined.
fn parse(text: &str) -> Vec<Skip> {
    let mut skips: Vec<Skip> = Vec::new();
    let lines = text.lines().filter_map(|line| {
        // The test's name has `::` in it, the separator has a space after it.
        line.strip_prefix("SKIPPED ")?.split_once(": ")
    });
    for (test, reason) in lines {
        match skips.iter_mut().find(|skip| skip.test == test) {
            None => skips.push(Skip::new(test, reason)),
            Some(skip) if skip.reason.contains(reason) => {}
            Some(skip) => {
                skip.reason.push_str("; ");
                skip.reason.push_str(reason);
            }
        }
    }
    skips
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_with_two_reasons_is_one_skip() {
        let skips = parse(
            "SKIPPED attach::native: no root\n\
             SKIPPED attach::native: no bpffs: not mounted\n\
             SKIPPED attach::native: no root\n\
             noise\n\
             SKIPPED scrape: no Prometheus\n",
        );
        assert_eq!(
            skips,
            [
                Skip::new("attach::native", "no root; no bpffs: not mounted"),
                Skip::new("scrape", "no Prometheus"),
            ]
        );
    }

    #[test]
    fn no_file_means_no_skips() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("skips");
        clear(&file).unwrap();
        assert!(read(&file).unwrap().is_empty());
        fs::write(&file, "SKIPPED a: b\n").unwrap();
        assert_eq!(read(&file).unwrap(), [Skip::new("a", "b")]);
        clear(&file).unwrap();
        assert!(read(&file).unwrap().is_empty());
    }
}
