//! Counts what the standard test harness prints.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::{Deserialize, Serialize};

use super::{claims::Verdicts, skips::Skip};

/// How many tests and checks came to what.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tally {
    passed: usize,
    failed: usize,
    /// Names of what failed, for the summary.
    pub(super) failures: Vec<String>,
    /// What failed tests said last, by name: where output is long, only its end may be kept.
    pub(super) last_words: BTreeMap<String, Vec<String>>,
    /// What was skipped, and why.
    pub(super) skips: Vec<Skip>,
    /// Names of the tests that passed.
    pub(super) passed_tests: BTreeSet<String>,
    /// How many claims about real time were run.
    pub(super) timed: usize,
    /// Tests whose claim about real time was not decided, and why; neither passed nor skipped.
    pub(super) undecided: Vec<(String, String)>,
    /// Tests that failed beside others and passed alone, with what they had said last.
    pub(super) flaky: Vec<(String, Vec<String>)>,
}

impl Tally {
    /// A check that is not a test, passed.
    pub(super) fn success() -> Self {
        Self {
            passed: 1,
            ..Self::default()
        }
    }

    /// A check that is not a test, failed.
    pub(super) fn failure(name: &str) -> Self {
        Self {
            failed: 1,
            failures: vec![name.to_owned()],
            ..Self::default()
        }
    }

    /// A check that is not a test, failed for a reason of one or more lines.
    pub(super) fn failure_for(name: &str, reason: &str) -> Self {
        let lines = reason.lines().take(LAST_LINES).map(str::to_owned).collect();
        Self {
            last_words: BTreeMap::from([(name.to_owned(), lines)]),
            ..Self::failure(name)
        }
    }

    /// A check that is not a test, skipped.
    pub(super) fn skip(name: &str, reason: &str) -> Self {
        Self {
            skips: vec![Skip::new(name, reason)],
            ..Self::default()
        }
    }

    /// The counts of a step that an earlier run has passed.
    pub(super) fn earlier(passed: usize, skips: Vec<Skip>) -> Self {
        Self {
            passed,
            skips,
            ..Self::default()
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.failures.extend(other.failures);
        self.last_words.extend(other.last_words);
        self.skips.extend(other.skips);
        self.passed_tests.extend(other.passed_tests);
        self.timed += other.timed;
        self.undecided.extend(other.undecided);
        self.flaky.extend(other.flaky);
    }

    /// Tests that returned without having run, and are to run later.
    pub(super) fn take_back(&mut self, tests: &[String]) {
        self.passed = self.passed.saturating_sub(tests.len());
        for test in tests {
            self.passed_tests.remove(test);
        }
    }

    /// A test that failed, and has passed since.
    pub(super) fn excuse(&mut self, test: &str) {
        let Some(at) = self.failures.iter().position(|it| it == test) else {
            return;
        };
        self.failures.remove(at);
        self.failed = self.failed.saturating_sub(1);
        self.passed += 1;
        self.passed_tests.insert(test.to_owned());
        let words = self.last_words.remove(test).unwrap_or_default();
        self.flaky.push((test.to_owned(), words));
    }

    /// Tests that skipped themselves: to the harness they have passed.
    pub(super) fn mark_skipped(&mut self, skips: Vec<Skip>) {
        self.passed = self.passed.saturating_sub(skips.len());
        self.skips.extend(skips);
    }

    /// Tests whose claims about real time came to something else than the harness counted.
    pub(super) fn mark_timed(&mut self, verdicts: Verdicts) {
        let others = verdicts.undecided.len() + verdicts.failed.len();
        self.passed = self.passed.saturating_sub(others);
        self.failed += verdicts.failed.len();
        for (test, reason) in verdicts.failed {
            self.failures.push(test.clone());
            self.last_words.insert(test, vec![reason]);
        }
        self.timed += verdicts.timed;
        self.undecided.extend(verdicts.undecided);
    }

    pub(super) fn passed(&self) -> usize {
        self.passed
    }

    pub(super) fn failed(&self) -> usize {
        self.failed
    }

    pub(super) fn run(&self) -> usize {
        self.passed + self.failed
    }
}

/// `12 passed, 0 failed, 1 skipped`.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} passed, {} failed, {} skipped",
            self.passed,
            self.failed,
            self.skips.len()
        )
    }
}

/// Reads the harness' output line by line.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// Ignored tests named since the last result line.
    ignored: usize,
    /// The failed test whose output is being shown again.
    shown: Option<String>,
}

/// What is kept of the output of a failed test: from where it panics, as much as fits a screen.
const LAST_LINES: usize = 20;

