//! Outcomes of claims about real time, which a test may leave undecided.
//!
//! A claim that did not hold on a machine whose processors were missing is not decided: to the
//! harness it has passed. So each timed claim also appends a line of JSON to the file that
//! `FLOW_TEST_CLAIMS` names (`flow_testbed::timed` writes it). A claim's twin holds the same law in
//! virtual time, and must have passed in the same run.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
};

use anyhow::{Context, Result};
use serde::Deserialize;

/// The environment variable with the file's path.
pub(super) const CLAIMS_VARIABLE: &str = "FLOW_TEST_CLAIMS";
/// A claim that is not decided in so many runs, one after the other, has failed.
const MOST_RUNS: u32 = 3;

/// A timed claim as its test recorded it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Claim {
    pub(super) test: String,
    pub(super) twin: String,
    #[serde(flatten)]
    pub(super) outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "outcome", content = "reason", rename_all = "snake_case")]
pub(super) enum Outcome {
    Held,
    /// The harness counts it.
    Failed(String),
    NotDecided(String),
}

/// Verdicts on the timed claims of one run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Verdicts {
    /// How many timed claims were run.
    pub(super) timed: usize,
    /// The tests that were not decided, and why.
    pub(super) undecided: Vec<(String, String)>,
    /// Tests that passed to the harness and failed all the same, and why.
    pub(super) failed: Vec<(String, String)>,
}

/// For how many runs in a row each test was not decided.
pub(super) type Streaks = BTreeMap<String, u32>;

/// Reads what the tests of this run wrote; nothing when none has a timed claim.
pub(super) fn read(file: &Path) -> Result<Vec<Claim>> {
    let Some(text) = read_if_there(file)? else {
        return Ok(Vec::new());
    };
    let claim = |line| serde_json::from_str(line).with_context(|| format!("not a claim: {line}"));
    text.lines().map(claim).collect()
}

/// Reads how often claims were not decided until now.
pub(super) fn read_streaks(file: &Path) -> Result<Streaks> {
    match read_if_there(file)? {
        None => Ok(Streaks::new()),
        Some(text) => serde_json::from_str(&text)
            .with_context(|| format!("{} is damaged: remove it", file.display())),
    }
}