impl Reader {
    /// Adds to `tally` what `line` says. The counts come from the result line,
    /// since a test that prints can garble the line with its name.
    pub(super) fn read(&mut self, line: &str, tally: &mut Tally) {
        self.listen(line, tally);
        if let Some(result) = parse_result(line) {
            tally.passed += result.passed;
            tally.failed += result.failed;
            for _ in self.ignored..result.ignored {
                tally.skips.push(Skip::new("a test", "ignored"));
            }
            self.ignored = 0;
        } else if let Some((name, outcome)) = parse_test(line) {
            if outcome == "ok" {
                tally.passed_tests.insert(name.to_owned());
            } else if outcome == "FAILED" {
                tally.failures.push(name.to_owned());
            } else if let Some(reason) = outcome.strip_prefix("ignored") {
                let reason = reason.trim_start_matches([',', ' ']);
                let reason = if reason.is_empty() { "ignored" } else { reason };
                tally.skips.push(Skip::new(name, reason));
                self.ignored += 1;
            }
        }
    }
}

impl Reader {
    /// Keeps what a failed test said when it panicked.
    fn listen(&mut self, line: &str, tally: &mut Tally) {
        if let Some(name) = parse_output_header(line) {
            self.shown = Some(name.to_owned());
        } else if line == "failures:" || line.starts_with("test result: ") {
            self.shown = None;
        } else if let Some(name) = &self.shown {
            let panics = line.contains(" panicked at ");
            match tally.last_words.get_mut(name) {
                Some(words) if words.len() < LAST_LINES => words.push(line.to_owned()),
                None if panics => {
                    tally.last_words.insert(name.clone(), vec![line.to_owned()]);
                }
                _ => {}
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct ResultLine {
    passed: usize,
    failed: usize,
    ignored: usize,
}

/// `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out`.
fn parse_result(line: &str) -> Option<ResultLine> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let count = |name: &str| {
        counts.split("; ").find_map(|field| {
            let (number, found) = field.split_once(' ')?;
            (found == name).then(|| number.parse().ok()).flatten()
        })
    };
    Some(ResultLine {
        passed: count("passed")?,
        failed: count("failed")?,
        ignored: count("ignored")?,
    })
}

/// `---- parser::reads stdout ----`.
fn parse_output_header(line: &str) -> Option<&str> {
    line.strip_prefix("---- ")?.strip_suffix(" stdout ----")
}

/// `test parser::reads ... ok`, and `test src/lib.rs - f (line 3) - compile ... ok`.
fn parse_test(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("test ")?.rsplit_once(" ... ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(output: &str) -> Tally {
        let mut tally = Tally::default();
        let mut reader = Reader::default();
        output
            .lines()
            .for_each(|line| reader.read(line, &mut tally));
        tally
    }

    #[test]
    fn counts_results_of_all_harnesses() {
        let tally = tally(
            "running 3 tests\n\
             test a::b ... ok\n\
             test a::c ... FAILED\n\
             test a::d ... ignored, needs a second machine\n\
             test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
             running 1 test\n\
             test src/lib.rs - (line 3) - compile ... ok\n\
             test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n",
        );
        assert_eq!(tally.to_string(), "2 passed, 1 failed, 1 skipped");
        assert_eq!(tally.failures, ["a::c"]);
        assert_eq!(tally.skips, [Skip::new("a::d", "needs a second machine")]);
    }

    #[test]
    fn keeps_what_failed_tests_said_last() {
        let tally = tally(
            "test a::c ... FAILED\n\
             failures:\n\
             ---- a::c stdout ----\n\
             much that it printed\n\
             thread 'a::c' (7) panicked at a.rs:1:1:\n\
             3 is not 4\n\
             failures:\n    a::c\n\
             test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured\n",
        );
        assert_eq!(
            tally.last_words["a::c"],
            ["thread 'a::c' (7) panicked at a.rs:1:1:", "3 is not 4"]
        );
    }

    #[test]
    fn counts_an_ignored_test_whose_line_was_garbled() {
        let tally = tally("test result: ok. 0 passed; 0 failed; 2 ignored; 0 measured\n");
        assert_eq!(tally.to_string(), "0 passed, 0 failed, 2 skipped");
    }

    #[test]
    fn a_test_that_skipped_itself_did_not_pass() {
        let mut tally = tally("test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured\n");
        tally.mark_skipped(vec![Skip::new("attaches", "no root")]);
        assert_eq!(tally.to_string(), "4 passed, 0 failed, 1 skipped");
        assert_eq!(tally.run(), 4);
    }

    #[test]
    fn a_test_that_was_not_decided_neither_passed_nor_was_skipped() {
        let mut tally = tally(
            "test a::b ... ok\n\
             test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n",
        );
        assert!(tally.passed_tests.contains("a::b"));
        let named = |test: &str| (test.to_owned(), "a reason".to_owned());
        tally.mark_timed(Verdicts {
            timed: 3,
            undecided: vec![named("one")],
            failed: vec![named("other")],
        });
        assert_eq!(tally.to_string(), "3 passed, 1 failed, 0 skipped");
        assert_eq!(tally.failures, ["other"]);
        assert_eq!((tally.timed, tally.undecided.len()), (3, 1));
    }

    #[test]
    fn other_lines_count_nothing() {
        assert_eq!(
            tally("test results are nice\ntesting ... ok\n"),
            Tally::default()
        );
        assert_eq!(parse_result("test result: strange. x passed"), None);
    }
}