pub(super) fn write_streaks(file: &Path, streaks: &Streaks) -> Result<()> {
    let text = serde_json::to_string_pretty(streaks)?;
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// Judges the claims of a run in which the tests `passed` have passed, and counts in `streaks` how
/// often each was not decided. A test with several claims is decided when all of them are.
pub(super) fn judge(
    claims: &[Claim],
    passed: &BTreeSet<String>,
    streaks: &mut Streaks,
) -> Verdicts {
    let mut verdicts = Verdicts {
        timed: claims.len(),
        ..Verdicts::default()
    };
    let tests: BTreeSet<&str> = claims.iter().map(|it| &*it.test).collect();
    for test in tests {
        let own = || claims.iter().filter(move |it| it.test == test);
        if own().any(|it| matches!(it.outcome, Outcome::Failed(_))) {
            streaks.remove(test);
            continue;
        }
        let without_twin = own().find(|it| !has_passed(&it.twin, passed));
        let reason = own().find_map(|it| match &it.outcome {
            Outcome::NotDecided(reason) => Some(reason),
            _ => None,
        });
        let streak = match reason {
            None => {
                streaks.remove(test);
                0
            }
            Some(_) => {
                let streak = streaks.entry(test.to_owned()).or_default();
                *streak += 1;
                *streak
            }
        };
        let named = |reason: String| (test.to_owned(), reason);
        if let Some(claim) = without_twin {
            let twin = &claim.twin;
            let reason = format!("its twin in virtual time, {twin}, has not passed in this run");
            verdicts.failed.push(named(reason));
        } else if let Some(reason) = reason {
            if streak >= MOST_RUNS {
                let reason = format!("not decided in {streak} runs in a row: {reason}");
                verdicts.failed.push(named(reason));
            } else {
                verdicts.undecided.push(named(reason.clone()));
            }
        }
    }
    verdicts
}

/// Tells whether a test of this name passed, whatever module it is in.
fn has_passed(name: &str, passed: &BTreeSet<String>) -> bool {
    let is_named = |it: &String| it.rsplit("::").next() == Some(name) || it == name;
    passed.iter().any(is_named)
}

fn read_if_there(file: &Path) -> Result<Option<String>> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(test: &str, outcome: Outcome) -> Claim {
        Claim {
            test: test.to_owned(),
            twin: "twin".to_owned(),
            outcome,
        }
    }

    fn not_decided() -> Outcome {
        Outcome::NotDecided("stolen".to_owned())
    }

    fn passed() -> BTreeSet<String> {
        ["model::twin".to_owned()].into()
    }

    #[test]
    fn claim_that_is_not_decided_in_three_runs_in_a_row_has_failed() {
        let mut streaks = Streaks::new();
        let mut run = |outcome| judge(&[claim("a::b", outcome)], &passed(), &mut streaks);
        for _ in 0..2 {
            let verdicts = run(not_decided());
            assert_eq!(
                verdicts.undecided,
                [("a::b".to_owned(), "stolen".to_owned())]
            );
            assert!(verdicts.failed.is_empty());
        }
        let verdicts = run(not_decided());
        assert!(verdicts.undecided.is_empty());
        assert_eq!(
            verdicts.failed[0].1,
            "not decided in 3 runs in a row: stolen"
        );
        assert_eq!(run(Outcome::Held).failed, []);
        assert_eq!(run(not_decided()).undecided.len(), 1, "it starts again");
    }

    #[test]
    fn claim_without_a_twin_that_passed_has_failed() {
        let claims = [claim("a::b", Outcome::Held)];
        let verdicts = judge(&claims, &BTreeSet::new(), &mut Streaks::new());
        assert_eq!(verdicts.timed, 1);
        assert!(
            verdicts.failed[0].1.contains("twin, has not"),
            "{verdicts:?}"
        );
    }

    #[test]
    fn failed_claim_is_left_to_the_harness() {
        let claims = [claim("a::b", Outcome::Failed("late".to_owned()))];
        let verdicts = judge(&claims, &passed(), &mut Streaks::new());
        assert_eq!((verdicts.undecided.len(), verdicts.failed.len()), (0, 0));
    }

    #[test]
    fn test_with_two_claims_is_not_decided_once() {
        let claims = [
            claim("a::b", Outcome::Held),
            claim("a::b", not_decided()),
            claim("a::b", not_decided()),
        ];
        let mut streaks = Streaks::new();
        let verdicts = judge(&claims, &passed(), &mut streaks);
        assert_eq!((verdicts.timed, verdicts.undecided.len()), (3, 1));
        assert_eq!(streaks["a::b"], 1);
    }

    #[test]
    fn files_that_are_not_there_are_empty() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("claims");
        assert_eq!(read(&file).unwrap(), []);
        assert_eq!(read_streaks(&file).unwrap(), Streaks::new());
        let line = r#"{"test":"a::b","law":"l","twin":"t","outcome":"not_decided","reason":"late","strain":"s"}"#;
        let other = r#"{"test":"a::c","law":"l","twin":"t","outcome":"held","strain":"s"}"#;
        fs::write(&file, format!("{line}\n{other}\n")).unwrap();
        let claims = read(&file).unwrap();
        assert_eq!(claims[0].outcome, Outcome::NotDecided("late".to_owned()));
        assert_eq!(claims[1].outcome, Outcome::Held);
        let streaks = Streaks::from([("a::b".to_owned(), 2)]);
        write_streaks(&file, &streaks).unwrap();
        assert_eq!(read_streaks(&file).unwrap(), streaks);
    }
}
